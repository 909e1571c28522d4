//! Packets over several chunks: looked for, put together, consumed.
//!
//! ```text
//!   front                 next                  next
//!   | ... | whole | begin | continuation ------ | end | whole | ...
//!                   ^ the reader is here          ^ first fragments: records know their sizes
//! ```

use std::ptr::NonNull;

use super::walk::{Next, Position};
use super::{Reader, Reassembly};
use crate::ids::{ChunkId, LossReasons};
use crate::index::fragment_sizes::{self as sizes, Extent, Token};
use crate::index::records::{Record, Slot, bit};
use crate::packet::Pieces;
use crate::ring::tbchunk::HEADER_BYTES;
use crate::store::{Consumer, Store};

/// What became of a packet that continues in later records.
pub(super) enum MultiChunk {
    Found(Pieces),
    /// Empty or lost.
    Gone,
    Stalled,
}

/// The first unread fragment of a record that the look-ahead has reached.
enum First {
    Continuation,
    End,
    /// Whole or begin.
    Other,
    Nothing {
        is_damaged: bool,
    },
}

impl Reader {
    /// A packet that continues in later records: puts it together, or gives it up, or waits.
    #[inline(never)]
    pub(super) fn take_multi_chunk(
        &mut self,
        store: &mut Store,
        sequence: u32,
        begin: Extent,
        by: Consumer,
    ) -> MultiChunk {
        let outcome = self.look_ahead(store, sequence);
        if outcome == Reassembly::Success {
            store.accounts.stats.readaheads_succeeded += 1;
        } else {
            store.accounts.stats.readaheads_failed += 1;
        }
        let listed = store.index.sequences.get_mut(sequence);
        let is_old = listed.is_front_of_an_old_life();
        match outcome {
            Reassembly::Success => return self.take_chain(store, begin, by),
            Reassembly::NotEnoughData if by == Consumer::Reader && !is_old => {
                listed.stalled_in = self.generation;
                return MultiChunk::Stalled;
            }
            _ => {}
        }
        listed.add_loss(match outcome {
            Reassembly::Loss(reasons) => reasons,
            _ if by == Consumer::Evictor => LossReasons::OVERWRITE,
            // Its writer has ended: the rest will not come.
            _ => LossReasons::REASSEMBLY_BROKEN_CHAIN,
        });
        self.consume(store, begin, by);
        self.consume_chain(store, by);
        MultiChunk::Gone
    }

    /// Takes the packet that begins at the position and whose other parts are in the chain.
    fn take_chain(&mut self, store: &mut Store, begin: Extent, by: Consumer) -> MultiChunk {
        let first = self.position.body(store, begin);
        self.bodies.clear();
        self.bodies.push(first);
        let rest = self.chain.iter().map(|&slot| first_body(store, slot));
        self.bodies.extend(rest);
        self.bodies.retain(|body| !body.is_empty());
        self.consume(store, begin, by);
        self.consume_chain(store, by);
        if self.bodies.is_empty() {
            return MultiChunk::Gone;
        }
        MultiChunk::Found(NonNull::from_mut(self.bodies.as_mut_slice()))
    }

    /// Consumes the first fragments of the records in the chain.
    pub(crate) fn consume_chain(&self, store: &mut Store, by: Consumer) {
        for &slot in &self.chain {
            store.consume_first(slot, by);
        }
    }

    /// Whether no fragment of the chain has a body. Nothing of its records may have been consumed.
    pub(crate) fn is_chain_empty(&self, store: &Store) -> bool {
        self.chain.iter().all(|&slot| store.index.records.get(slot).has(bit::FIRST_EMPTY))
    }

    /// Empties the chain.
    pub(crate) fn clear_chain(&mut self) {
        self.chain.clear();
    }

