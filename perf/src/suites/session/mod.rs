//! The whole path of `record`: threads write packets through shared memory to a service, and the
//! trace leaves its ring.
//!
//! A lap is timed from the first packet to the end of the session: writing, commits, the ring, and
//! what stopping does (flush, read out, validate, stamp, frame, hand over). One rival copies the
//! packets' bytes once, on one thread; the other, where it was built (`ci/rivals`), is Perfetto's
//! own client, service and buffer with the same packets. Writers wait for memory rather than drop,
//! so every packet must come out. Starting a session is not timed.

mod recording;
mod rival;

use super::{Suite, Workload};
use crate::measure::{Lap, LapResult, Options, Series, WrongAnswer, interleave, timed};
use crate::report::Measurement;
use crate::workload::protobuf;
use recording::{Collected, Recording};
use rival::Rival;
use std::cell::RefCell;
use std::time::Duration;

/// The suite.
pub fn suite() -> Suite {
    Suite {
        name: "session",
        about: "the whole path of `record`: writers, shared memory, service, ring, and the trace out of it",
        // The service has threads of its own.
        pinned: false,
        unavailable: || None,
        workloads,
    }
}

fn workloads() -> Vec<Workload> {
    [("packets", Packets::TrackEvents), ("instants", Packets::Instants)]
        .into_iter()
        .flat_map(|(what, packets)| {
            [("one_writer", 1, false), ("two_writers", 2, false), ("one_writer_to_file", 1, true)].map(
                |(how, threads, to_file)| {
                    let name = format!("{what}_{how}");
                    Workload::new(name.clone(), move |options| run(&name, packets, threads, to_file, options))
                },
            )
        })
        .collect()
}

/// What is written.
#[derive(Clone, Copy)]
enum Packets {
    /// 50 to 500 bytes, as the comparison of trace buffers has them.
    TrackEvents,
    /// The size of an instant event with an interned name.
    Instants,
}

impl Packets {
    /// The different packets, which are written repeatedly, and how many a lap writes.
    fn texts(self, options: &Options) -> (Vec<Vec<u8>>, usize) {
        let mut random = crate::workload::minstd::Minstd::new(42);
        match self {
            Packets::TrackEvents => {
                let texts = (0..1000).map(|at| protobuf::track_event(50 + random.below(451), timestamp(at)));
                (texts.collect(), options.size(150_000, 1500))
            }
            Packets::Instants => {
                let texts = (0..1000).map(|at| protobuf::track_event(28, timestamp(at)));
                (texts.collect(), options.size(600_000, 1500))
            }
        }
    }
}

fn timestamp(at: u64) -> u64 {
    1_700_000_000_000_000_000 + at * 100_000
}

fn run(
    name: &str,
    packets: Packets,
    threads: usize,
    to_file: bool,
    options: &Options,
) -> Result<Measurement, WrongAnswer> {
    let (texts, count) = packets.texts(options);
    // Divisible, so that every thread writes as many.
    let each = count / threads;
    let count = each * threads;
    let bytes: usize = texts.iter().cycle().take(each).map(Vec::len).sum::<usize>() * threads;
    // By part, of the laps of which both are known.
    let (writing, ending) = (RefCell::new(Vec::new()), RefCell::new(Vec::new()));
    let trace = Collected::with_capacity(bytes * 2 + (1 << 20));

    let record = || -> LapResult {
        let recording = Recording::start(threads, to_file, &trace)?;
        let parts = recording.write_and_end(&texts, each)?;
        trace.check(count as u64, bytes as u64, to_file)?;
        writing.borrow_mut().push(parts.writing.as_nanos() as f64 / count as f64);
        ending.borrow_mut().push(parts.ending.as_nanos() as f64 / count as f64);
        Ok(Lap { elapsed: parts.writing + parts.ending, units: count as u64 })
    };
    let mut copies = vec![1_u8; bytes];
    let copy = || -> LapResult {
        let (lap, ()) = timed(count as u64, || {
            let mut at = 0;
            for text in (0..threads).flat_map(|_| texts.iter().cycle().take(each)) {
                copies[at..at + text.len()].copy_from_slice(text);
                at += text.len();
            }
            std::hint::black_box(&copies);
        });
        Ok(lap)
    };
    // It writes no file.
    let rival = if to_file { None } else { Rival::start(&texts, each, threads)? };
    let (ours, plain, theirs) = match rival {
        Some(mut rival) => {
            let contestants: [Box<dyn FnMut() -> LapResult>; 3] =
                [Box::new(record), Box::new(copy), Box::new(|| rival.lap())];
            let [ours, plain, theirs] = interleave(options, contestants)?;
            (ours, plain, Some(theirs))
        }
        None => {
            let [ours, plain] = interleave(options, [Box::new(record), Box::new(copy)])?;
            (ours, plain, None)
        }
    };
    let part = |laps: RefCell<Vec<f64>>| Series::new(laps.into_inner().split_off(1)).median();
    let bytes_each = bytes as f64 / count as f64;
    let result = Measurement::ns_per("packet", name, &ours)
        .with("mb_per_s", bytes_each * 1e3 / ours.median())
        .with("ratio_to_memcpy", ours.speedup_over(&plain))
        .with("ns_writing", part(writing))
        .with("ns_ending", part(ending));
    Ok(match theirs {
        Some(theirs) => result.with("ratio_to_perfetto", ours.speedup_over(&theirs)),
        None => result,
    })
}

/// How long the two parts of a lap took.
struct Parts {
    /// Until the last thread has written its last packet.
    writing: Duration,
    /// Until the trace is complete.
    ending: Duration,
}
