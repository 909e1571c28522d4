//! What the tracing service says of the session: its config, its statistics, the events of its
//! life.

use std::collections::BTreeMap;

use watershed_wire::config::TraceConfig;
use watershed_wire::protos::tracing_service_event::{DataSources, EventType};
use watershed_wire::protos::{SystemInfo, TraceProvenance, TraceStats, TraceUuid, TracingServiceEvent};

/// Slow data sources whose names are kept.
const SLOW_SOURCES_MAX: usize = 64;

/// Sequences whose home is kept; a hostile trace names any number of them.
const HOMES_MAX: usize = 1 << 16;

/// Where a sequence lies and whose it is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Home {
    pub(super) buffer: Option<u32>,
    pub(super) producer_id: Option<i32>,
}

#[derive(Debug, Default)]
pub(super) struct Session {
    pub(super) config: Option<TraceConfig>,
    /// The last one: counts since the session's beginning.
    pub(super) stats: Option<TraceStats>,
    /// It was made when the session had ended, so it has everything.
    pub(super) stats_are_final: bool,
    pub(super) system_info: Option<SystemInfo>,
    pub(super) uuid: Option<TraceUuid>,
    pub(super) homes: BTreeMap<u32, Home>,
    pub(super) events: Events,
    pub(super) sync_markers: u64,
}

/// What happened, how often, and in which order.
#[derive(Debug, Default)]
pub(super) struct Events {
    pub(super) seen: u64,
    pub(super) tracing_started: u64,
    pub(super) all_data_sources_started: u64,
    pub(super) flushes_started: u64,
    pub(super) flushes_done: u64,
    pub(super) tracing_disabled: u64,
    pub(super) reads_completed: u64,
    pub(super) clones_started: u64,
    /// Whether a read was completed after the last `tracing_disabled`: only then is everything in
    /// the file.
    pub(super) read_completed_after_disabled: bool,
    /// Whether somebody was late for the last flush that names who is: one before the end, or for a
    /// clone.
    pub(super) last_flush_was_late: bool,
    /// `producer/data source` of those that were late.
    pub(super) slow_to_start: Vec<String>,
    pub(super) slow_to_flush: Vec<String>,
}

impl Session {
    /// Data sources of the config that nobody has offered, by the last statistics. Other services
    /// than ours do not name them; what they say is whether there was any instance since they
    /// began.
    pub(super) fn not_offered(&self) -> Vec<String> {
        match &self.stats {
            Some(stats) if stats.commit_stats.is_none() && stats.data_sources_seen == Some(0) => {
                self.data_sources()
            }
            Some(stats) => stats.data_sources_not_offered.clone(),
            None => Vec::new(),
        }
    }

    /// What the config asks for.
    pub(super) fn data_sources(&self) -> Vec<String> {
        let sources = self.config.iter().flat_map(|config| &config.view().data_sources);
        let configs = sources.filter_map(|source| source.config.as_ref());
        configs.map(|config| config.name().to_owned()).collect()
    }

    pub(super) fn take_stats(&mut self, stats: TraceStats) {
        for writer in &stats.writer_stats {
            // Sequence ids have 32 bits everywhere else.
            let id = u32::try_from(writer.sequence_id()).ok();
            if let Some(home) = id.and_then(|id| self.home(id)) {
                home.buffer = writer.buffer;
            }
        }
        self.stats = Some(stats);
        self.stats_are_final = self.events.tracing_disabled > 0 || self.events.clones_started > 0;
    }

    pub(super) fn take_provenance(&mut self, provenance: &TraceProvenance) {
        for (index, buffer) in (0..).zip(&provenance.buffers) {
            for sequence in &buffer.sequences {
                if let Some(home) = self.home(sequence.id()) {
                    home.buffer = Some(index);
                    home.producer_id = sequence.producer_id;
                }
            }
        }
    }

    fn home(&mut self, sequence_id: u32) -> Option<&mut Home> {
        let room = self.homes.len() < HOMES_MAX;
        match room || self.homes.contains_key(&sequence_id) {
            true => Some(self.homes.entry(sequence_id).or_default()),
            false => None,
        }
    }

    pub(super) fn take_event(&mut self, event: TracingServiceEvent) {
        if let Some(event) = event.event_type {
            self.events.take(event);
        }
    }
}

impl Events {
    fn take(&mut self, event: EventType) {
        self.seen += 1;
        match event {
            EventType::TracingStarted(_) => self.tracing_started += 1,
            EventType::AllDataSourcesStarted(_) => self.all_data_sources_started += 1,
            EventType::FlushStarted(_) => {
                self.flushes_started += 1;
                self.last_flush_was_late = false;
            }
            EventType::AllDataSourcesFlushed(_) => self.flushes_done += 1,
            EventType::TracingDisabled(_) => {
                self.tracing_disabled += 1;
                self.read_completed_after_disabled = false;
            }
            EventType::ReadTracingBuffersCompleted(_) => {
                self.reads_completed += 1;
                self.read_completed_after_disabled = self.tracing_disabled > 0;
            }
            EventType::SlowStartingDataSources(sources) => keep(&mut self.slow_to_start, sources),
            EventType::LastFlushSlowDataSources(sources) => {
                self.last_flush_was_late = true;
                keep(&mut self.slow_to_flush, sources);
            }
            EventType::CloneStarted(_) => self.clones_started += 1,
            EventType::SeizedForBugreport(_) | EventType::BufferCloned(_) => {}
        }
    }
}

fn keep(names: &mut Vec<String>, sources: DataSources) {
    for source in sources.data_source {
        if names.len() < SLOW_SOURCES_MAX {
            names.push(format!("{}/{}", source.producer_name(), source.data_source_name()));
        }
    }
}
