//! Data sources: what a program offers to trace, and the instances that sessions make of it.
//!
//! ```text
//!   DataSourceFactory          DataSource (one instance)                            service
//!
//!   descriptor() ------------------------------------------------------------->  RegisterDataSource
//!   setup(cx) -> instance  <---------------------------------------------------  SetupDataSource
//!                              start(cx) -> Wake  <-----------------------------  StartDataSource
//!                              poll(cx) -> Wake        (when the Wake is due)
//!                              flush(cx)  <-------------------------------------  Flush
//!                              clear_incremental_state(cx)  <-------------------  ClearIncrementalState
//!                              stop(cx) -> Stop  <------------------------------  StopDataSource
//!                              (dropped)
//! ```
//!
//! All calls come from the producer's one thread, so a source needs no locks of its own; while one
//! call runs, no other source of the producer is served. Between calls a source costs nothing: it
//! says when it wants to be polled.

use std::time::Duration;

use watershed_wire::protos::{DataSourceConfig, DataSourceDescriptor};

use crate::arbiter::{Arbiter, BufferReservation, ExhaustedPolicy, Target};
use crate::clock;
use crate::sync::{Arc, AtomicBool, Ordering};
use crate::writer::TraceWriter;

/// A kind of data source: what a session can ask for by name.
pub trait DataSourceFactory: Send {
    /// What the service is told: the name (required) and what instances do. `will_notify_on_start`
    /// and `will_notify_on_stop` make sessions wait for this source; the producer then answers for
    /// it.
    fn descriptor(&self) -> DataSourceDescriptor;

    /// Called once, when a producer is given the source, with what tells it that
    /// [`descriptor`](Self::descriptor) says something else from now on: then it asks again, and
    /// the service is told. May be called by any thread.
    fn watch(&mut self, changed: DescriptorChanged) {
        let _ = changed;
    }

    /// Says whether a config is one that [`DataSourceFactory::setup`] can honour. Asked before a
    /// session starts where the producer can (the in-process backend does).
    ///
    /// # Errors
    ///
    /// A text for the user that names the field and what was expected.
    fn check(&self, config: &DataSourceConfig) -> Result<(), String> {
        let _ = config;
        Ok(())
    }

    /// What writers of instances do when no memory is free, unless the config says otherwise.
    fn exhausted_policy(&self) -> ExhaustedPolicy {
        ExhaustedPolicy::Drop
    }

    /// Makes an instance for a session, ready to start at once. It must not trace yet.
    ///
    /// # Errors
    ///
    /// A text for the user. The session goes on without this instance.
    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String>;
}

/// See [`DataSourceFactory::watch`]. False: the producer has ended.
pub type DescriptorChanged = Box<dyn Fn() -> bool + Send + Sync>;

/// An instance of a data source, in one session.
pub trait DataSource: Send {
    /// Starts tracing. Says when [`DataSource::poll`] is wanted.
    fn start(&mut self, cx: &mut Context<'_>) -> Wake;

    /// Does what is due, and says when it wants to be called again.
    fn poll(&mut self, cx: &mut Context<'_>) -> Wake {
        let _ = cx;
        Wake::Never
    }

    /// Writes what has been collected, and flushes the writers. What takes long can be done in
    /// polls, see [`Context::flush_later`]: the service's next commands are heard in between.
    fn flush(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }

    /// Stops tracing: writes what is left. With [`Stop::Done`] the instance is dropped after this
    /// call, and its writers hand over what they have.
    fn stop(&mut self, cx: &mut Context<'_>) -> Stop {
        let _ = cx;
        Stop::Done
    }

    /// Forgets what earlier packets said (interned strings, baselines): the next packets must stand
    /// on their own. Only called when the descriptor has `handles_incremental_state_clear`.
    fn clear_incremental_state(&mut self, cx: &mut Context<'_>) {
        let _ = cx;
    }
}

/// When an instance wants to be polled next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Not again.
    Never,
    /// As was asked before.
    Keep,
    /// This much later than now.
    After(Duration),
    /// At the next multiple of this period on CLOCK_MONOTONIC, so that sources with equal periods
    /// wake the machine together. A period of zero is taken as one millisecond.
    EveryNext(Duration),
    /// At this reading of CLOCK_MONOTONIC, in nanoseconds.
    AtMonotonicNs(u64),
}

impl Wake {
    /// The reading of CLOCK_MONOTONIC at which to poll.
    pub(crate) fn due_ns(self, before: Option<u64>, now_ns: u64) -> Option<u64> {
        let nanos = |duration: Duration| u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
        match self {
            Self::Never => None,
            Self::Keep => before,
            Self::After(delay) => Some(now_ns.saturating_add(nanos(delay))),
            Self::EveryNext(period) => {
                let period = nanos(period.max(Duration::from_millis(u64::from(period.is_zero()))));
                Some((now_ns / period + 1).saturating_mul(period))
            }
            Self::AtMonotonicNs(at) => Some(at),
        }
    }
}

/// Whether an instance has stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stop {
    /// It has.
    Done,
    /// It needs more polls, and will call [`Context::stopped`] in one of them. The service waits
    /// for it as long as the session's config says, five seconds by default.
    Later(Wake),
}

/// What an instance was made for.
#[derive(Debug)]
pub(crate) struct InstanceInfo {
    pub(crate) instance_id: u64,
    pub(crate) config: DataSourceConfig,
    pub(crate) config_bytes: Arc<[u8]>,
    pub(crate) policy: ExhaustedPolicy,
    /// Where it writes until a session has named a buffer.
    pub(crate) reservation: Option<BufferReservation>,
    /// Somebody asked for a poll, see [`PollRequest`].
    pub(crate) poll_wanted: Arc<AtomicBool>,
}

