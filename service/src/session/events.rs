//! Points in the life of a session that its trace tells: kept with their time, written and
//! forgotten at the next read.

use std::collections::VecDeque;

use watershed_wire::protos;
use watershed_wire::protos::tracing_service_event::{DataSources, EventType, data_sources};

use crate::clock::ClockReadings;
use crate::limits::FLUSH_EVENTS_MAX;

/// Names of a producer and one of its data sources.
type SourceNames = (String, String);

/// Flushes are many: of the two events about them the last [`FLUSH_EVENTS_MAX`] are kept. Of all
/// others the last one is.
#[derive(Clone, Debug, Default)]
pub(crate) struct LifecycleEvents {
    tracing_started: Option<u64>,
    all_data_sources_started: Option<u64>,
    slow_starting: Option<(u64, Vec<SourceNames>)>,
    flush_started: VecDeque<u64>,
    all_data_sources_flushed: VecDeque<u64>,
    slow_flush: Option<(u64, Vec<SourceNames>)>,
    tracing_disabled: Option<u64>,
    clone_started: Option<u64>,
    /// By index of the buffer.
    buffers_cloned: Vec<u64>,
}

impl LifecycleEvents {
    pub(crate) fn tracing_started(&mut self, now: &ClockReadings) {
        self.tracing_started = Some(now.boottime_ns);
    }

    pub(crate) fn all_data_sources_started(&mut self, now: &ClockReadings) {
        self.all_data_sources_started = Some(now.boottime_ns);
    }

    pub(crate) fn slow_starting(&mut self, now: &ClockReadings, names: Vec<SourceNames>) {
        self.slow_starting = Some((now.boottime_ns, names));
    }

    pub(crate) fn flush_started(&mut self, now: &ClockReadings) {
        keep_last(&mut self.flush_started, now.boottime_ns);
    }

    pub(crate) fn all_data_sources_flushed(&mut self, now: &ClockReadings) {
        keep_last(&mut self.all_data_sources_flushed, now.boottime_ns);
    }

    pub(crate) fn slow_flush(&mut self, now: &ClockReadings, names: Vec<SourceNames>) {
        self.slow_flush = Some((now.boottime_ns, names));
    }

    /// A new flush begins: producers that were late for the last one are forgotten.
    pub(crate) fn forget_slow_flush(&mut self) {
        self.slow_flush = None;
    }

    pub(crate) fn tracing_disabled(&mut self, now: &ClockReadings) {
        self.tracing_disabled = Some(now.boottime_ns);
    }

    /// The session is a clone: when that was asked for, and when each buffer was taken.
    pub(crate) fn cloned(&mut self, started_ns: u64, buffers_ns: &[u64]) {
        self.clone_started = Some(started_ns);
        self.buffers_cloned = buffers_ns.to_vec();
    }

    /// Everything that was kept, sorted by time. Of events of one time those that come first in a
    /// session's life come first.
    pub(crate) fn drain(&mut self) -> Vec<(u64, protos::TracingServiceEvent)> {
        let taken = std::mem::take(self);
        let mut events: Vec<(u64, EventType)> = Vec::new();
        events.extend(taken.tracing_started.map(|at| (at, EventType::TracingStarted(true))));
        events.extend(taken.all_data_sources_started.map(|at| (at, EventType::AllDataSourcesStarted(true))));
        events.extend(
            taken
                .slow_starting
                .map(|(at, names)| (at, EventType::SlowStartingDataSources(data_sources(names)))),
        );
        events.extend(taken.flush_started.into_iter().map(|at| (at, EventType::FlushStarted(true))));
        events.extend(
            taken
                .slow_flush
                .map(|(at, names)| (at, EventType::LastFlushSlowDataSources(data_sources(names)))),
        );
        events.extend(
            taken.all_data_sources_flushed.into_iter().map(|at| (at, EventType::AllDataSourcesFlushed(true))),
        );
        events.extend(taken.clone_started.map(|at| (at, EventType::CloneStarted(true))));
        let buffers = (0u32..).zip(taken.buffers_cloned);
        events.extend(buffers.map(|(index, at)| (at, EventType::BufferCloned(index))));
        events.extend(taken.tracing_disabled.map(|at| (at, EventType::TracingDisabled(true))));
        events.sort_by_key(|(at, _)| *at);
        events
            .into_iter()
            .map(|(at, event)| (at, protos::TracingServiceEvent { event_type: Some(event) }))
            .collect()
    }
}

fn keep_last(times: &mut VecDeque<u64>, at: u64) {
    if times.len() == FLUSH_EVENTS_MAX {
        times.pop_front();
    }
    times.push_back(at);
}

fn data_sources(names: Vec<SourceNames>) -> DataSources {
    let entry = |(producer_name, data_source_name)| data_sources::DataSource {
        producer_name: Some(producer_name),
        data_source_name: Some(data_source_name),
    };
    DataSources { data_source: names.into_iter().map(entry).collect() }
}
