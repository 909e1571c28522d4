//! The result of a survey, in the shape of the JSON that is promised: fields may be added, none
//! changes its meaning or goes away while `format_version` stays.

use serde::Serialize;
use watershed_wire::protos::trace_config::buffer_config::FillPolicy;
use watershed_wire::protos::trace_stats::{BufferStats, FinalFlushOutcome};
use watershed_wire::reader::Damage;

use super::clocks;
use super::sequences::loss_reason_names;
use super::session::Home;
use super::survey::Survey;
use super::tally::{Span, Tally};
use super::verdict::{self, Loss, Verdict};

#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) format_version: u32,
    pub(super) file: File,
    pub(super) completeness: Completeness,
    /// `None` if the trace has no statistics: then nobody knows.
    pub(super) losses: Vec<Loss>,
    pub(super) time: Time,
    pub(super) session: Session,
    pub(super) packets: Packets,
    pub(super) sequences: Vec<Sequence>,
    pub(super) buffers: Vec<Buffer>,
}

#[derive(Debug, Serialize)]
pub(super) struct File {
    pub(super) name: String,
    /// Bytes that were read, damaged ones included.
    pub(super) read_bytes: u64,
    /// Bytes before the damage; all of them without one.
    pub(super) intact_bytes: u64,
    pub(super) damage: Option<DamageReport>,
}

#[derive(Debug, Serialize)]
pub(super) struct DamageReport {
    pub(super) offset_bytes: u64,
    pub(super) offset_inflated_bytes: Option<u64>,
    pub(super) message: String,
}

