//! Sizes of fragments, kept beside the payload so that a read does not touch it.
//!
//! ```text
//!   one entry:    15      12 11                 0
//!                | header    | total bytes       |      header 1..=10, total < 4096
//!   two entries: | 15        | header            |  | total bytes (16 bits) |
//! ```
//!
//! Sizes are kept when they take at most one byte for 16 of payload. Denser chunks are parsed again
//! when they are read, in the ring's own copy.

use std::mem::MaybeUninit;
use watershed_simd::Span;
use watershed_simd::walk::{ENTRY_HEADER_SHIFT, MAX_ENTRY_BYTES};

/// Fragments of a chunk that are parsed at a time.
pub(crate) const MAX_SPANS: usize = 1024;

const WIDE: u16 = 15 << 12;
const MAX_NARROW: usize = 0xfff;

/// Most entries of an ordinary chunk: more than a writer can declare (1023).
pub(crate) const MAX_ENTRIES: usize = 1024;

// What the walk over an ordinary chunk writes can be kept as it is.
const _: () = assert!(1 << ENTRY_HEADER_SHIFT == MAX_NARROW + 1 && MAX_ENTRY_BYTES == MAX_NARROW);

/// Header bytes of an entry that is not wide.
#[inline]
pub(crate) fn header_of_narrow(entry: u16) -> usize {
    usize::from(entry >> ENTRY_HEADER_SHIFT)
}

/// Bytes of the fragment of an entry that is not wide.
#[inline]
pub(crate) fn total_of_narrow(entry: u16) -> usize {
    usize::from(entry) & MAX_NARROW
}

/// The fragment of an entry that is not wide.
#[inline]
pub(crate) fn extent_of_narrow(entry: u16) -> Extent {
    Extent { header_bytes: header_of_narrow(entry) as u32, total_bytes: total_of_narrow(entry) as u32 }
}

/// Header and total size of one fragment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Extent {
    pub(crate) header_bytes: u32,
    /// Header included.
    pub(crate) total_bytes: u32,
}

impl Extent {
    /// Entries that this size takes in a list.
    #[inline]
    pub(crate) fn entries(self) -> usize {
        entries(self.total_bytes as usize)
    }
}

/// Entries that the size of a fragment takes in a list.
#[inline]
pub(crate) fn entries(total_bytes: usize) -> usize {
    if total_bytes <= MAX_NARROW { 1 } else { 2 }
}

/// The least mean size of fragments whose sizes are kept.
pub(crate) const MIN_MEAN_BYTES: usize = 32;

/// Whether the sizes of this many fragments may be kept.
#[inline]
pub(crate) fn is_worth_keeping(fragments: usize, visible_bytes: usize) -> bool {
    // A wide entry is for 4096 bytes or more, so counting it once keeps the bound.
    fragments != 0 && fragments * MIN_MEAN_BYTES <= visible_bytes
}

/// Appends the sizes of the first `count` fragments, of at most 65535 bytes each and
/// `visible_bytes` in all, and pads the list to an even length.
#[inline(always)]
pub(crate) fn append(sizes: &mut Vec<u16>, spans: &[Span; MAX_SPANS], count: usize, visible_bytes: usize) {
    const GROUP: usize = 8;
    let narrow = |span: Span| (span.header_bytes() << 12 | span.total_bytes()) as u16;
    let found = &spans[..count];
    // Ordinary chunks: no size is wide.
    if visible_bytes <= MAX_NARROW || found.iter().all(|span| span.total_bytes() <= MAX_NARROW) {
        // Whole groups become vector code; the surplus is cut off again.
        let end = sizes.len() + count;
        if sizes.capacity() < end + 2 * GROUP {
            grow(sizes, count + 2 * GROUP);
        }
        let groups = spans.as_chunks::<{ 2 * GROUP }>().0;
        for group in &groups[..count.div_ceil(2 * GROUP)] {
            sizes.extend_from_slice(&group.map(narrow));
        }
        sizes.truncate(end);
    } else {
        append_wide(sizes, found);
    }
    if !sizes.len().is_multiple_of(2) {
        sizes.push(0);
    }
}

/// Appends the first `count` entries, none of them wide, and pads the list to an even length.
#[inline(always)]
pub(crate) fn append_narrow(sizes: &mut Vec<u16>, entries: &[u16; MAX_ENTRIES], count: usize) {
    const GROUP: usize = 16;
    let even = count.next_multiple_of(2);
    if sizes.capacity() - sizes.len() < even + GROUP {
        grow(sizes, even + GROUP);
    }
    let len = sizes.len() + even;
    let room = sizes.spare_capacity_mut();
    let Some((to, more)) = room.split_first_chunk_mut::<GROUP>() else { return };
    // A copy of fixed length is a few instructions; the next one overwrites the surplus.
    *to = std::array::from_fn(|i| MaybeUninit::new(entries[i]));
    if count > GROUP {
        for (to, from) in more.iter_mut().zip(&entries[GROUP..even]) {
            to.write(*from);
        }
    }
    // SAFETY: the list has room for all entries, and at least `len` of them were written: one
    // group, or all.
    unsafe { sizes.set_len(len) };
}

