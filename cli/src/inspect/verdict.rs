//! Whether a trace is complete, and what its statistics say was lost.

use serde::Serialize;
use watershed_wire::protos::trace_config::buffer_config::FillPolicy;
use watershed_wire::protos::trace_stats::FinalFlushOutcome;
use watershed_wire::reader::Damage;

use super::kernel::LossOfCpu;
use super::sequences::loss_reason_names;
use super::survey::Survey;

/// Whether the trace has everything from the session's beginning to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Verdict {
    /// The service says that it wrote everything, and everything is here.
    Complete,
    /// Something is missing; `reasons` say what.
    Incomplete,
    /// The trace has no word of a service about it.
    Unknown,
}

/// The verdict with its reasons, one sentence each. The session takes `size_bytes` of its file.
pub(super) fn judge(survey: &Survey, size_bytes: u64, damage: Option<&Damage>) -> (Verdict, Vec<String>) {
    let mut missing = Vec::new();
    if let Some(damage) = damage {
        missing.push(format!("damaged at {damage}"));
    }
    if let Some(offset) = survey.undecodable_offset_bytes {
        missing.push(format!(
            "the contents of {} packets cannot be decoded, the first at byte {offset}",
            survey.undecodable
        ));
    }
    if final_flush_failed(survey) {
        missing.push("the final flush failed: not every producer handed in its last data".to_owned());
    }
    let unknown = match silence(survey) {
        Some(reason) => Some(reason),
        None => {
            missing.extend(missing_events(survey, size_bytes));
            None
        }
    };
    match unknown {
        _ if !missing.is_empty() => (Verdict::Incomplete, missing),
        Some(reason) => (Verdict::Unknown, vec![reason]),
        None => (Verdict::Complete, missing),
    }
}

/// Why the trace has no events of a service, if it is not because they are missing.
fn silence(survey: &Survey) -> Option<String> {
    let session = &survey.session;
    if session.events.seen > 0 {
        return None;
    }
    let builtin = session.config.as_ref().and_then(|config| config.view().builtin_data_sources.as_ref());
    if builtin.is_some_and(|builtin| builtin.disable_service_events()) {
        return Some("the config turned off the service's events".to_owned());
    }
    let spoke = session.config.is_some() || session.stats.is_some() || session.sync_markers > 0;
    (!spoke).then(|| "no packet of a tracing service; another tool may have written this trace".to_owned())
}

fn missing_events(survey: &Survey, size_bytes: u64) -> Vec<String> {
    let events = &survey.session.events;
    let mut missing = Vec::new();
    // A clone begins in the middle of its session and is whole nevertheless.
    if events.tracing_started == 0 && events.clones_started == 0 {
        missing.push("no beginning: the event tracing_started is missing".to_owned());
    }
    if events.tracing_disabled == 0 {
        missing.push("no end: the event tracing_disabled is missing".to_owned());
    } else if !events.read_completed_after_disabled {
        missing.push(
            "no last read: read_tracing_buffers_completed is missing after tracing_disabled".to_owned(),
        );
    }
    let limit = survey.session.config.as_ref().map_or(0, |config| config.view().max_file_size_bytes());
    if !events.read_completed_after_disabled && limit > 0 {
        missing.push(format!(
            "perhaps the file was full: it has {size_bytes} bytes of the {limit} that max_file_size_bytes allows"
        ));
    }
    missing
}

/// What the statistics say of the last flush; `None` if they say nothing.
/// A session that its consumer stops has no outcome, but the names of those that were late.
fn final_flush_failed(survey: &Survey) -> bool {
    match final_flush(survey) {
        Some(outcome) => outcome == FinalFlushOutcome::FinalFlushFailed,
        None => survey.session.events.last_flush_was_late,
    }
}

pub(super) fn final_flush(survey: &Survey) -> Option<FinalFlushOutcome> {
    let stats = survey.session.stats.as_ref()?;
    Some(stats.final_flush_outcome()).filter(|outcome| *outcome != FinalFlushOutcome::FinalFlushUnspecified)
}

