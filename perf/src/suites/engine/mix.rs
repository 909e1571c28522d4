//! Everything at once in small buffers, and the whole life of a buffer.

use crate::measure::{LapResult, Options, WrongAnswer, interleave, timed};
use crate::report::Measurement;
use crate::workload::minstd::Minstd;
use crate::workload::rings::{SharedBytes, buffer, commit, info, read_out};
use crate::workload::templates::{Shape, filled};
use crate::workload::{SourceChunk, feed, feed::Commit, templates};
use std::hint::black_box;
use watershed_engine::{ChunkFlags, ChunkId, ChunkInfo, Patch, ProducerId, TraceBuffer, WriterId};

const BUFFERS_BYTES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];

/// Small, incomplete, patched and late chunks of 8 writers, with reads and clones, in buffers of
/// 4 KiB to 1 MiB. Each lap does the same to new buffers.
pub(super) fn random_mix(options: &Options) -> Result<Measurement, WrongAnswer> {
    let steps = options.size(40_000, 400);
    let full = Shape::full(1000, 24..=200);
    let chunks = filled(&Shape { packets: 1..=8, ..full });
    let lap = || -> LapResult {
        let buffers: Result<Vec<_>, _> = BUFFERS_BYTES.map(buffer).into_iter().collect();
        let mut mixes: Vec<Mix<'_>> = buffers?.into_iter().map(|ring| Mix::new(ring, &chunks)).collect();
        let units = steps * mixes.len();
        let (lap, ()) = timed(units as u64, || {
            mixes.iter_mut().for_each(|mix| (0..steps).for_each(|_| mix.step()));
        });
        mixes.iter().try_for_each(Mix::check)?;
        Ok(lap)
    };
    let [series] = interleave(options, [Box::new(lap)])?;
    Ok(Measurement::ns_per("step", "random_mix", &series))
}

/// A buffer, and what its writers do.
struct Mix<'a> {
    ring: TraceBuffer,
    chunks: &'a [SourceChunk],
    random: Minstd,
    /// The next chunk id of each writer.
    next: [u32; 8],
    commits: u64,
}

impl<'a> Mix<'a> {
    fn new(ring: TraceBuffer, chunks: &'a [SourceChunk]) -> Self {
        Self { ring, chunks, random: Minstd::new(7), next: [1; 8], commits: 0 }
    }

    /// One step of a hundred kinds: 80 commits (16 incomplete first, 16 patched later, 8 late), 18
    /// read up to 8 packets, one reads all, one clones.
    fn step(&mut self) {
        match self.random.below(100) {
            0..16 => self.commit_incomplete(),
            16..32 => self.commit_and_patch(),
            32..40 => self.commit_late(),
            40..80 => self.commit_new(ChunkFlags(0), true),
            80..98 => {
                self.ring.begin_read();
                for _ in 0..8 {
                    if self.ring.read_next().is_none() {
                        break;
                    }
                }
            }
            98 => drop(black_box(read_out(&mut self.ring))),
            _ => drop(black_box(self.ring.clone_read_only())),
        }
    }

    /// The next chunk of some writer.
    fn commit_new(&mut self, flags: ChunkFlags, complete: bool) {
        let at = self.random.below(8);
        self.next[at] += 1;
        self.commit(at, self.next[at] - 1, flags, complete);
    }

    /// A chunk that is scraped, then committed.
    fn commit_incomplete(&mut self) {
        let at = self.random.below(8);
        let id = self.next[at];
        self.next[at] += 1;
        let chunk = &self.chunks[self.random.below(self.chunks.len())];
        self.commit_chunk(at, id, chunk, ChunkFlags(0), false);
        self.commit_chunk(at, id, chunk, ChunkFlags(0), true);
    }

    /// A chunk that waits for a patch, and the patch.
    fn commit_and_patch(&mut self) {
        let at = self.random.below(8);
        let id = self.next[at];
        self.next[at] += 1;
        self.commit(at, id, ChunkFlags::NEEDS_PATCHING, true);
        let patch = [Patch { offset_untrusted: 10, data: *b"done" }];
        let (producer, writer) = (ProducerId(at as u32 + 1), WriterId(at as u16 + 1));
        black_box(self.ring.try_patch(producer, writer, ChunkId(id), &patch, false));
    }

    /// Two chunks in the wrong order.
    fn commit_late(&mut self) {
        let at = self.random.below(8);
        let id = self.next[at];
        self.next[at] += 2;
        self.commit(at, id + 1, ChunkFlags(0), true);
        self.commit(at, id, ChunkFlags(0), true);
    }

    fn commit(&mut self, at: usize, id: u32, flags: ChunkFlags, complete: bool) {
        let chunk = &self.chunks[self.random.below(self.chunks.len())];
        self.commit_chunk(at, id, chunk, flags, complete);
    }

    fn commit_chunk(&mut self, at: usize, id: u32, chunk: &SourceChunk, flags: ChunkFlags, complete: bool) {
        let commit = Commit { writer: at as u16 + 1, chunk_id: id, chunk };
        let info = ChunkInfo { flags, complete, ..info(&commit) };
        let _ = black_box(self.ring.copy_chunk_untrusted(&info, &SharedBytes(&chunk.bytes)));
        self.commits += 1;
    }

    /// Whether every chunk is accounted for.
    fn check(&self) -> Result<(), WrongAnswer> {
        let stats = self.ring.stats();
        let counted = stats.chunks_written + stats.chunks_rewritten + stats.chunks_discarded;
        if !self.ring.ledger().is_balanced() || counted + stats.abi_violations < self.commits {
            return Err(format!("of {} commits {counted} are counted: {stats:?}", self.commits));
        }
        Ok(())
    }
}

/// Making a buffer of 64 KiB, one chunk, one read and destroying it.
pub(super) fn buffer_life(options: &Options) -> Result<Measurement, WrongAnswer> {
    let lives = options.size(1000, 4);
    let chunks = templates::mixed(10);
    let lap = || -> LapResult {
        let expected: u64 = u64::from(chunks[0].packets) * lives;
        let (lap, packets) = timed(lives, || -> Result<u64, WrongAnswer> {
            (0..lives).try_fold(0, |packets, _| {
                let mut ring = buffer(64 << 10)?;
                commit(&mut ring, &mut feed::one_writer(&chunks), 1);
                Ok(packets + read_out(&mut ring))
            })
        });
        match packets? {
            packets if packets == expected => Ok(lap),
            packets => Err(format!("{packets} packets came back of {expected}")),
        }
    };
    let [series] = interleave(options, [Box::new(lap)])?;
    Ok(Measurement::microseconds("buffer_life", &series))
}
