//! Events of the session that a consumer asked to be told.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use watershed_wire::ipc::ConsumerMethod;
use watershed_wire::protos::observable_events::Type;
use watershed_wire::protos::{ObservableEvents, ObserveEventsRequest, ObserveEventsResponse};

use super::Consumer;
use super::error::ConsumerError;
use super::link::Arrived;

/// How many messages with events wait to be asked for; beyond that the oldest are dropped.
pub const EVENTS_KEPT_MAX: usize = 1024;

/// What happens next on a connection.
#[derive(Clone, Debug, PartialEq)]
pub enum Notice {
    /// What was observed.
    Events(ObservableEvents),
    /// The session has ended, or it did not start.
    Ended {
        /// What the service has to say if that is on account of an error. Its own text.
        error: Option<String>,
    },
    /// Somebody used the [`WakeHandle`](super::WakeHandle).
    Woken,
}

/// What was observed, and nobody has asked for yet.
#[derive(Debug, Default)]
pub(super) struct Observed {
    /// The call whose stream counts.
    request_id: Option<u64>,
    events: VecDeque<ObservableEvents>,
}

impl Observed {
    pub(super) fn take(&mut self, request_id: u64, response: ObserveEventsResponse) {
        let Some(events) = response.events.filter(|_| self.request_id == Some(request_id)) else { return };
        if self.events.len() >= EVENTS_KEPT_MAX {
            self.events.pop_front();
        }
        self.events.push_back(events);
    }
}

impl Consumer {
    /// Has the service tell events of these kinds from here on, for this connection's session, the
    /// present one or the next; in place of what was asked for before.
    ///
    /// # Errors
    ///
    /// [`ConsumerError`].
    pub fn observe_events(&mut self, kinds: &[Type]) -> Result<(), ConsumerError> {
        let request =
            ObserveEventsRequest { events_to_observe: kinds.iter().map(|kind| (*kind).into()).collect() };
        self.observed.request_id = Some(self.link.invoke(ConsumerMethod::ObserveEvents, &request, None)?);
        self.link.send_all(self.deadline())
    }

    /// Waits for whatever comes first: events that were asked for, the session's end, somebody who
    /// uses the [`WakeHandle`](super::WakeHandle).
    ///
    /// # Errors
    ///
    /// [`ConsumerError`].
    pub fn next_notice(&mut self) -> Result<Notice, ConsumerError> {
        loop {
            if let Some(events) = self.observed.events.pop_front() {
                return Ok(Notice::Events(events));
            }
            if let Some(error) = self.ended.take() {
                return Ok(Notice::Ended { error });
            }
            match self.link.event(None, true)? {
                Arrived::Event(event) => drop(self.take(event, None)?),
                Arrived::Woken => return Ok(Notice::Woken),
                // There is no time limit.
                Arrived::TimedOut => {}
            }
        }
    }

    /// The next events, `None` if none came within `timeout`, or if the session has ended before.
    ///
    /// # Errors
    ///
    /// [`ConsumerError`].
    pub fn next_events(&mut self, timeout: Duration) -> Result<Option<ObservableEvents>, ConsumerError> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            if let Some(events) = self.observed.events.pop_front() {
                return Ok(Some(events));
            }
            if self.ended.is_some() {
                return Ok(None);
            }
            match self.link.event(deadline, false)? {
                Arrived::Event(event) => drop(self.take(event, None)?),
                Arrived::Woken | Arrived::TimedOut => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_have_a_limit_and_belong_to_their_request() {
        let mut observed = Observed { request_id: Some(7), ..Default::default() };
        let response = ObserveEventsResponse { events: Some(ObservableEvents::default()) };
        observed.take(6, response.clone());
        assert!(observed.events.is_empty());
        (0..=EVENTS_KEPT_MAX).for_each(|_| observed.take(7, response.clone()));
        assert_eq!(observed.events.len(), EVENTS_KEPT_MAX);
    }
}
