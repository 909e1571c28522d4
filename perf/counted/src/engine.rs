//! The workloads of the instruction counts: those of the timed suites, smaller, in steady state.
//!
//! Each has a set-up that is not counted and a body that is; callgrind's output files have their
//! names.

use crate::workload::feed::{self, Commit};
use crate::workload::rings::{CopyRing, buffer, commit};
use crate::workload::templates::Shape;
use crate::workload::{CHUNK_PAYLOAD_BYTES, SourceChunk, fragmented, protobuf, record_bytes, templates};
use std::hint::black_box;
use watershed_engine::{ChunkId, HugePages, Patch, ProducerId, TraceBuffer, WriterId};

/// A ring that is filled quickly under valgrind, with more than a thousand chunks in it.
const RING_BYTES: usize = 8 << 20;
/// Commits that fill such a ring at least twice.
const WARM_UP: usize = 2 * RING_BYTES / 2048;
/// Commits that are counted.
pub const COMMITS: u64 = 4096;
/// Commits whose packets are read: fewer than fill the ring.
const READ_COMMITS: usize = 2000;
/// Patches that are counted.
pub const PATCHES: u64 = 1000;

/// What a benchmark counts, and how many of them, by the benchmark's name. The number of packets is
/// that of the chunks.
pub fn units(benchmark: &str) -> Option<(&'static str, u64)> {
    let packets = |chunks: &[SourceChunk]| {
        chunks.iter().cycle().take(read_commits(chunks)).map(|chunk| u64::from(chunk.packets)).sum()
    };
    Some(match benchmark {
        "engine/read_plain" => ("packet", packets(&templates::mixed(100))),
        "engine/read_fragmented" => ("packet", packets(&fragmented::stream(100))),
        "engine/read_to_blocks" => ("packet", packets(&protobuf::track_events(100))),
        _ if benchmark.starts_with("engine/write_") => ("chunk", COMMITS),
        _ if benchmark.starts_with("engine/patch_") => ("patch", PATCHES),
        "engine/clone_8mb" => ("clone", 1),
        _ => return None,
    })
}

/// Whole rounds of a stream whose packets span chunks, so that the last packet is complete.
fn read_commits(chunks: &[SourceChunk]) -> usize {
    READ_COMMITS / chunks.len() * chunks.len()
}

/// A full ring, and the chunks of the next commits.
pub struct Writing {
    buffer: TraceBuffer,
    /// The commits in order, made before, so that only committing is counted.
    plan: Vec<(u16, u32, SourceChunk)>,
}

impl Writing {
    fn new<'a>(feed: impl Iterator<Item = Commit<'a>>) -> Self {
        Self::warmed_up(feed, WARM_UP)
    }

    fn warmed_up<'a>(mut feed: impl Iterator<Item = Commit<'a>>, warm_up: usize) -> Self {
        let mut buffer = buffer(RING_BYTES).expect("a ring of a few MiB");
        commit(&mut buffer, &mut feed, warm_up);
        let plan = feed.take(COMMITS as usize);
        Self {
            buffer,
            plan: plan.map(|commit| (commit.writer, commit.chunk_id, commit.chunk.clone())).collect(),
        }
    }

    /// One writer, mixed chunks.
    pub fn one_writer() -> Self {
        Self::new(feed::one_writer(&templates::mixed(100)))
    }

    /// A thousand writers in turns.
    pub fn thousand_writers() -> Self {
        Self::new(feed::thousand_writers(&templates::mixed(100)))
    }

    /// One writer whose packets span chunks.
    pub fn fragmented() -> Self {
        Self::new(feed::one_writer(&fragmented::stream(100)))
    }

    /// One writer whose chunks come in shuffled batches.
    pub fn out_of_order() -> Self {
        Self::new(feed::out_of_order(&templates::mixed(100)))
    }

    /// Full pages of track events: 24 to 64 bytes.
    pub fn track_events() -> Self {
        Self::shape(&Shape::full(CHUNK_PAYLOAD_BYTES, 24..=64))
    }

    /// Full pages of packets of 28 bytes.
    pub fn small_packets() -> Self {
        Self::shape(&Shape::full(CHUNK_PAYLOAD_BYTES, 28..=28))
    }

    /// Chunks of 16 KiB.
    pub fn chunks_16k() -> Self {
        Self::shape(&Shape::full((16 << 10) - 16, 50..=500))
    }

    /// One to three track events a chunk.
    pub fn short_threads() -> Self {
        Self::shape(&Shape { packets: 1..=3, ..Shape::full(CHUNK_PAYLOAD_BYTES, 24..=64) })
    }

    /// One writer, chunks of a shape.
    fn shape(shape: &Shape) -> Self {
        let chunks = templates::filled(shape);
        let bytes: usize = chunks.iter().map(|chunk| record_bytes(chunk.bytes.len())).sum();
        Self::warmed_up(feed::one_writer(&chunks), 2 * RING_BYTES * chunks.len() / bytes)
    }

    /// The counted part. Returns itself, so that freeing is not counted.
    pub fn run(mut self) -> Self {
        let mut feed = self.plan.iter().map(|(writer, chunk_id, chunk)| Commit {
            writer: *writer,
            chunk_id: *chunk_id,
            chunk,
        });
        commit(&mut self.buffer, &mut feed, COMMITS as usize);
        self
    }
}

/// The rival: the same chunks into plain memory.
pub struct Copying {
    ring: CopyRing,
    chunks: Vec<SourceChunk>,
}