/// Makes room for more. By an eighth, since most of the memory beside the payload is in such lists;
/// later records use it again. By some records' sizes at least, or short lists would grow with
/// nearly each of them.
#[cold]
#[inline(never)]
fn grow(sizes: &mut Vec<u16>, more: usize) {
    const LEAST: usize = 128;
    sizes.reserve_exact(more.max(LEAST).max(sizes.len() / 8));
}

/// Gives back memory of a list that does not grow any more, unless it is nearly full: a block of
/// small records does not keep what one of large records needed.
pub(crate) fn fit(sizes: &mut Vec<u16>) {
    if sizes.capacity() > sizes.len() + sizes.len() / 4 {
        sizes.shrink_to_fit();
    }
}

#[cold]
fn append_wide(sizes: &mut Vec<u16>, spans: &[Span]) {
    for span in spans {
        let (header, total) = (span.header_bytes(), span.total_bytes());
        if total <= MAX_NARROW {
            sizes.push((header << 12 | total) as u16);
        } else {
            sizes.extend([WIDE | header as u16, total as u16]);
        }
    }
}

/// The fragment whose size is in one entry. None if it takes two.
#[inline(always)]
pub(crate) fn narrow(entry: u16) -> Option<Extent> {
    let (header_bytes, total_bytes) = (u32::from(entry >> 12), u32::from(entry) & MAX_NARROW as u32);
    (entry < WIDE).then_some(Extent { header_bytes, total_bytes })
}

/// The first fragment of a list, and the rest of it. None at its end.
#[inline]
pub(crate) fn split_first(sizes: &[u16]) -> Option<(Extent, &[u16])> {
    let (&first, rest) = sizes.split_first()?;
    if let Some(extent) = narrow(first) {
        return Some((extent, rest));
    }
    let (&total, rest) = rest.split_first()?;
    Some((Extent { header_bytes: u32::from(first & !WIDE), total_bytes: u32::from(total) }, rest))
}

/// Bytes of the first fragment of a list; 0 at its end.
#[inline(always)]
pub(crate) fn first_total(sizes: &[u16]) -> u16 {
    match *sizes {
        [first, ..] if first < WIDE => first & MAX_NARROW as u16,
        [_, total, ..] => total,
        _ => 0,
    }
}

/// What the bytes of a fragment's header say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    Fragment(Extent),
    /// No bytes, or the drop marker: nothing more, and nothing wrong.
    End,
    Malformed,
}

/// Parses one header in the ring's own copy of a chunk.
#[inline]
pub(crate) fn token(bytes: &[u8]) -> Token {
    match bytes.first() {
        None => return Token::End,
        Some(&size) if size < 0x80 && usize::from(size) < bytes.len() => {
            return Token::Fragment(Extent { header_bytes: 1, total_bytes: u32::from(size) + 1 });
        }
        Some(_) => {}
    }
    let mut span = [Span::default()];
    let walk = watershed_simd::walk(bytes, 1, &mut span);
    match walk.stop {
        _ if walk.fragments == 1 => Token::Fragment(Extent {
            header_bytes: span[0].header_bytes() as u32,
            total_bytes: span[0].total_bytes() as u32,
        }),
        watershed_simd::Stop::DropMarker | watershed_simd::Stop::End => Token::End,
        _ => Token::Malformed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_come_back() {
        let spans: Vec<Span> = [(1, 1), (1, 128), (4, 4095), (10, 10), (3, 4096), (4, 65535)]
            .map(|(h, t)| Span::new(h, t))
            .into();
        let mut sizes = Vec::new();
        let mut all = [Span::default(); MAX_SPANS];
        all[..spans.len()].copy_from_slice(&spans);
        append(&mut sizes, &all, spans.len(), spans.iter().map(|span| span.total_bytes()).sum());
        assert_eq!(sizes.len(), spans.len() + 2, "two of them are wide");
        let mut rest = sizes.as_slice();
        for span in &spans {
            let (extent, behind) = split_first(rest).unwrap();
            assert_eq!(extent.header_bytes as usize, span.header_bytes());
            assert_eq!(extent.total_bytes as usize, span.total_bytes());
            rest = behind;
        }
        assert_eq!(split_first(rest), None);
    }

    #[test]
    fn tokens() {
        let fragment = |header_bytes, total_bytes| Token::Fragment(Extent { header_bytes, total_bytes });
        assert_eq!(token(&[]), Token::End);
        assert_eq!(token(&[0]), fragment(1, 1));
        assert_eq!(token(&[2, 9, 9]), fragment(1, 3));
        assert_eq!(token(&[0x81, 0x80, 0x80, 0, 7]), fragment(4, 5));
        assert_eq!(token(&[0xff, 0xff, 0xff, 0x7f]), Token::End, "the drop marker");
        assert_eq!(token(&[3, 1, 1]), Token::Malformed);
        assert_eq!(token(&[0x80]), Token::Malformed);
    }
}