/// Asks for a poll of one instance at once, from any thread: for sources that learn on a thread of
/// their own that there is something to do.
#[derive(Clone, Debug)]
pub struct PollRequest {
    wanted: Arc<AtomicBool>,
    arbiter: Arbiter,
}

impl PollRequest {
    /// Asks for it. Asking again before it happened changes nothing, and asking for an instance
    /// that has ended does nothing.
    pub fn raise(&self) {
        // Release, with the acquire of the swap in `ProducerCore::handle_timeout`: the poll sees
        // what was done before the request.
        self.wanted.store(true, Ordering::Release);
        self.arbiter.wake_producer();
    }
}

/// Makes writers of one instance, on any thread.
#[derive(Clone, Debug)]
pub struct WriterSource {
    arbiter: Arbiter,
    target: Target,
    policy: ExhaustedPolicy,
}

impl WriterSource {
    /// A new writer. Once the instance has ended nobody reads what it writes; once the connection
    /// has, it discards.
    #[must_use]
    pub fn create(&self) -> TraceWriter {
        self.arbiter.create_writer_for(self.target, self.policy)
    }
}

/// What an instance may use during a call.
#[derive(Debug)]
pub struct Context<'a> {
    info: &'a InstanceInfo,
    arbiter: &'a Arbiter,
    now_ns: u64,
    pub(crate) stopped: bool,
    pub(crate) flush_later: bool,
    pub(crate) flushed: bool,
}

impl<'a> Context<'a> {
    pub(crate) fn new(info: &'a InstanceInfo, arbiter: &'a Arbiter, now_ns: u64) -> Self {
        Self { info, arbiter, now_ns, stopped: false, flush_later: false, flushed: false }
    }

    /// The instance's id, unique in the life of the service; 0 while it traces at startup and no
    /// session has taken it over.
    #[must_use]
    pub fn instance_id(&self) -> u64 {
        self.info.instance_id
    }

    /// The instance's config.
    #[must_use]
    pub fn config(&self) -> &'a DataSourceConfig {
        &self.info.config
    }

    /// The config as it came, with fields that the schema does not have.
    #[must_use]
    pub fn config_bytes(&self) -> &'a [u8] {
        &self.info.config_bytes
    }

    /// A new writer into the buffer that the config names, with the config's policy or else the
    /// factory's. It may be moved to another thread. While the instance traces at startup, into
    /// the buffer that its session will name, with [`ExhaustedPolicy::Drop`].
    #[must_use]
    pub fn create_writer(&self) -> TraceWriter {
        self.writer_source().create()
    }

    /// Makes writers of this instance on any thread, as [`Context::create_writer`] does here.
    #[must_use]
    pub fn writer_source(&self) -> WriterSource {
        let InstanceInfo { config, policy, reservation, .. } = self.info;
        let (target, policy) = match reservation {
            // Nobody frees memory before there is a service.
            Some(reservation) => (Target::Reserved(*reservation), ExhaustedPolicy::Drop),
            // Buffer ids have 16 bits; the service cuts larger ones in the same way.
            None => (Target::Buffer(config.target_buffer() as u16), *policy),
        };
        WriterSource { arbiter: self.arbiter.clone(), target, policy }
    }

    /// Lets another thread ask for a poll of this instance.
    #[must_use]
    pub fn poll_request(&self) -> PollRequest {
        PollRequest { wanted: self.info.poll_wanted.clone(), arbiter: self.arbiter.clone() }
    }

    /// CLOCK_MONOTONIC at the begin of this call, in nanoseconds.
    #[must_use]
    pub fn now_monotonic_ns(&self) -> u64 {
        self.now_ns
    }

    /// CLOCK_BOOTTIME now, in nanoseconds: the default clock of packet timestamps.
    #[must_use]
    pub fn boottime_ns(&self) -> u64 {
        clock::boottime_ns()
    }

    /// Says, after [`Stop::Later`], that the instance has stopped. It is dropped after this call.
    pub fn stopped(&mut self) {
        self.stopped = true;
    }

    /// Says, in [`DataSource::flush`], that there is more to do than one call should take. The
    /// instance is polled at once, as often as it asks for, and the service has no answer before
    /// [`Context::flushed`] or the instance's end. Another flush meanwhile begins anew.
    pub fn flush_later(&mut self) {
        self.flush_later = true;
    }

    /// Says, in [`DataSource::poll`], that what was to be flushed later has been.
    pub fn flushed(&mut self) {
        self.flushed = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wake_is_due_when_it_says() {
        let due = |wake: Wake| wake.due_ns(Some(7), 1_000_250_000);
        assert_eq!(due(Wake::Never), None);
        assert_eq!(due(Wake::Keep), Some(7));
        assert_eq!(due(Wake::After(Duration::from_nanos(5))), Some(1_000_250_005));
        assert_eq!(due(Wake::EveryNext(Duration::from_millis(250))), Some(1_250_000_000));
        assert_eq!(due(Wake::EveryNext(Duration::ZERO)), Some(1_001_000_000));
        assert_eq!(due(Wake::EveryNext(Duration::MAX)), Some(u64::MAX));
        assert_eq!(due(Wake::After(Duration::MAX)), Some(u64::MAX));
        assert_eq!(due(Wake::AtMonotonicNs(3)), Some(3));
        assert_eq!(
            Wake::EveryNext(Duration::from_secs(1)).due_ns(None, 2_000_000_000),
            Some(3_000_000_000),
            "now is not next"
        );
    }
}
