//! Writing the shapes that real traces have, beside memcpy of the same chunks.

use super::write::{against_memcpy, from_cold, in_batches};
use crate::measure::{Options, WrongAnswer};
use crate::report::Measurement;
use crate::workload::templates::{Shape, filled};
use crate::workload::{CHUNK_PAYLOAD_BYTES, SourceChunk, feed};

/// Sizes of the packets of track events and of scheduling events, with their headers.
const TRACK_EVENT_BYTES: std::ops::RangeInclusive<usize> = 24..=64;

/// Full pages of track events.
pub(super) fn track_events(options: &Options) -> Result<Measurement, WrongAnswer> {
    let shape = Shape::full(CHUNK_PAYLOAD_BYTES, TRACK_EVENT_BYTES);
    one_writer("write_track_events", options, &filled(&shape))
}

/// The same, eight chunks a commit.
pub(super) fn track_events_batch8(options: &Options) -> Result<Measurement, WrongAnswer> {
    let shape = Shape::full(CHUNK_PAYLOAD_BYTES, TRACK_EVENT_BYTES);
    in_batches("write_track_events_batch8", options, &filled(&shape))
}

/// The same where a packet of 25 has a header of four bytes.
pub(super) fn track_events_long_headers(options: &Options) -> Result<Measurement, WrongAnswer> {
    let full = Shape::full(CHUNK_PAYLOAD_BYTES, TRACK_EVENT_BYTES);
    let shape = Shape { long_headers_percent: 4, ..full };
    one_writer("write_track_events_long_headers", options, &filled(&shape))
}

/// Track events from a source of 32 MiB.
pub(super) fn track_events_cold_source(options: &Options) -> Result<Measurement, WrongAnswer> {
    let shape = Shape::full(CHUNK_PAYLOAD_BYTES, TRACK_EVENT_BYTES);
    from_cold("write_track_events_cold_source", options, &filled(&shape), options.size(8200, 1000))
}

/// Full pages of packets of 28 bytes.
pub(super) fn small_packets(options: &Options) -> Result<Measurement, WrongAnswer> {
    one_writer("write_small_packets", options, &filled(&Shape::full(CHUNK_PAYLOAD_BYTES, 28..=28)))
}

/// The same, eight chunks a commit.
pub(super) fn small_packets_batch8(options: &Options) -> Result<Measurement, WrongAnswer> {
    in_batches("write_small_packets_batch8", options, &filled(&Shape::full(CHUNK_PAYLOAD_BYTES, 28..=28)))
}

/// Chunks above a page, as ftrace and the probes use them, of packets of 50 to 500 bytes.
pub(super) fn large_chunks(
    name: &str,
    page_bytes: usize,
    options: &Options,
) -> Result<Measurement, WrongAnswer> {
    one_writer(name, options, &filled(&Shape::full(page_bytes - 16, 50..=500)))
}

/// One to three track events a chunk, of a thousand writers in turns: what threads leave that end
/// soon.
pub(super) fn short_threads(options: &Options) -> Result<Measurement, WrongAnswer> {
    let full = Shape::full(CHUNK_PAYLOAD_BYTES, TRACK_EVENT_BYTES);
    let chunks = filled(&Shape { packets: 1..=3, ..full });
    let measured =
        against_memcpy("write_short_threads", options, &chunks, || feed::thousand_writers(&chunks))?;
    let more_ns = measured.value - measured.extra["memcpy_ns"];
    Ok(measured.with("ns_above_memcpy", more_ns))
}

fn one_writer(name: &str, options: &Options, chunks: &[SourceChunk]) -> Result<Measurement, WrongAnswer> {
    against_memcpy(name, options, chunks, || feed::one_writer(chunks))
}
