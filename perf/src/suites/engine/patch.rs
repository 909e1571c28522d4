//! Patching: four bytes at offset 10 of a chunk in a 16 MiB ring of 4096 chunks.

use crate::measure::{Options, WrongAnswer, interleave, timed};
use crate::report::Measurement;
use crate::workload::rings::{buffer, commit};
use crate::workload::{feed, templates};
use std::hint::black_box;
use watershed_engine::{ChunkId, Patch, ProducerId, TraceBuffer, WriterId};

const CHUNKS: u32 = 4096;
const PATCH: Patch = Patch { offset_untrusted: 10, data: *b"done" };

fn ring() -> Result<TraceBuffer, WrongAnswer> {
    let chunks = templates::mixed(10);
    let mut ring = buffer(16 << 20)?;
    commit(&mut ring, &mut feed::one_writer(&chunks), CHUNKS as usize);
    Ok(ring)
}

/// Patches the chunk that came `age` chunks before the newest.
pub(super) fn nth_newest(name: &str, age: u32, options: &Options) -> Result<Measurement, WrongAnswer> {
    measure(name, CHUNKS - 1 - age, true, options)
}

/// Patches a chunk that was never committed.
pub(super) fn missing(options: &Options) -> Result<Measurement, WrongAnswer> {
    measure("patch_missing", CHUNKS + 1_000_000, false, options)
}

fn measure(name: &str, chunk: u32, found: bool, options: &Options) -> Result<Measurement, WrongAnswer> {
    let calls = options.size(20_000, 100);
    let mut ring = ring()?;
    let lap = || {
        let before = (ring.stats().patches_succeeded, ring.stats().patches_failed);
        let (lap, ()) = timed(calls, || {
            for _ in 0..calls {
                black_box(ring.try_patch(
                    ProducerId(1),
                    WriterId(1),
                    black_box(ChunkId(chunk)),
                    &[PATCH],
                    false,
                ));
            }
        });
        let done = (ring.stats().patches_succeeded - before.0, ring.stats().patches_failed - before.1);
        let expected = if found { (calls, 0) } else { (0, calls) };
        if done != expected {
            return Err(format!("(succeeded, failed) are {done:?}, not {expected:?}"));
        }
        Ok(lap)
    };
    let [series] = interleave(options, [Box::new(lap)])?;
    Ok(Measurement::ns_per("patch", name, &series))
}
