//! The fragment walk, chunk by chunk.

use super::shapes::Chunk;
use super::{Version, Work};
use std::hint::black_box;
use std::time::{Duration, Instant};
use watershed_simd::walk::{Span, Stop, Walk, naive};

/// Chunks of a batch.
pub const BATCH: usize = 32;

const NOTHING: Walk = Walk { fragments: 0, visible_bytes: 0, stop: Stop::Limit };

/// The chunks of one batch in a staging area that stays in the cache, as the engine has them.
pub struct Walking {
    pool: Vec<Chunk>,
    index: usize,
    staging: Vec<Vec<u8>>,
    spans: Vec<Vec<Span>>,
    found: Vec<Walk>,
}

impl Walking {
    /// Batches of the pool's chunks.
    pub fn new(pool: Vec<Chunk>) -> Walking {
        let most = pool.iter().map(|chunk| chunk.declared).max().unwrap_or(0);
        Walking {
            pool,
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
            Some(kernels) => {
                for (((bytes, chunk), spans), place) in chunks.zip(&mut self.found) {
                    *place = kernels.walk(bytes, chunk.declared, spans);
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
