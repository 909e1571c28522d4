//! The region in loom models: pages of fixed layouts, every word an atomic of loom, four bytes of
//! payload for each chunk.

use std::collections::BTreeMap;
use std::sync::Arc;

use loom::cell::UnsafeCell;
use loom::sync::atomic::{AtomicU8, Ordering};

use super::HeaderWords;
use crate::layout::{CHUNK_HEADER_BYTES, PageLayout};
use crate::sync::{AtomicU16, AtomicU32};
use watershed_simd::SharedBytes;

/// Payload bytes that a modelled chunk has.
pub(crate) const PAYLOAD_BYTES: usize = 4;

#[derive(Debug)]
struct Chunk {
    chunk_id: AtomicU32,
    writer_id: AtomicU16,
    fragments: AtomicU16,
    payload: [AtomicU8; PAYLOAD_BYTES],
    /// Accessed by the chunk's owner: loom reports two owners whose accesses are not ordered.
    owner: UnsafeCell<()>,
}

#[derive(Debug)]
pub(crate) struct Model {
    page_size_bytes: usize,
    words: Vec<AtomicU32>,
    /// Behind the bitmap of each page.
    reserved: Vec<AtomicU32>,
    /// By offset of the chunk header.
    chunks: BTreeMap<usize, Chunk>,
}

#[derive(Clone, Debug)]
pub(crate) struct Region(Arc<Model>);

impl Region {
    pub(crate) fn new(layouts: &[PageLayout], page_size_bytes: usize) -> Self {
        let words = || layouts.iter().map(|_| AtomicU32::new(0)).collect();
        let chunks = layouts.iter().enumerate().flat_map(|(page, layout)| {
            (0..layout.num_chunks())
                .map(move |i| page * page_size_bytes + layout.chunk_offset_bytes(page_size_bytes, i))
        });
        let chunk = || Chunk {
            chunk_id: AtomicU32::new(0),
            writer_id: AtomicU16::new(0),
            fragments: AtomicU16::new(0),
            payload: [(); PAYLOAD_BYTES].map(|()| AtomicU8::new(0)),
            owner: UnsafeCell::new(()),
        };
        let chunks = chunks.map(|offset| (offset, chunk())).collect();
        Self(Arc::new(Model { page_size_bytes, words: words(), reserved: words(), chunks }))
    }

    pub(crate) fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    pub(crate) fn page_size_bytes(&self) -> usize {
        self.0.page_size_bytes
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.0.words.len() * self.0.page_size_bytes
    }

    pub(crate) fn page_word(&self, offset: usize) -> &AtomicU32 {
        let words =
            if offset.is_multiple_of(self.0.page_size_bytes) { &self.0.words } else { &self.0.reserved };
        &words[offset / self.0.page_size_bytes]
    }

    fn chunk(&self, offset: usize) -> &Chunk {
        &self.0.chunks[&offset]
    }

    pub(crate) fn header(&self, offset: usize) -> HeaderWords<'_> {
        let chunk = self.chunk(offset);
        HeaderWords { chunk_id: &chunk.chunk_id, writer_id: &chunk.writer_id, fragments: &chunk.fragments }
    }

    fn payload(&self, offset: usize, len: usize) -> (&Chunk, &[AtomicU8]) {
        let (start, chunk) =
            self.0.chunks.range(..=offset - CHUNK_HEADER_BYTES).next_back().expect("inside a chunk");
        let from = offset - start - CHUNK_HEADER_BYTES;
        (chunk, &chunk.payload[from..from + len])
    }

    pub(crate) fn copy_out(&self, offset: usize, dst: &mut [u8]) {
        let (_, bytes) = self.payload(offset, dst.len());
        for (to, from) in dst.iter_mut().zip(bytes) {
            *to = from.load(Ordering::Relaxed);
        }
    }

    pub(crate) fn shared_bytes(&self, _offset: usize, _len: usize) -> Option<SharedBytes<'_>> {
        None
    }

    pub(crate) fn copy_in(&self, offset: usize, src: &[u8]) {
        let (chunk, bytes) = self.payload(offset, src.len());
        chunk.owner.with_mut(|_| ());
        for (from, to) in src.iter().zip(bytes) {
            to.store(*from, Ordering::Relaxed);
        }
    }

    /// Tells loom that the caller owns the chunk at `offset`: the model fails if another owner's
    /// access is not ordered before or after it.
    pub(crate) fn witness_exclusive(&self, offset: usize) {
        self.chunk(offset).owner.with_mut(|_| ());
    }
}
