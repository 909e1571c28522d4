//! Chunks that log their copies, and so the order in which a queue is drained.

use std::sync::{Arc, Mutex, PoisonError};

use watershed_engine::{ByteSource, ChunkInfo};
use watershed_shards::{Batch, Committer, Source};

use super::{info, owned, payload};

/// The numbers of chunks in the order in which they were copied.
#[derive(Clone, Default)]
pub(crate) struct Log(Arc<Mutex<Vec<u32>>>);

impl Log {
    pub(crate) fn numbers(&self) -> Vec<u32> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A chunk of writer 1 of producer 1 whose packet is its number.
    pub(crate) fn chunk(&self, number: u32) -> (ChunkInfo, Source<'static>) {
        self.chunk_with(number, || ())
    }

    /// The same; its copy calls `also`.
    pub(crate) fn chunk_with(
        &self,
        number: u32,
        also: impl Fn() + Send + Sync + 'static,
    ) -> (ChunkInfo, Source<'static>) {
        let bytes = payload(&[number.to_le_bytes().to_vec()]);
        (info(1, 1, number, 1, 0), owned(Logged { log: self.clone(), number, bytes, also }))
    }
}

struct Logged<F> {
    log: Log,
    number: u32,
    bytes: Vec<u8>,
    also: F,
}

impl<F: Fn()> ByteSource for Logged<F> {
    fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        self.log.0.lock().unwrap_or_else(PoisonError::into_inner).push(self.number);
        (self.also)();
        dst.copy_from_slice(&self.bytes[offset_bytes..][..dst.len()]);
    }
}

/// Commits chunks in one batch.
pub(crate) fn commit_all(committer: &mut Committer, chunks: Vec<(ChunkInfo, Source<'_>)>) {
    let mut batch = Batch { chunks, ..Batch::default() };
    committer.commit(&mut batch).unwrap();
    assert!(batch.is_empty());
}
