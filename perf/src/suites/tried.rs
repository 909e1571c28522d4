//! Kernels that lost (`watershed-tried`), each against the plain loop and the kernel that was kept, on the same fresh chunks and packets as in
//! the suite `simd`.
//!
//! Names are `walk_one_<what was tried>_<shape>`, `walk_many_...`, `fields_...`. `ratio_to_plain` is the plain loop's time over this one's,
//! `kept_ratio_to_plain` that of the kernel in use in the same rounds.

use super::{Suite, Workload};
use crate::measure::{Lap, LapResult, Options, WrongAnswer, interleave, timed};
use crate::report::Measurement;
use std::hint::black_box;
use std::time::Duration;
use watershed_counted::kernels::fields::RESERVED;
use watershed_counted::kernels::shapes::{Chunk, Chunks, Packet, Packets, chunks, packets};
use watershed_simd::fields::{Rules, naive as naive_fields};
use watershed_simd::walk::{Job, Span, Walk, naive, walk_many};
use watershed_tried::{Piece, ScanFields, Tried, WalkMany, WalkOne, many_walks, scans, walks};

/// The suite.
pub fn suite() -> Suite {
    Suite {
        name: "tried",
        about: "kernels that lost, against the plain loop and the kernel that was kept",
        pinned: true,
        workloads,
    }
}

const CHUNKS: [(&str, Chunks); 5] = [
    ("real", Chunks::Real),
    ("real_sdk", Chunks::RealSdk),
    ("dense", Chunks::Dense),
    ("one_byte", Chunks::OneByte),
    ("two_byte", Chunks::TwoByte),
];

const PACKETS: [(&str, Packets); 3] =
    [("track_event", Packets::TrackEvent), ("counter", Packets::Counter), ("cut", Packets::Cut)];

/// Chunks, or packets, that are walked in one go, and how many such goes there are in a lap.
const BATCH_CHUNKS: usize = 32;
const BATCH_PACKETS: usize = 256;

fn goes(options: &Options) -> usize {
    options.size(40, 2)
}

fn workloads() -> Vec<Workload> {
    let mut all = Vec::new();
    for (shape_name, shape) in CHUNKS {
        let of_one = |tried: Tried<_>| {
            row("walk_one", tried.name, shape_name, "fragment", move |options| {
                let walks: [WalkOne; 3] = [naive::walk, watershed_simd::walk, tried.run];
                contest(options, |who| one_by_one(shape, options, walks[who]))
            })
        };
        all.extend(walks().into_iter().map(of_one));
        let of_many = |tried: Tried<_>| {
            row("walk_many", tried.name, shape_name, "fragment", move |options| {
                let batches: [Batches; 3] = [Batches::Plain, Batches::Kept, Batches::Tried(tried.run)];
                contest(options, |who| together(shape, options, batches[who]))
            })
        };
        all.extend(many_walks().into_iter().map(of_many));
    }
    for (shape_name, shape) in PACKETS {
        let of_fields = |tried: Tried<_>| {
            row("fields", tried.name, shape_name, "packet", move |options| {
                let scans: [ScanFields; 3] = [naive_fields::scan, watershed_simd::fields::scan, tried.run];
                contest(options, |who| packet_by_packet(shape, options, scans[who]))
            })
        };
        all.extend(scans().into_iter().map(of_fields));
    }
    all
}

/// Medians: the plain loop, the kernel in use, what was tried.
type Contest = [crate::measure::Series; 3];

fn row(
    kernel: &str,
    tried: &str,
    shape: &str,
    unit: &'static str,
    run: impl Fn(&Options) -> Result<Contest, WrongAnswer> + 'static,
) -> Workload {
    let name = format!("{kernel}_{tried}_{shape}");
    Workload::new(name.clone(), move |options| {
        let [plain, kept, tried] = run(options)?;
        Ok(Measurement::ns_per(unit, name.clone(), &tried)
            .with("plain", plain.median())
            .with("ratio_to_plain", tried.speedup_over(&plain))
            .with("kept_ratio_to_plain", kept.speedup_over(&plain)))
    })
}

