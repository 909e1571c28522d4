//! What is said of one session, and of all sessions of a file together.

use serde::Serialize;
use watershed_wire::protos::trace_stats::{CommitStats, FinalFlushOutcome};
use watershed_wire::reader::Damage;

use super::clocks;
use super::commands::Command;
use super::rows::{self, Buffer, Sequence};
use super::survey::Survey;
use super::top::Scheduling;
use super::verdict::{self, Loss, Verdict};

/// A session that is told apart from others in its file.
#[derive(Debug, Serialize)]
pub(super) struct OneSession {
    /// Where in the file it begins, and how far it goes.
    pub(super) offset_bytes: u64,
    pub(super) size_bytes: u64,
    #[serde(flatten)]
    pub(super) part: Part,
}

/// What is said of packets that belong together.
#[derive(Debug, Serialize)]
pub(super) struct Part {
    pub(super) completeness: Completeness,
    pub(super) losses: Vec<Loss>,
    pub(super) since_service_began: Option<ServiceCounts>,
    pub(super) time: Time,
    pub(super) session: Session,
    pub(super) packets: Packets,
    pub(super) sequences: Vec<Sequence>,
    pub(super) buffers: Vec<Buffer>,
    /// With `--top`; of several sessions each has its own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) scheduling: Option<Scheduling>,
}

/// Counters of the statistics that also speak of other sessions of the same service.
#[derive(Debug, Clone, Serialize)]
pub(super) struct ServiceCounts {
    pub(super) chunks_discarded: u64,
    pub(super) patches_discarded: u64,
    /// Not in the traces of other services.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) commits: Option<Commits>,
}

/// How commits fared on their way into the buffers.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Commits {
    handed_back: u64,
    producer_waits: u64,
    producer_wait_ns_sum: u64,
    producer_wait_ns_max: u64,
    /// Not of a service without workers.
    worker_turns: Option<u64>,
    latency_ns_sum: Option<u64>,
    latency_ns_max: Option<u64>,
}

impl Commits {
    fn new(stats: &CommitStats) -> Self {
        Commits {
            handed_back: stats.handed_back(),
            producer_waits: stats.producer_waits(),
            producer_wait_ns_sum: stats.producer_wait_ns_sum(),
            producer_wait_ns_max: stats.producer_wait_ns_max(),
            worker_turns: stats.worker_turns,
            latency_ns_sum: stats.latency_ns_sum,
            latency_ns_max: stats.latency_ns_max,
        }
    }
}

#[derive(Debug, Serialize)]
pub(super) struct Completeness {
    pub(super) verdict: Verdict,
    pub(super) reasons: Vec<String>,
    /// Whether the trace has statistics, without which `losses` only has what shows on sequences.
    pub(super) has_statistics: bool,
    /// Whether they were made when the session had ended; older ones do not speak of the rest.
    pub(super) statistics_are_final: bool,
    pub(super) final_flush: Option<&'static str>,
    pub(super) sync_markers: u64,
    pub(super) tracing_started: u64,
    pub(super) all_data_sources_started: u64,
    pub(super) flushes_started: u64,
    pub(super) flushes_done: u64,
    pub(super) tracing_disabled: u64,
    pub(super) reads_completed: u64,
    pub(super) slow_to_start: Vec<String>,
    pub(super) slow_to_flush: Vec<String>,
    pub(super) undecodable_packets: u64,
    /// Where the first of them is.
    pub(super) undecodable_offset_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
pub(super) struct Time {
    pub(super) clock: String,
    pub(super) first_ns: Option<u64>,
    pub(super) last_ns: Option<u64>,
    pub(super) duration_ns: Option<u64>,
    /// Wall clock of `first_ns`, since 1970.
    pub(super) first_unix_ns: Option<u64>,
    pub(super) packets_unplaced: u64,
}

#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct Session {
    pub(super) uuid: Option<String>,
    pub(super) name: Option<String>,
    pub(super) service_version: Option<String>,
    pub(super) system: Option<String>,
    pub(super) cpus: Option<u32>,
    pub(super) data_sources: Vec<String>,
    /// Those of them that nobody has offered.
    pub(super) data_sources_not_offered: Vec<String>,
    pub(super) duration_ms: Option<u32>,
    pub(super) commands: Vec<Command>,
    pub(super) config: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Packets {
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) compressed_packets: u64,
    pub(super) by_kind: Vec<Kind>,
}

