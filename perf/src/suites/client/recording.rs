//! A lap of ours: a session in this process, its threads, and what the trace has.

use super::events::{Kind, RECORDED, Race, race};
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
const RING_KB: u32 = 64 << 10;

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
        let (written, has_ends) = (kind.written(threads, options), matches!(kind, Kind::Slice | Kind::Span));
        let (Race { lap, cpu_ns }, contents) =
            self.session(written, has_ends, || race(kind, threads, counts))?;
        Ok(Outcome { lap, cpu_ns: Some(cpu_ns), written, contents })
    }

    /// A session in which `work` writes so many events, slices as one: its result, and the trace.
    pub(super) fn session<T>(
        &mut self,
        written: u64,
        has_ends: bool,
        work: impl FnOnce() -> T,
    ) -> Result<(T, Contents), WrongAnswer> {
        let dropped_before = self.backend.arbiter_stats().packets_dropped;
        let config = config().encode_to_vec();
        let session =
            self.backend.start_session(&config, Sink::Buffers).map_err(|error| error.to_string())?;
        if !session.wait_all_started(Duration::from_secs(10)) {
            return Err("the session did not start".into());
        }
        let result = work();
        self.end(&session)?;
        let contents = Contents::of(&self.trace)?;
        let dropped = self.backend.arbiter_stats().packets_dropped - dropped_before;
        contents.check(written, has_ends, Some(dropped))?;
        Ok((result, contents))
    }

    fn end(&mut self, session: &Session) -> Result<(), WrongAnswer> {
        session.stop();
        let end = session.wait();
        if let Some(error) = &end.error {
            return Err(error.clone());
        }
        self.trace.clear();
        while session.read(&mut self.trace) {}
        Ok(())
    }
}

/// A session that records.
pub(super) fn config() -> TraceConfig {
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
        buffers: vec![BufferConfig { size_kb: Some(RING_KB), ..Default::default() }],
        data_sources: vec![SourceConfig { config: Some(source), ..Default::default() }],
        ..Default::default()
    }
}
