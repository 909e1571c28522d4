//! Copies of chunks and of shorter lengths: each level against the C library's `memcpy`, which is
//! the plain loop here.

use super::{Workload, contest, each_shape, pieces};
use crate::measure::Options;
use crate::workload::{record_bytes, templates};
use std::hint::black_box;
use std::time::{Duration, Instant};
use watershed_counted::kernels::{Version, Work};
use watershed_simd::bench;

/// What is copied, and where to.
#[derive(Clone, Copy)]
enum Shape {
    /// The mixed chunks, to the offsets where a ring has their payload.
    Ring,
    /// The mixed chunks, each to the same address: the staging area.
    Staged,
    /// Copies of so many bytes, one behind the other.
    Bytes(usize),
}

const SHAPES: [(&str, Shape); 6] = [
    ("chunks_to_ring", Shape::Ring),
    ("chunks_staged", Shape::Staged),
    ("4_bytes", Shape::Bytes(4)),
    ("28_bytes", Shape::Bytes(28)),
    ("64_bytes", Shape::Bytes(64)),
    ("256_bytes", Shape::Bytes(256)),
];

/// Copies of a piece.
const BATCH: usize = 200;

pub(super) fn workloads() -> Vec<Workload> {
    each_shape("copy", &SHAPES, |name, shape, options| {
        contest(name, "copy", options, pieces(options), || Copying::new(shape, options))
    })
}

struct Copying {
    /// From where to where, and how long.
    copies: Vec<(usize, usize, usize)>,
    source: Vec<u8>,
    target: Vec<u8>,
    /// Where in the target this piece begins.
    base: usize,
    is_staged: bool,
}

impl Copying {
    fn new(shape: Shape, options: &Options) -> Copying {
        let sources: Vec<Vec<u8>> = match shape {
            Shape::Bytes(len) => (0..BATCH).map(|i| vec![i as u8 + 1; len]).collect(),
            Shape::Ring | Shape::Staged => {
                templates::mixed(100).into_iter().cycle().take(BATCH).map(|chunk| chunk.bytes).collect()
            }
        };
        let (mut copies, mut source, mut to) = (Vec::new(), Vec::new(), 0);
        for bytes in &sources {
            // Chunks lie at multiples of four in shared memory.
            source.resize(usize::next_multiple_of(source.len(), 4), 0);
            copies.push((source.len(), to, bytes.len()));
            source.extend_from_slice(bytes);
            to += match shape {
                Shape::Ring => record_bytes(bytes.len()),
                Shape::Staged => 0,
                Shape::Bytes(len) => len,
            };
        }
        // A ring that the second-level cache does not hold; the others stay in the first.
        let room = if matches!(shape, Shape::Ring) { options.size(32 << 20, 2 << 20) } else { 64 << 10 };
        let is_staged = matches!(shape, Shape::Staged);
        Copying { copies, source, target: vec![0; room.max(2 * to)], base: 0, is_staged }
    }

    fn piece_bytes(&self) -> usize {
        self.copies.iter().map(|&(_, to, len)| to + len).max().unwrap_or(0).next_multiple_of(16)
    }
}

impl Work for Copying {
    fn prepare(&mut self, _index: usize) {
        let len = self.piece_bytes();
        self.base = if self.base + 2 * len > self.target.len() { 0 } else { self.base + len };
        if let Some(&(_, to, len)) = self.copies.last() {
            self.target[self.base + to..][..len].fill(0);
        }
    }

    fn run(&mut self, version: Version) -> Duration {
        let start = Instant::now();
        for &(from, to, len) in &self.copies {
            let (from, to) = (&self.source[from..][..len], &mut self.target[self.base + to..][..len]);
            match version.kernels() {
                Some(kernels) => bench::copy_raw(kernels, from, to),
                None => to.copy_from_slice(from),
            }
        }
        black_box(&mut self.target);
        start.elapsed()
    }

    fn check(&mut self) -> Result<u64, String> {
        let to_be_seen = if self.is_staged { self.copies.len() - 1 } else { 0 };
        for &(from, to, len) in &self.copies[to_be_seen..] {
            if self.source[from..][..len] != self.target[self.base + to..][..len] {
                return Err(format!("{len} bytes came out as others"));
            }
        }
        Ok(self.copies.len() as u64)
    }
}
