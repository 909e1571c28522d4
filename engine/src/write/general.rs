//! The general path: chunks of any kind, as far as they are not ordinary.

use super::WriteParts;
use super::parsed::{Cut, ParsedChunk, parse_fragments};
use crate::config::ChunkInfo;
use crate::ids::{ChunkId, LossReasons};
use crate::index::Index;
use crate::index::fragment_sizes::MAX_SPANS;
use crate::index::records::bit;
use crate::index::sequence::{Ended, Sequence};
use watershed_simd::Span;

impl WriteParts<'_> {
    /// Commits any chunk. `opened` is its sequence, if that is known.
    #[inline(never)]
    pub(super) fn commit_general(
        mut self,
        info: &ChunkInfo,
        key: u64,
        bytes: &[u8],
        spans: &mut [Span; MAX_SPANS],
        opened: Option<u32>,
    ) {
        let id = info.chunk_id;
        let (mut is_new_life, mut found) = (false, Err(0));
        if let Some(sequence) = opened {
            let Index { records, sequences, .. } = &self.store.index;
            let sequence = sequences.get(sequence);
            is_new_life = sequence.ended.is_some() && starts_new_life(sequence, id);
            found = if is_new_life { Err(sequence.queue.len()) } else { sequence.find(records, id) };
        }
        if self.writer.is_sealed && found.is_err() {
            self.store.accounts.stats.chunks_discarded += 1;
        } else {
            let chunk = parse_fragments(info, key, bytes, spans);
            self.commit_parsed(&chunk, spans, opened, is_new_life, found);
        }
        if let Some(sequence) = opened {
            self.store.index.sequences.release(sequence);
        }
    }

    /// Decides what becomes of a chunk that has been parsed. `found` says where it is listed, or
    /// where it belongs.
    fn commit_parsed(
        &mut self,
        chunk: &ParsedChunk<'_>,
        spans: &[Span; MAX_SPANS],
        opened: Option<u32>,
        is_new_life: bool,
        found: Result<usize, usize>,
    ) {
        if chunk.cut == Some(Cut::Malformed) {
            self.store.accounts.stats.abi_violations += 1;
        }
        if chunk.outer_bytes() > self.store.ring.space.size_bytes() {
            self.store.accounts.stats.abi_violations += 1;
            if let (Some(sequence), Err(at), true, false) = (opened, found, chunk.info.complete, is_new_life)
            {
                self.mark_oversize(sequence, at, chunk.info.chunk_id);
            }
            return;
        }
        match (opened, found) {
            (Some(sequence), Ok(at)) => self.recommit(chunk, spans, sequence, at),
            (Some(sequence), Err(at)) => {
                let behind = self.store.index.sequences.get(sequence).queue.len() - at;
                if is_new_life {
                    self.store.index.start_life(sequence, chunk.info.identity_trusted);
                }
                if let Some(skip) = self.admit_unlisted(chunk, sequence) {
                    self.append(chunk, spans, sequence, skip, behind);
                }
            }
            (None, _) => {
                let index = &mut self.store.index;
                let sequence = index.create_sequence(chunk.key, chunk.info.identity_trusted);
                self.append(chunk, spans, sequence, 0, 0);
                self.store.index.sequences.release(sequence);
            }
        }
    }

    /// Compares an unlisted chunk with what was consumed last. None if it comes too late, else how
    /// many of its bytes have been consumed.
    #[inline]
    fn admit_unlisted(&mut self, chunk: &ParsedChunk<'_>, sequence: u32) -> Option<usize> {
        let sequence = self.store.index.sequences.get(sequence);
        let Some(last) = sequence.last_of_newest_life() else { return Some(0) };
        let id = chunk.info.chunk_id;
        if id.is_newer_than(last.chunk_id) {
            return Some(0);
        }
        let payload_bytes = usize::from(last.payload_bytes);
        if id == last.chunk_id && last.incomplete && chunk.visible.len() > payload_bytes {
            return Some(payload_bytes);
        }
        if id == last.chunk_id && chunk.visible.len() == payload_bytes {
            self.store.accounts.duplicate_commits += 1;
        } else {
            self.store.accounts.stats.chunks_discarded += 1;
        }
        None
    }

    /// A chunk larger than the buffer gets no record: its loss is noted where it would have been.
    #[cold]
    fn mark_oversize(&mut self, sequence: u32, at: usize, id: ChunkId) {
        let Index { records, sequences, .. } = &mut self.store.index;
        let listed = sequences.get_mut(sequence);
        if listed.last_of_newest_life().is_some_and(|last| !id.is_newer_than(last.chunk_id)) {
            return;
        }
        match at.checked_sub(1) {
            None => listed.add_loss(LossReasons::CHUNK_CORRUPTED),
            Some(before) => records.get_mut(listed.queue.get(before)).bits |= bit::CUT,
        }
    }
}

/// Whether a chunk comes from another writer than the one that has ended.
fn starts_new_life(sequence: &Sequence, id: ChunkId) -> bool {
    match sequence.ended {
        None => false,
        Some(Ended::Producer) => true,
        Some(Ended::Writer) => {
            let consumed = sequence.last_of_newest_life().map(|last| last.chunk_id);
            [sequence.newest_listed(), consumed].into_iter().flatten().any(|known| !id.is_newer_than(known))
        }
    }
}