impl Copying {
    /// Mixed chunks.
    pub fn mixed() -> Self {
        let chunks = templates::mixed(100).into_iter().cycle().take(COMMITS as usize).collect();
        Self { ring: CopyRing::new(RING_BYTES, HugePages::Advise).expect("a few MiB"), chunks }
    }

    /// The counted part.
    pub fn run(mut self) -> Self {
        for chunk in &self.chunks {
            self.ring.copy(&chunk.bytes);
        }
        black_box(&self.ring);
        self
    }
}

/// A ring with unread packets.
pub struct Reading {
    buffer: TraceBuffer,
    blocks: crate::workload::blocks::Blocks,
}

impl Reading {
    fn new(chunks: &[SourceChunk]) -> Self {
        let mut buffer = buffer(RING_BYTES).expect("a ring of a few MiB");
        commit(&mut buffer, &mut feed::one_writer(chunks), read_commits(chunks));
        let mut blocks = crate::workload::blocks::Blocks::default();
        blocks.reserve(RING_BYTES);
        Self { buffer, blocks }
    }

    /// Whole packets.
    pub fn plain() -> Self {
        Self::new(&templates::mixed(100))
    }

    /// Packets over several chunks.
    pub fn fragmented() -> Self {
        Self::new(&fragmented::stream(100))
    }

    /// Packets that can be validated.
    pub fn track_events() -> Self {
        Self::new(&protobuf::track_events(100))
    }

    /// The counted part: slices only.
    pub fn run(mut self) -> Self {
        self.buffer.begin_read();
        while let Some(packet) = self.buffer.read_next() {
            black_box(packet.slices());
        }
        self
    }

    /// The counted part: validated, stamped, framed.
    pub fn run_to_blocks(mut self) -> Self {
        black_box(self.blocks.fill_from(&mut self.buffer));
        self
    }
}

/// A ring whose chunks are patched.
pub struct Patching {
    buffer: TraceBuffer,
    chunk: ChunkId,
}

impl Patching {
    /// Patches the chunk `age` before the newest; a chunk that was never there when `age` is
    /// negative.
    pub fn new(age: i32) -> Self {
        let mut buffer = buffer(RING_BYTES).expect("a ring of a few MiB");
        commit(&mut buffer, &mut feed::one_writer(&templates::mixed(10)), READ_COMMITS);
        Self { buffer, chunk: ChunkId((READ_COMMITS as u32 - 1).wrapping_add_signed(-age)) }
    }

    /// The counted part.
    pub fn run(mut self) -> Self {
        let patch = [Patch { offset_untrusted: 10, data: *b"done" }];
        for _ in 0..PATCHES {
            #[cfg(feature = "planted-regression")]
            search_the_slow_way(self.chunk);
            black_box(self.buffer.try_patch(
                ProducerId(1),
                WriterId(1),
                black_box(self.chunk),
                &patch,
                false,
            ));
        }
        self
    }
}

/// A search through the newest chunks, which is planted: too cheap for a clock to notice, but not
/// for the gate.
#[cfg(feature = "planted-regression")]
#[inline(never)]
fn search_the_slow_way(chunk: ChunkId) {
    (0..4).take_while(|&id| black_box(id) != chunk.0).for_each(drop);
}

/// A full ring that is cloned.
pub struct Cloning {
    buffer: TraceBuffer,
    clone: Option<TraceBuffer>,
}

impl Cloning {
    /// A ring that is full.
    pub fn full() -> Self {
        Self { buffer: Writing::one_writer().buffer, clone: None }
    }

    /// The counted part.
    pub fn run(mut self) -> Self {
        self.clone = self.buffer.clone_read_only().ok();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_does_what_it_says() {
        for set_up in [
            Writing::one_writer,
            Writing::thousand_writers,
            Writing::fragmented,
            Writing::out_of_order,
            Writing::track_events,
            Writing::small_packets,
            Writing::chunks_16k,
            Writing::short_threads,
        ] {
            let ready = set_up();
            let before = ready.buffer.stats();
            let after = ready.run().buffer.stats();
            assert_eq!(after.chunks_written - before.chunks_written, COMMITS);
            assert!(
                after.chunks_overwritten - before.chunks_overwritten >= COMMITS * 9 / 10,
                "every commit evicts"
            );
            assert_eq!((after.abi_violations, after.chunks_discarded), (0, 0));
        }
        for (benchmark, reading) in [
            ("engine/read_plain", Reading::plain().run()),
            ("engine/read_fragmented", Reading::fragmented().run()),
            ("engine/read_to_blocks", Reading::track_events().run_to_blocks()),
        ] {
            let (stats, blocks) = (reading.buffer.stats(), reading.blocks);
            assert_eq!(
                (stats.chunks_read, stats.chunks_overwritten),
                (stats.chunks_written, 0),
                "{benchmark}"
            );
            if benchmark == "engine/read_to_blocks" {
                assert_eq!(blocks.count_frames(), Ok(units(benchmark).unwrap().1));
            }
        }
        for (age, succeeded) in [(0, PATCHES), (9, PATCHES), (-1_000_000, 0)] {
            let stats = Patching::new(age).run().buffer.stats();
            assert_eq!((stats.patches_succeeded, stats.patches_failed), (succeeded, PATCHES - succeeded));
        }
        let cloning = Cloning::full().run();
        assert_eq!(cloning.clone.unwrap().used_size_bytes(), cloning.buffer.used_size_bytes());
    }
}