#[derive(Debug, Clone, Serialize)]
pub(super) struct Kind {
    pub(super) kind: String,
    pub(super) field: Option<u32>,
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl OneSession {
    /// `damage` is what ends it, if anything does.
    pub(super) fn new(offset_bytes: u64, size_bytes: u64, survey: Survey, damage: Option<&Damage>) -> Self {
        OneSession { offset_bytes, size_bytes, part: Part::new(survey, size_bytes, damage) }
    }
}

impl Part {
    fn new(mut survey: Survey, size_bytes: u64, damage: Option<&Damage>) -> Self {
        let scheduling = survey.top.take().map(|top| top.finish());
        let survey = &survey;
        let stats = survey.session.stats.as_ref();
        Part {
            scheduling,
            completeness: Completeness::new(survey, size_bytes, damage),
            losses: verdict::losses(survey),
            since_service_began: stats.map(|stats| ServiceCounts {
                chunks_discarded: stats.chunks_discarded(),
                patches_discarded: stats.patches_discarded(),
                commits: stats.commit_stats.as_ref().map(Commits::new),
            }),
            time: Time::new(survey),
            session: Session::new(survey),
            packets: Packets::new(survey),
            sequences: rows::sequences(survey),
            buffers: rows::buffers(survey),
        }
    }
}

impl Completeness {
    fn new(survey: &Survey, size_bytes: u64, damage: Option<&Damage>) -> Self {
        let (verdict, reasons) = verdict::judge(survey, size_bytes, damage);
        let session = &survey.session;
        let events = &session.events;
        Completeness {
            verdict,
            reasons,
            has_statistics: session.stats.is_some(),
            statistics_are_final: session.stats_are_final,
            final_flush: verdict::final_flush(survey).map(|outcome| match outcome {
                FinalFlushOutcome::FinalFlushFailed => "failed",
                _ => "succeeded",
            }),
            sync_markers: session.sync_markers,
            tracing_started: events.tracing_started,
            all_data_sources_started: events.all_data_sources_started,
            flushes_started: events.flushes_started,
            flushes_done: events.flushes_done,
            tracing_disabled: events.tracing_disabled,
            reads_completed: events.reads_completed,
            slow_to_start: events.slow_to_start.clone(),
            slow_to_flush: events.slow_to_flush.clone(),
            undecodable_packets: survey.undecodable,
            undecodable_offset_bytes: survey.undecodable_offset_bytes,
        }
    }
}

impl Time {
    fn new(survey: &Survey) -> Self {
        let (first_ns, last_ns) = (survey.span.first_ns(), survey.span.last_ns());
        Time {
            clock: clocks::name(survey.clocks.primary()),
            first_ns,
            last_ns,
            duration_ns: first_ns.zip(last_ns).map(|(first, last)| last - first),
            first_unix_ns: first_ns.and_then(|first| survey.clocks.wall_ns(first)),
            packets_unplaced: survey.unplaced,
        }
    }
}

impl Session {
    fn new(survey: &Survey) -> Self {
        let session = &survey.session;
        let config = session.config.as_ref();
        let view = config.map(|config| config.view());
        let info = session.system_info.as_ref();
        let system = info.and_then(|info| info.utsname.as_ref()).map(|name| {
            let parts = [name.sysname(), name.release(), name.machine()];
            parts.join(" ").trim().to_owned()
        });
        Session {
            uuid: session.uuid.as_ref().map(|uuid| format!("{:016x}{:016x}", uuid.msb(), uuid.lsb())),
            name: view.and_then(|view| view.unique_session_name.clone()),
            service_version: info.and_then(|info| info.tracing_service_version.clone()),
            system,
            cpus: info.and_then(|info| info.num_cpus),
            data_sources: session.data_sources(),
            data_sources_not_offered: session.not_offered(),
            duration_ms: view.and_then(|view| view.duration_ms),
            commands: survey.commands.list().to_vec(),
            config: config.map(|config| config.to_text()),
        }
    }
}

impl Packets {
    fn new(survey: &Survey) -> Self {
        let by_kind = survey.kinds.sorted().into_iter().map(|(kind, tally)| Kind {
            kind: kind.name(),
            field: kind.number(),
            packets: tally.packets,
            bytes: tally.bytes,
        });
        Packets {
            count: survey.all.packets,
            bytes: survey.all.bytes,
            compressed_packets: survey.compressed,
            by_kind: by_kind.collect(),
        }
    }
}
