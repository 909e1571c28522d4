//! A lap of ours: a session in this process, its threads, and what the trace has.

use super::events::{Counts, Kind, RECORDED, Race, race};
use super::tally::Outcome;
use super::trace::Contents;
use crate::measure::{Options, WrongAnswer};
use prost::Message as _;
use std::time::Duration;
use watershed_client::in_process::{InProcess, InProcessOptions, Session, Sink};
use watershed_client::track_event;
use watershed_wire::protos::trace_config::{BufferConfig, DataSource as SourceConfig};
use watershed_wire::protos::{DataSourceConfig, TraceConfig, TrackEventConfig};

/// Larger than what any lap writes: nothing is overwritten.
pub(super) const RING_KB: u32 = 64 << 10;
/// Likewise, and instants that fill it.
const SMALL_RING_KB: u32 = 8 << 10;
const FILLING: u64 = 1_000_000;

const TIMEOUT: Duration = Duration::from_secs(10);

/// The backend of a program, for one session after the other.
pub(super) struct Program {
    backend: InProcess,
    /// Kept from lap to lap.
    trace: Vec<u8>,
}

impl Program {
    /// A backend with its defaults, which has track events.
    pub(super) fn start() -> Result<Self, WrongAnswer> {
        let backend = InProcess::new(InProcessOptions::default()).map_err(|error| error.to_string())?;
        backend.register(track_event::data_source());
        Ok(Self { backend, trace: Vec::new() })
    }

    /// A session in which so many threads run the loop.
    pub(super) fn lap(
        &mut self,
        kind: Kind,
        threads: u64,
        options: &Options,
    ) -> Result<Outcome, WrongAnswer> {
        let counts = kind.counts(threads, options);
        let (written, has_ends) = (kind.written(threads, options), kind.has_ends());
        let (Race { lap, cpu_ns }, contents) =
            self.session(written, has_ends, || race(kind, threads, counts))?;
        Ok(Outcome { lap, cpu_ns: Some(cpu_ns), written, contents })
    }

    /// Likewise instants, in a ring that was filled and read before: its memory is ready, as it is
    /// after the first lap around any ring.
    pub(super) fn lap_in_ready_ring(
        &mut self,
        threads: u64,
        options: &Options,
    ) -> Result<Outcome, WrongAnswer> {
        let (kind, session) = (Kind::Instant, self.start_session(SMALL_RING_KB)?);
        race(kind, threads, Counts { warm: 0, each: options.size(FILLING, 1000) / threads });
        if !session.flush_and_wait(TIMEOUT) {
            return Err("the session was not flushed".into());
        }
        self.read(&session);
        let (written, dropped_before) = (kind.written(threads, options), self.dropped());
        let Race { lap, cpu_ns } = race(kind, threads, kind.counts(threads, options));
        let contents = self.end(&session, written, kind.has_ends(), dropped_before)?;
        Ok(Outcome { lap, cpu_ns: Some(cpu_ns), written, contents })
    }

    /// A session in which `work` writes so many events, slices as one: its result, and the trace.
    pub(super) fn session<T>(
        &mut self,
        written: u64,
        has_ends: bool,
        work: impl FnOnce() -> T,
    ) -> Result<(T, Contents), WrongAnswer> {
        let (dropped_before, session) = (self.dropped(), self.start_session(RING_KB)?);
        let result = work();
        let contents = self.end(&session, written, has_ends, dropped_before)?;
        Ok((result, contents))
    }

    fn start_session(&self, ring_kb: u32) -> Result<Session, WrongAnswer> {
        let config = config(ring_kb).encode_to_vec();
        let session =
            self.backend.start_session(&config, Sink::Buffers).map_err(|error| error.to_string())?;
        session.wait_all_started(TIMEOUT).then_some(session).ok_or("the session did not start".into())
    }

    fn dropped(&self) -> u64 {
        self.backend.arbiter_stats().packets_dropped
    }

    fn read(&mut self, session: &Session) {
        self.trace.clear();
        while session.read(&mut self.trace) {}
    }

    /// Ends a session: what was not read of it, which must be all that was written.
    fn end(
        &mut self,
        session: &Session,
        written: u64,
        has_ends: bool,
        dropped_before: u64,
    ) -> Result<Contents, WrongAnswer> {
        session.stop();
        let end = session.wait();
        if let Some(error) = &end.error {
            return Err(error.clone());
        }
        self.read(session);
        let contents = Contents::of(&self.trace)?;
        contents.check(written, has_ends, Some(self.dropped() - dropped_before))?;
        Ok(contents)
    }
}

/// A session that records.
pub(super) fn config(ring_kb: u32) -> TraceConfig {
    let events = TrackEventConfig {
        enabled_categories: vec![RECORDED.into()],
        disabled_categories: vec!["*".into()],
        ..Default::default()
    };
    let source = DataSourceConfig {
        name: Some(track_event::NAME.into()),
        track_event_config: Some(events),
        ..Default::default()
    };
    TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(ring_kb), ..Default::default() }],
        data_sources: vec![SourceConfig { config: Some(source), ..Default::default() }],
        ..Default::default()
    }
}
