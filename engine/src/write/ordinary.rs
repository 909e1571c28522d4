//! The fast path of ordinary chunks, which nearly all are: complete, the newest of their sequence
//! or nearly so, with as many fragments as were declared, none of them above 4,095 bytes, and with
//! room before the end of the ring, or in the next extent.
//!
//! It does what the general path would, without what is known beforehand.

use super::parsed::summary;
use super::{Insertion, Opened, WriteParts};
use crate::ids::ChunkFlags;
use crate::index::fragment_sizes::{self as sizes, MAX_ENTRIES};
use crate::index::records::{Record, bit};
use crate::ring::Payload;
use crate::ring::tbchunk::{TbChunk, outer_bytes};
use watershed_simd::walk::MAX_HEADER_BYTES;

impl WriteParts<'_> {
    /// Commits a chunk whose fragments have these sizes. False, and nothing done, if it is not
    /// ordinary: then it may have no payload.
    #[inline(always)]
    pub(super) fn commit_ordinary(
        &mut self,
        chunk: &Opened<'_>,
        payload: &impl Payload,
        entries: &[u16; MAX_ENTRIES],
        Insertion { sequence, behind }: Insertion,
    ) -> bool {
        let WriteParts { store, reader, evictor, .. } = self;
        let (info, fragments, visible_bytes) = (chunk.info, chunk.num_fragments(), payload.len());
        let outer = outer_bytes(visible_bytes);
        // No byte is visible of what is not ordinary.
        if visible_bytes == 0 {
            return false;
        }
        let is_one_ring = store.ring.space.extents().is_none();
        if !store.ring.space.fits(outer) {
            if is_one_ring {
                return false;
            }
            store.make_room_in_extents(outer);
        }
        // In extents the room behind the cursor is free.
        if is_one_ring {
            evictor.pin(sequence);
            evictor.make_room(store, reader, outer);
        }
        let offset = store.ring.space.cursor();
        let flags = info.flags.0 & ChunkFlags::FIELD.0;
        let mut packets = bit::DELIVERABLE;
        // Without such flags headers alone may be visible, but only in so few bytes.
        if flags & ENDS != 0 || visible_bytes <= fragments * MAX_HEADER_BYTES {
            packets = summary_of_ends(flags, visible_bytes, &entries[..fragments]);
        }
        let record = Record {
            sequence,
            chunk_id: info.chunk_id.0,
            unread_bytes: visible_bytes as u16,
            bits: u16::from(flags) & bit::KNOWN_FLAGS | packets,
            ..Record::padding(offset)
        };
        let slot = if sizes::is_worth_keeping(fragments, visible_bytes) {
            store.index.records.push_with_sizes(record, entries, fragments)
        } else {
            let first_bytes = sizes::total_of_narrow(entries[0]) as u16;
            store.index.records.push_back(Record { sizes_or_first: first_bytes, ..record })
        };
        let header = TbChunk {
            chunk_id: info.chunk_id.0,
            key_low: chunk.key as u32,
            reserved_bytes: visible_bytes as u16,
            visible_bytes: visible_bytes as u16,
            unread_bytes: visible_bytes as u16,
            flags,
            checksum: 0,
        };
        store.ring.write_record(outer, header, payload);
        store.note_written(slot, offset, outer);
        if store.index.list(slot, sequence, info.chunk_id, behind, visible_bytes) {
            store.accounts.stats.chunks_committed_out_of_order += 1;
        }
        true
    }
}

/// Flags of chunks that have fragments of packets that are in other chunks too.
const ENDS: u8 = ChunkFlags::FIRST_CONTINUES.0 | ChunkFlags::LAST_CONTINUES.0;

/// As [`summary`], of a chunk with such flags, or with none.
#[inline(always)]
fn summary_of_ends(flags: u8, visible_bytes: usize, entries: &[u16]) -> u16 {
    let ([first, ..], [.., last]) = (entries, entries) else { return 0 };
    let is_empty = |entry: u16| sizes::header_of_narrow(entry) == sizes::total_of_narrow(entry);
    let (mut summary, mut whole, mut bytes) = (0, entries.len(), visible_bytes);
    if flags & ChunkFlags::FIRST_CONTINUES.0 != 0 {
        summary |= if is_empty(*first) { bit::FIRST_EMPTY } else { 0 };
        summary |= if whole == 1 { bit::ONE_PART } else { 0 };
        (whole, bytes) = (whole - 1, bytes - sizes::total_of_narrow(*first));
    }
    if flags & ChunkFlags::LAST_CONTINUES.0 != 0 {
        summary |= if is_empty(*last) { bit::LAST_EMPTY } else { 0 };
        // One fragment may be both.
        if whole != 0 {
            (whole, bytes) = (whole - 1, bytes - sizes::total_of_narrow(*last));
        }
    }
    match bytes {
        0 => summary,
        // More than their headers can have.
        _ if bytes > whole * MAX_HEADER_BYTES => summary | bit::DELIVERABLE,
        _ => summary_by_headers(flags, visible_bytes, entries),
    }
}

/// The same where headers and bodies must be distinguished.
#[cold]
#[inline(never)]
fn summary_by_headers(flags: u8, visible_bytes: usize, entries: &[u16]) -> u16 {
    let ([first, ..], [.., last]) = (entries, entries) else { return 0 };
    let ends = [*first, *last].map(sizes::extent_of_narrow);
    let header_bytes = || entries.iter().map(|&entry| sizes::header_of_narrow(entry)).sum::<usize>();
    summary(flags, entries.len(), visible_bytes, ends, header_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_fast_summary_is_the_summary() {
        let all = [1 << 12 | 1, 1 << 12 | 2, 2 << 12 | 2, 4 << 12 | 5, 4 << 12 | 400, 2 << 12 | 2000];
        let mut some: Vec<Vec<u16>> = vec![Vec::new()];
        for len in 0..4 {
            let longer = some.iter().filter(|entries| entries.len() == len);
            let longer =
                longer.flat_map(|entries| all.iter().map(|&entry| [entries.as_slice(), &[entry]].concat()));
            some.extend(longer.collect::<Vec<_>>());
        }
        for entries in &some[1..] {
            let visible_bytes = entries.iter().map(|&entry| sizes::total_of_narrow(entry)).sum();
            for flags in 0..=ENDS {
                let expected = summary_by_headers(flags, visible_bytes, entries);
                assert_eq!(summary_of_ends(flags, visible_bytes, entries), expected, "{flags} {entries:x?}");
            }
        }
    }
}
