//! Rows of the report: sequences and buffers.

use serde::Serialize;
use watershed_wire::protos::trace_config::buffer_config::FillPolicy;
use watershed_wire::protos::trace_stats::BufferStats;

use super::sequences::loss_reason_names;
use super::session::Home;
use super::survey::Survey;
use super::tally::{Span, Tally};

#[derive(Debug, Clone, Serialize)]
pub(super) struct Sequence {
    /// Number of its session, from 1, in a file with several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<usize>,
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

#[derive(Debug, Clone, Serialize)]
pub(super) struct Buffer {
    /// Number of its session, from 1, in a file with several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<usize>,
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

pub(super) fn sequences(survey: &Survey) -> Vec<Sequence> {
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
            session: None,
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
pub(super) fn buffers(survey: &Survey) -> Vec<Buffer> {
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
            session: None,
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