    /// Looks for the rest of the packet that begins at the end of the front record. Nothing is
    /// consumed. The records that hold parts of it are in the chain, whatever the outcome.
    fn look_ahead(&mut self, store: &Store, sequence: u32) -> Reassembly {
        self.chain.clear();
        let front = store.index.records.get(store.index.sequences.get(sequence).queue.get(0));
        if front.has(bit::NEEDS_PATCHING) || front.has(bit::LIFE_END) {
            return Reassembly::NotEnoughData;
        }
        self.look_behind(store, sequence, 1, ChunkId(front.chunk_id))
    }

    /// As [`look_ahead`](Self::look_ahead) from `start` on in the queue of the sequence, behind a
    /// part in chunk `id`.
    pub(crate) fn look_behind(
        &mut self,
        store: &Store,
        sequence: u32,
        start: usize,
        mut id: ChunkId,
    ) -> Reassembly {
        self.chain.clear();
        let queue = &store.index.sequences.get(sequence).queue;
        for index in start..queue.len() {
            let slot = queue.get(index);
            let record = store.index.records.get(slot);
            let first = first_unread(store, slot);
            if record.has(bit::NEEDS_PATCHING) && !matches!(first, First::End) {
                return Reassembly::NotEnoughData;
            }
            id = id.successor();
            if record.chunk_id != id.0 {
                return Reassembly::Loss(LossReasons::REASSEMBLY_GAP);
            }
            match first {
                First::Continuation => self.chain.push(slot),
                First::End => {
                    self.chain.push(slot);
                    return Reassembly::Success;
                }
                First::Other => return Reassembly::Loss(LossReasons::REASSEMBLY_BROKEN_CHAIN),
                First::Nothing { is_damaged } if is_damaged || record.has(bit::CUT) => {
                    return Reassembly::Loss(LossReasons::CHUNK_CORRUPTED);
                }
                First::Nothing { .. } if record.has(bit::INCOMPLETE) => return Reassembly::NotEnoughData,
                First::Nothing { .. } => {}
            }
            if record.has(bit::LIFE_END) {
                return Reassembly::NotEnoughData;
            }
        }
        Reassembly::NotEnoughData
    }
}

#[inline]
fn first_unread(store: &Store, slot: Slot) -> First {
    let record = store.index.records.get(slot);
    if record.unread_bytes == 0 {
        return First::Nothing { is_damaged: false };
    }
    if record.is_unaligned() {
        return first_unaligned(store, slot);
    }
    if record.has(bit::STARTED) || !record.has(bit::FIRST_CONTINUES) {
        return First::Other;
    }
    if goes_on(record) { First::Continuation } else { First::End }
}

/// The bytes of a hostile recommit: what is where reading stopped?
#[cold]
fn first_unaligned(store: &Store, slot: Slot) -> First {
    let (position, is_inside) = Position::in_slot(store, slot);
    let position = if is_inside { position.skip_consumed(store) } else { position };
    match position.fragment(store) {
        Next::Fragment(..) => First::Other,
        Next::Nothing { is_damaged } => First::Nothing { is_damaged },
    }
}

/// Whether the first fragment of a record, which continues a packet, does not end it.
#[inline]
fn goes_on(record: &Record) -> bool {
    const MIDDLE: u16 = bit::ONE_PART | bit::LAST_CONTINUES;
    record.bits & MIDDLE == MIDDLE
}

/// The body of the first fragment of a record of which nothing was consumed.
fn first_body(store: &Store, slot: Slot) -> *const [u8] {
    let (record, sizes) = store.index.records.with_sizes(slot);
    let payload = record.offset() + HEADER_BYTES;
    let total = usize::from(store.index.records.first_bytes(slot));
    let header = match sizes::split_first(sizes) {
        Some((extent, _)) => extent.header_bytes as usize,
        None => match sizes::token(store.ring.bytes(payload, total)) {
            Token::Fragment(extent) => extent.header_bytes as usize,
            _ => total,
        },
    };
    std::ptr::slice_from_raw_parts(store.ring.pointer(payload + header), total - header)
}
