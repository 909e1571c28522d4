//! Sessions that are left behind, taken up again, or cloned.

use std::fs::File;
use std::time::Duration;

use watershed_wire::ipc::messages::{EnableTracingRequest, TraceConfigMessage};
use watershed_wire::ipc::{ConsumerMethod, Failure};
use watershed_wire::protos::clone_session_request::Selector;
use watershed_wire::protos::observable_events::CloneTriggerHit;
use watershed_wire::protos::{AttachRequest, CloneSessionRequest, CloneSessionResponse, DetachRequest};

use super::error::ConsumerError;
use super::{Consumer, decode};

/// Which session is to be cloned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CloneOf {
    /// The one with this number.
    Id(u64),
    /// The one with this `unique_session_name`.
    Name(String),
    /// Of those that record for bug reports the one with the highest score.
    ForBugreport,
}

/// A clone, which is the connection's session now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cloned {
    /// The `trace_uuid` of its trace: most and least significant 64 bits.
    pub uuid: (i64, i64),
    /// Whether all of it is in the file that was handed over; then there is nothing to read.
    pub is_in_file: bool,
}

impl Consumer {
    /// Leaves the session behind under a key: it goes on without this connection, which may have
    /// another one. False if the service refuses: there is no session, the key is empty, or this
    /// user has left another one behind under it.
    ///
    /// # Errors
    ///
    /// [`ConsumerError`].
    pub fn detach(&mut self, key: &str) -> Result<bool, ConsumerError> {
        let request = DetachRequest { key: Some(key.to_owned()) };
        let detached = accepted(self.call(ConsumerMethod::Detach, &request))?.is_some();
        if detached {
            self.session = None;
        }
        Ok(detached)
    }

    /// Takes up a session of this user that was left behind. Returns its config, as a binary
    /// `TraceConfig`; `None` if there is none under the key, or if the connection has a session.
    /// Its end is told by [`Consumer::wait_end`].
    ///
    /// # Errors
    ///
    /// [`ConsumerError`].
    pub fn attach(&mut self, key: &str) -> Result<Option<Vec<u8>>, ConsumerError> {
        let request = AttachRequest { key: Some(key.to_owned()) };
        let Some(reply) = accepted(self.call(ConsumerMethod::Attach, &request))? else { return Ok(None) };
        let reply: TraceConfigMessage = decode(ConsumerMethod::Attach, &reply)?;
        let until_end = EnableTracingRequest::of_attached();
        self.session = Some(self.link.invoke(ConsumerMethod::EnableTracing, &until_end, None)?);
        self.ended = None;
        self.link.send_all(self.deadline())?;
        Ok(Some(reply.trace_config().unwrap_or_default()))
    }

    /// Clones a session, within `timeout`: data sources are flushed first, and files may be large.
    /// `file`, which is to be opened for writing, is for the clone of a session that writes into
    /// one; our daemon writes every clone into it, so that nothing of it takes the way through the
    /// socket. `trigger` is the one for which the clone is made, as an event has told it.
    ///
    /// # Errors
    ///
    /// [`ConsumerError::Refused`] with the words of the service, and all others.
    pub fn clone_session(
        &mut self,
        of: &CloneOf,
        trigger: Option<&CloneTriggerHit>,
        file: File,
        timeout: Duration,
    ) -> Result<Cloned, ConsumerError> {
        let mut request = clone_request(of);
        if let Some(trigger) = trigger {
            request.clone_trigger_name.clone_from(&trigger.trigger_name);
            request.clone_trigger_producer_name.clone_from(&trigger.producer_name);
            request.clone_trigger_trusted_producer_uid = trigger.producer_uid.map(u32::cast_signed);
            request.clone_trigger_boot_time_ns = trigger.boot_time_ns;
            request.clone_trigger_delay_ms = trigger.trigger_delay_ms;
        }
        self.clone_as(&request, file, timeout)
    }

    /// As [`Consumer::clone_session`], for a bug report: data sources are told so with the flush,
    /// and the clone has what the session's `trace_filter` forbids. Only for the user who may see
    /// that: whose session it is, or root.
    ///
    /// # Errors
    ///
    /// As [`Consumer::clone_session`].
    pub fn clone_for_bugreport(
        &mut self,
        of: &CloneOf,
        file: File,
        timeout: Duration,
    ) -> Result<Cloned, ConsumerError> {
        let request = CloneSessionRequest {
            skip_trace_filter: Some(true),
            for_bugreport: Some(true),
            ..clone_request(of)
        };
        self.clone_as(&request, file, timeout)
    }

    fn clone_as(
        &mut self,
        request: &CloneSessionRequest,
        file: File,
        timeout: Duration,
    ) -> Result<Cloned, ConsumerError> {
        let method = ConsumerMethod::CloneSession;
        let id = self.link.invoke(method, request, Some(file.into()))?;
        let reply = self.reply(id, method, self.deadline() + timeout)?;
        let reply: CloneSessionResponse = decode(method, &reply.bytes)?;
        match reply.success() {
            true => Ok(Cloned {
                uuid: (reply.uuid_msb(), reply.uuid_lsb()),
                is_in_file: reply.was_write_into_file(),
            }),
            false => Err(ConsumerError::Refused(reply.error().to_owned())),
        }
    }
}

fn clone_request(of: &CloneOf) -> CloneSessionRequest {
    let for_bugreport = (*of == CloneOf::ForBugreport).then_some(true);
    CloneSessionRequest {
        selector: Some(selector(of)),
        skip_trace_filter: for_bugreport,
        for_bugreport,
        into_file: Some(true),
        ..Default::default()
    }
}

fn selector(of: &CloneOf) -> Selector {
    match of {
        CloneOf::Id(id) => Selector::SessionId(*id),
        CloneOf::Name(name) => Selector::UniqueSessionName(name.clone()),
        // The number that stands for it.
        CloneOf::ForBugreport => Selector::SessionId(u64::MAX),
    }
}

/// The reply, `None` if the service rejects the call.
fn accepted(reply: Result<Vec<u8>, ConsumerError>) -> Result<Option<Vec<u8>>, ConsumerError> {
    match reply {
        Ok(reply) => Ok(Some(reply)),
        Err(ConsumerError::Failed { failure: Failure::Rejected, .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
