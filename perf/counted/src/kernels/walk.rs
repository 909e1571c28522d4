//! The fragment walk: chunk by chunk, and as batches of as many chunks as a shard's owner takes at once.

use super::shapes::Chunk;
use super::{Version, Work};
use std::hint::black_box;
use std::time::{Duration, Instant};
use watershed_simd::bench;
use watershed_simd::walk::{Job, Span, Stop, Walk, naive};

/// Chunks of a batch.
pub const BATCH: usize = 32;

const NOTHING: Walk = Walk { fragments: 0, visible_bytes: 0, stop: Stop::Limit };

/// The chunks of one batch, where the engine has them: in a staging area that stays in the cache.
pub struct Walking {
    pool: Vec<Chunk>,
    together: bool,
    index: usize,
    staging: Vec<Vec<u8>>,
    spans: Vec<Vec<Span>>,
    found: Vec<Walk>,
}

impl Walking {
    /// Batches of the pool's chunks, to be walked one by one or together.
    pub fn new(pool: Vec<Chunk>, together: bool) -> Walking {
        let most = pool.iter().map(|chunk| chunk.declared).max().unwrap_or(0);
        Walking {
            pool,
            together,
            index: 0,
            staging: vec![Vec::new(); BATCH],
            spans: vec![vec![Span::default(); most]; BATCH],
            found: vec![NOTHING; BATCH],
        }
    }

    fn batch(&self) -> &[Chunk] {
        &self.pool[self.index * BATCH..][..BATCH]
    }
}

impl Work for Walking {
    fn prepare(&mut self, index: usize) {
        self.index = index;
        self.found.fill(NOTHING);
        for (staging, chunk) in self.staging.iter_mut().zip(&self.pool[index * BATCH..]) {
            staging.clear();
            staging.extend_from_slice(&chunk.bytes);
        }
    }

    fn run(&mut self, version: Version) -> Duration {
        let chunks = self.staging.iter().zip(&self.pool[self.index * BATCH..]).zip(&mut self.spans);
        let start = Instant::now();
        match version.kernels() {
            Some(kernels) if self.together => {
                let mut chunks = chunks.map(|((bytes, chunk), spans)| Job::new(bytes, chunk.declared, spans));
                let mut jobs: [Job<'_>; BATCH] =
                    std::array::from_fn(|_| chunks.next().expect("a whole batch"));
                let start = Instant::now();
                kernels.walk_many(black_box(&mut jobs));
                let elapsed = start.elapsed();
                for (place, job) in self.found.iter_mut().zip(&jobs) {
                    *place = job.found();
                }
                return elapsed;
            }
            Some(kernels) => {
                for (((bytes, chunk), spans), place) in chunks.zip(&mut self.found) {
                    *place = match version {
                        Version::Unsafe(_) => bench::walk_raw(kernels, bytes, chunk.declared, spans),
                        _ => kernels.walk(bytes, chunk.declared, spans),
                    };
                }
            }
            None => {
                for (((bytes, chunk), spans), place) in chunks.zip(&mut self.found) {
                    *place = naive::walk(bytes, chunk.declared, spans);
                }
            }
        }
        black_box(&mut self.found);
        start.elapsed()
    }

    fn check(&mut self) -> Result<u64, String> {
        let mut expected = vec![Span::default(); self.spans[0].len()];
        let mut fragments = 0;
        for ((chunk, found), spans) in self.batch().iter().zip(&self.found).zip(&self.spans) {
            let answer = naive::walk(&chunk.bytes, chunk.declared, &mut expected);
            if (answer, &expected[..answer.fragments]) != (*found, &spans[..found.fragments]) {
                return Err(format!("{found:?} for {answer:?}"));
            }
            fragments += answer.fragments as u64;
        }
        Ok(fragments.max(1))
    }
}