/// One way in which data was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Loss {
    /// Name of the counter; those of the trace's statistics have the format's names.
    pub(super) cause: &'static str,
    /// Number of its session, from 1, in a file with several.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) session: Option<usize>,
    /// Index of the buffer, for losses of one buffer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) buffer: Option<usize>,
    /// How often: chunks, patches, packets, flushes or events, as the name says.
    pub(super) count: u64,
    /// Of losses of the kernel: of which CPUs.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) cpus: Vec<LossOfCpu>,
    /// What happened.
    pub(super) meaning: String,
}

/// The cause of what is missing because nobody offered it.
const NOT_OFFERED: &str = "data_sources_not_offered";

impl Loss {
    /// Whether there was something to be lost.
    pub(super) fn is_of_data(&self) -> bool {
        self.cause != NOT_OFFERED
    }
}

/// Whether the config says that a buffer is a ring; without a config nobody knows.
fn is_ring(survey: &Survey, index: usize) -> bool {
    let buffers = survey.session.config.as_ref().map(|config| &config.view().buffers);
    let buffer = buffers.and_then(|buffers| buffers.get(index));
    buffer.is_some_and(|buffer| buffer.fill_policy() != FillPolicy::Discard)
}

/// Every loss that the trace tells of. The same lost data can show in more than one line: on its
/// sequence and in its buffer.
pub(super) fn losses(survey: &Survey) -> Vec<Loss> {
    let mut losses = Vec::new();
    let mut add = |cause, buffer, count, meaning: &str| {
        if count > 0 {
            let meaning = meaning.to_owned();
            losses.push(Loss { cause, session: None, buffer, count, cpus: Vec::new(), meaning });
        }
    };
    if let Some(stats) = &survey.session.stats {
        for (index, buffer) in stats.buffer_stats.iter().enumerate() {
            let at = Some(index);
            add(
                "chunks_overwritten",
                at,
                buffer.chunks_overwritten(),
                "chunks were overwritten before they were read: the ring was full",
            );
            // A ring refuses only what it has, or had, already: late commits of what was read.
            if !is_ring(survey, index) {
                add(
                    "chunks_discarded",
                    at,
                    buffer.chunks_discarded(),
                    "chunks were refused: the buffer was full",
                );
            }
            add(
                "trace_writer_packet_loss",
                at,
                buffer.trace_writer_packet_loss(),
                "times a writer gave up packets: its shared memory was full",
            );
            add(
                "patches_failed",
                at,
                buffer.patches_failed(),
                "patches came too late: their packets are unreadable",
            );
            add("abi_violations", at, buffer.abi_violations(), "chunks broke the rules of shared memory");
            // Also where they had no chunk: the service is not to be trusted.
            let lost = buffer.chunks_lost_in_poisoned_shards();
            let failed = format!("shards failed in the tracing service, {lost} chunks were lost there");
            add("shards_poisoned", at, buffer.shards_poisoned(), &failed);
        }
        add(
            "invalid_packets",
            None,
            stats.invalid_packets(),
            "packets of producers were malformed and left out",
        );
        // What one flush did not bring the next one does.
        if final_flush(survey) != Some(FinalFlushOutcome::FinalFlushSucceeded) {
            add("flushes_failed", None, stats.flushes_failed(), "flushes were not answered in time");
        }
        let errors = stats.filter_stats.as_ref().map_or(0, |filter| filter.errors());
        add("filter_errors", None, errors, "packets could not be filtered and were left out");
    }
    let sequences = survey.sequences.sorted();
    let bits = sequences.iter().fold(0, |bits, (_, sequence)| bits | sequence.loss_reasons);
    let count = sequences.iter().map(|(_, sequence)| sequence.losses).sum();
    let meaning = format!("times packets are missing on a sequence: {}", loss_reason_names(bits).join(", "));
    add("sequence_packet_loss", None, count, &meaning);
    let names = survey.session.not_offered();
    let meaning = format!("data sources of the config, which nobody offered: {}", names.join(", "));
    add(NOT_OFFERED, None, names.len() as u64, &meaning);
    losses.extend(survey.kernel.losses(final_flush_failed(survey)));
    losses
}