/// The laps of all three, made by `laps`.
fn contest<'a, L: FnMut() -> LapResult + 'a>(
    options: &Options,
    laps: impl Fn(usize) -> L,
) -> Result<Contest, WrongAnswer> {
    interleave(options, [0, 1, 2].map(|who| Box::new(laps(who)) as Box<dyn FnMut() -> LapResult + 'a>))
}

/// Chunks in a staging area, as the engine has them, and where their spans go.
struct Staged {
    pool: Vec<Chunk>,
    staging: Vec<Vec<u8>>,
    spans: Vec<Vec<Span>>,
}

impl Staged {
    fn new(shape: Chunks, options: &Options) -> Staged {
        let pool = chunks(shape, goes(options) * BATCH_CHUNKS);
        let most = pool.iter().map(|chunk| chunk.declared).max().unwrap_or(0);
        let spans = vec![vec![Span::default(); most]; BATCH_CHUNKS];
        Staged { pool, staging: vec![Vec::new(); BATCH_CHUNKS], spans }
    }

    /// Walks every batch with `walk`, which is timed, and looks at the answers.
    fn lap(
        &mut self,
        walk: impl Fn(&[Chunk], &[Vec<u8>], &mut [Vec<Span>]) -> (Duration, Vec<Walk>),
    ) -> LapResult {
        let mut sum = Lap { elapsed: Duration::ZERO, units: 0 };
        for batch in self.pool.chunks(BATCH_CHUNKS) {
            for (staging, chunk) in self.staging.iter_mut().zip(batch) {
                staging.clear();
                staging.extend_from_slice(&chunk.bytes);
            }
            let (elapsed, found) = walk(batch, &self.staging, &mut self.spans);
            sum.elapsed += elapsed;
            let mut spans = vec![Span::default(); self.spans[0].len()];
            for ((chunk, found), answered) in batch.iter().zip(found).zip(&self.spans) {
                let answer = naive::walk(&chunk.bytes, chunk.declared, &mut spans);
                if found != answer || spans[..answer.fragments] != answered[..answer.fragments] {
                    return Err(format!("{found:?} for {answer:?}"));
                }
                sum.units += answer.fragments as u64;
            }
        }
        Ok(sum)
    }
}

fn one_by_one(shape: Chunks, options: &Options, walk: WalkOne) -> impl FnMut() -> LapResult + use<> {
    let mut staged = Staged::new(shape, options);
    move || {
        staged.lap(|batch, staging, spans| {
            let mut found = Vec::with_capacity(BATCH_CHUNKS);
            let (lap, ()) = timed(1, || {
                for ((chunk, bytes), spans) in batch.iter().zip(staging).zip(spans) {
                    found.push(walk(bytes, chunk.declared, spans));
                }
                black_box(&mut found);
            });
            (lap.elapsed, found)
        })
    }
}

#[derive(Clone, Copy)]
enum Batches {
    Plain,
    Kept,
    Tried(WalkMany),
}

/// The lists of jobs and pieces are made outside of the timed part.
fn together(shape: Chunks, options: &Options, who: Batches) -> impl FnMut() -> LapResult + use<> {
    let mut staged = Staged::new(shape, options);
    move || {
        staged.lap(|batch, staging, spans| {
            let chunks =
                batch.iter().zip(staging).zip(spans).map(|((chunk, bytes), spans)| (chunk, bytes, spans));
            match who {
                Batches::Plain => {
                    let mut found = Vec::with_capacity(BATCH_CHUNKS);
                    let (lap, ()) = timed(1, || {
                        chunks.for_each(|(chunk, bytes, spans)| {
                            found.push(naive::walk(bytes, chunk.declared, spans));
                        });
                        black_box(&mut found);
                    });
                    (lap.elapsed, found)
                }
                Batches::Kept => {
                    let mut jobs: Vec<_> =
                        chunks.map(|(chunk, bytes, spans)| Job::new(bytes, chunk.declared, spans)).collect();
                    let (lap, ()) = timed(1, || walk_many(black_box(&mut jobs)));
                    (lap.elapsed, jobs.iter().map(Job::found).collect())
                }
                Batches::Tried(walk) => {
                    let mut pieces: Vec<_> = chunks
                        .map(|(chunk, bytes, spans)| Piece::new(bytes, chunk.declared, spans))
                        .collect();
                    let (lap, ()) = timed(1, || walk(black_box(&mut pieces)));
                    (lap.elapsed, pieces.iter().map(|piece| piece.found).collect())
                }
            }
        })
    }
}

fn packet_by_packet(
    shape: Packets,
    options: &Options,
    scan: ScanFields,
) -> impl FnMut() -> LapResult + use<> {
    let pool: Vec<Packet> = packets(shape, goes(options) * BATCH_PACKETS);
    let rules = Rules::new().reserve(RESERVED);
    move || {
        let mut sum = Lap { elapsed: Duration::ZERO, units: 0 };
        for batch in pool.chunks(BATCH_PACKETS) {
            let cut: Vec<Vec<&[u8]>> = batch.iter().map(slices).collect();
            let (lap, found) = timed(batch.len() as u64, || {
                cut.iter().map(|slices| black_box(scan(slices, &rules))).collect::<Vec<_>>()
            });
            let answers = cut.iter().map(|slices| naive_fields::scan(slices, &rules));
            if let Some((found, answer)) =
                found.into_iter().zip(answers).find(|(found, answer)| found != answer)
            {
                return Err(format!("{found:?} for {answer:?}"));
            }
            sum = Lap { elapsed: sum.elapsed + lap.elapsed, units: sum.units + lap.units };
        }
        Ok(sum)
    }
}

/// The packet as its cuts say.
fn slices(packet: &Packet) -> Vec<&[u8]> {
    let ends = packet.cuts.iter().copied().chain([packet.bytes.len()]);
    let starts = [0].into_iter().chain(packet.cuts.iter().copied());
    starts.zip(ends).map(|(start, end)| &packet.bytes[start..end]).collect()
}