#[derive(Debug, Serialize)]
pub(super) struct Completeness {
    pub(super) verdict: Verdict,
    pub(super) reasons: Vec<String>,
    /// Whether the trace has statistics, without which `losses` only has what shows on sequences.
    pub(super) has_statistics: bool,
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

#[derive(Debug, Serialize)]
pub(super) struct Session {
    pub(super) uuid: Option<String>,
    pub(super) name: Option<String>,
    pub(super) service_version: Option<String>,
    pub(super) system: Option<String>,
    pub(super) cpus: Option<u32>,
    pub(super) data_sources: Vec<String>,
    pub(super) duration_ms: Option<u32>,
    pub(super) config: Option<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Packets {
    pub(super) count: u64,
    pub(super) bytes: u64,
    pub(super) compressed_packets: u64,
    pub(super) by_kind: Vec<Kind>,
}

#[derive(Debug, Serialize)]
pub(super) struct Kind {
    pub(super) kind: String,
    pub(super) field: Option<u32>,
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

#[derive(Debug, Serialize)]
pub(super) struct Sequence {
    /// `None` for packets of no sequence, and for the sum of sequences beyond the limit.
    pub(super) id: Option<u32>,
    pub(super) machine_id: Option<u32>,
    pub(super) uid: Option<i32>,
    pub(super) pid: Option<i32>,
    pub(super) process: Option<String>,
    pub(super) producer_id: Option<i32>,
    pub(super) buffer: Option<u32>,
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) first_ns: Option<u64>,
    pub(super) last_ns: Option<u64>,
    pub(super) begins_here: bool,
    pub(super) losses: u64,
    pub(super) loss_reasons: Vec<String>,
}

#[derive(Debug, Serialize)]
pub(super) struct Buffer {
    pub(super) index: usize,
    pub(super) name: Option<String>,
    pub(super) fill_policy: Option<&'static str>,
    pub(super) size_bytes: u64,
    /// Bytes written over the session, headers and padding included.
    pub(super) written_bytes: u64,
    /// How much of the buffer was in use at its fullest.
    pub(super) fill_percent: Option<f64>,
    pub(super) wraps: u64,
    pub(super) read_bytes: u64,
    pub(super) overwritten_bytes: u64,
    pub(super) chunks_written: u64,
    pub(super) chunks_read: u64,
    pub(super) chunks_overwritten: u64,
    pub(super) chunks_discarded: u64,
    pub(super) patches_failed: u64,
    pub(super) abi_violations: u64,
    pub(super) writer_packet_losses: u64,
}

/// How the file was read.
pub(super) struct Source {
    pub(super) name: String,
    pub(super) read_bytes: u64,
    pub(super) compressed_packets: u64,
    pub(super) damage: Option<Damage>,
}

impl Report {
    pub(super) fn new(survey: &Survey, source: &Source) -> Self {
        Report {
            format_version: 1,
            file: File::new(source),
            completeness: Completeness::new(survey, source.damage.as_ref()),
            losses: verdict::losses(survey),
            time: Time::new(survey),
            session: Session::new(survey),
            packets: Packets::new(survey, source),
            sequences: sequences(survey),
            buffers: buffers(survey),
        }
    }
}

impl File {
    fn new(source: &Source) -> Self {
        let damage = source.damage.as_ref();
        File {
            name: source.name.clone(),
            read_bytes: source.read_bytes,
            intact_bytes: damage.map_or(source.read_bytes, |damage| damage.offset_bytes),
            damage: damage.map(|damage| DamageReport {
                offset_bytes: damage.offset_bytes,
                offset_inflated_bytes: damage.offset_inflated_bytes,
                message: damage.kind.to_string(),
            }),
        }
    }
}

impl Completeness {
    fn new(survey: &Survey, damage: Option<&Damage>) -> Self {
        let (verdict, reasons) = verdict::judge(survey, damage);
        let session = &survey.session;
        let events = &session.events;
        Completeness {
            verdict,
            reasons,
            has_statistics: session.stats.is_some(),
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
            data_sources: view.map_or_else(Vec::new, |view| {
                let configs = view.data_sources.iter().filter_map(|source| source.config.as_ref());
                configs.map(|config| config.name().to_owned()).collect()
            }),
            duration_ms: view.and_then(|view| view.duration_ms),
            config: config.map(|config| config.to_text()),
        }
    }
}

impl Packets {
    fn new(survey: &Survey, source: &Source) -> Self {
        let by_kind = survey.kinds.sorted().into_iter().map(|(kind, tally)| Kind {
            kind: kind.name(),
            field: kind.number(),
            packets: tally.packets,
            bytes: tally.bytes,
        });
        Packets {
            count: survey.all.packets,
            bytes: survey.all.bytes,
            compressed_packets: source.compressed_packets,
            by_kind: by_kind.collect(),
        }
    }
}

fn sequences(survey: &Survey) -> Vec<Sequence> {
    let one = |(id, sequence): (u32, &super::sequences::Sequence)| {
        let home = survey.session.homes.get(&id).copied().unwrap_or_default();
        let process = sequence.pid.and_then(|pid| survey.processes.name(sequence.machine_id, pid));
        Sequence {
            id: Some(id),
            machine_id: sequence.machine_id,
            uid: sequence.uid,
            pid: sequence.pid,
            process: process.map(str::to_owned),
            begins_here: sequence.begins_here,
            losses: sequence.losses,
            loss_reasons: loss_reason_names(sequence.loss_reasons),
            ..Sequence::of_tally(sequence.tally, sequence.span, home)
        }
    };
    let mut sequences: Vec<Sequence> = survey.sequences.sorted().into_iter().map(one).collect();
    for (name, tally) in
        [("(no sequence)", survey.sequences.without), ("(other sequences)", survey.sequences.others)]
    {
        if tally.packets > 0 {
            sequences.push(Sequence {
                process: Some(name.to_owned()),
                ..Sequence::of_tally(tally, Span::default(), Home::default())
            });
        }
    }
    sequences
}

impl Sequence {
    fn of_tally(tally: Tally, span: Span, home: Home) -> Self {
        Sequence {
            id: None,
            machine_id: None,
            uid: None,
            pid: None,
            process: None,
            producer_id: home.producer_id,
            buffer: home.buffer,
            packets: tally.packets,
            bytes: tally.bytes,
            first_ns: span.first_ns(),
            last_ns: span.last_ns(),
            begins_here: false,
            losses: 0,
            loss_reasons: Vec::new(),
        }
    }
}

/// The buffers of the statistics; without them those of the config, with nothing known of their
/// use.
fn buffers(survey: &Survey) -> Vec<Buffer> {
    let session = &survey.session;
    let configs = session.config.as_ref().map_or(&[][..], |config| &config.view().buffers);
    let stats = session.stats.as_ref().map_or(&[][..], |stats| &stats.buffer_stats);
    let one = |index: usize| {
        let config = configs.get(index);
        let stats = stats.get(index);
        let mut buffer = Buffer::new(index, stats.unwrap_or(&BufferStats::default()));
        if let Some(config) = config {
            buffer.name = config.name.clone();
            buffer.fill_policy = Some(match config.fill_policy() {
                FillPolicy::Discard => "discard",
                FillPolicy::Unspecified | FillPolicy::RingBuffer => "ring_buffer",
            });
            if stats.is_none() {
                buffer.size_bytes = u64::from(config.size_kb()) * 1024;
                buffer.fill_percent = None;
            }
        }
        buffer
    };
    (0..configs.len().max(stats.len())).map(one).collect()
}

impl Buffer {
    fn new(index: usize, stats: &BufferStats) -> Self {
        let size_bytes = stats.buffer_size();
        // The write position only grows until it wraps, and a buffer that has wrapped was full.
        let used = stats.bytes_written().saturating_add(stats.padding_bytes_written());
        let fullest = match stats.write_wrap_count() {
            0 => used.min(size_bytes),
            _ => size_bytes,
        };
        Buffer {
            index,
            name: None,
            fill_policy: None,
            size_bytes,
            written_bytes: stats.bytes_written(),
            fill_percent: (size_bytes > 0).then(|| fullest as f64 * 100.0 / size_bytes as f64),
            wraps: stats.write_wrap_count(),
            read_bytes: stats.bytes_read(),
            overwritten_bytes: stats.bytes_overwritten(),
            chunks_written: stats.chunks_written(),
            chunks_read: stats.chunks_read(),
            chunks_overwritten: stats.chunks_overwritten(),
            chunks_discarded: stats.chunks_discarded(),
            patches_failed: stats.patches_failed(),
            abi_violations: stats.abi_violations(),
            writer_packet_losses: stats.trace_writer_packet_loss(),
        }
    }
}
