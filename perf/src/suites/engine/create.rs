//! Creating a buffer, its first commit, and cloning it.

use crate::measure::{Lap, LapResult, Options, WrongAnswer, interleave, timed};
use crate::report::Measurement;
use crate::workload::rings::{buffer, commit, read_out, touched_pair};
use crate::workload::{feed, templates};
use std::time::Duration;

/// Creation alone. Nothing is touched, so the size must not matter.
pub(super) fn create(name: &str, size_bytes: usize, options: &Options) -> Result<Measurement, WrongAnswer> {
    let count = options.size(64, 2);
    let lap = || -> LapResult {
        let mut elapsed = Duration::ZERO;
        for _ in 0..count {
            let (lap, made) = timed(1, || buffer(size_bytes));
            elapsed += lap.elapsed;
            let made = made?;
            if made.size_bytes() != size_bytes || made.has_data() {
                return Err(format!("a new buffer has {} bytes", made.size_bytes()));
            }
        }
        Ok(Lap { elapsed, units: count })
    };
    let [series] = interleave(options, [Box::new(lap)])?;
    Ok(Measurement::microseconds(name, &series))
}

/// The first commit into a new 64 MiB buffer, which touches its first pages.
pub(super) fn first_commit(options: &Options) -> Result<Measurement, WrongAnswer> {
    let chunks = templates::mixed(100);
    let lap = || -> LapResult {
        let mut fresh = buffer(64 << 20)?;
        let (lap, ()) = timed(1, || commit(&mut fresh, &mut feed::one_writer(&chunks), 1));
        match read_out(&mut fresh) {
            packets if packets == u64::from(chunks[0].packets) => Ok(lap),
            packets => Err(format!("{packets} packets came back")),
        }
    };
    let [series] = interleave(options, [Box::new(lap)])?;
    Ok(Measurement::microseconds("first_commit_64mb", &series))
}

/// A clone of a full 64 MiB buffer by one thread, its own mapping included, against a copy between
/// two regions whose pages were touched before.
pub(super) fn clone(options: &Options) -> Result<Measurement, WrongAnswer> {
    let ring_bytes = options.size(64 << 20, 1 << 20);
    let chunks = templates::mixed(100);
    let mut full = buffer(ring_bytes)?;
    commit(&mut full, &mut feed::one_writer(&chunks), ring_bytes / 1024);
    let expected = read_out(&mut full.clone_read_only().map_err(|error| error.to_string())?);

    let (source, mut target) = touched_pair(ring_bytes)?;

    let clone_lap = || -> LapResult {
        let (lap, copy) = timed(1, || full.clone_read_only());
        let mut copy = copy.map_err(|error| error.to_string())?;
        match read_out(&mut copy) {
            packets if packets == expected => Ok(lap),
            packets => Err(format!("{packets} packets are in the clone, {expected} in the buffer")),
        }
    };
    let plain_lap = || -> LapResult {
        let (lap, ()) = timed(1, || {
            target.as_mut_slice().copy_from_slice(source.as_slice());
            std::hint::black_box(target.as_slice());
        });
        Ok(lap)
    };
    let [ours, plain] = interleave(options, [Box::new(clone_lap), Box::new(plain_lap)])?;
    Ok(Measurement::microseconds("clone_64mb", &ours)
        .with("ratio_to_memcpy", ours.speedup_over(&plain))
        .with("memcpy_us", plain.median() / 1e3))
}
