//! Parsing: what a record needs to know of a chunk's fragments, from one pass over its bytes.

use crate::config::ChunkInfo;
use crate::ids::ChunkFlags;
use crate::index::fragment_sizes::{Extent, MAX_SPANS};
use crate::index::records::bit;
use crate::ring::tbchunk::outer_bytes;
use watershed_simd::walk::MAX_HEADER_BYTES;
use watershed_simd::{Span, Stop};

/// Why fewer fragments are visible than were declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Cut {
    /// A fragment is missing or malformed.
    Malformed,
    /// The writer gave up its packet.
    Abort,
}

/// A chunk whose fragments have been parsed.
#[derive(Clone, Copy, Debug)]
pub(super) struct ParsedChunk<'a> {
    pub(super) info: &'a ChunkInfo,
    pub(super) key: u64,
    /// The visible fragments, and nothing else.
    pub(super) visible: &'a [u8],
    pub(super) reserved_bytes: usize,
    /// The flags that count: those of the header, without what a cut makes meaningless.
    pub(super) flags: u8,
    pub(super) cut: Option<Cut>,
    pub(super) fragments: usize,
    pub(super) first_bytes: u16,
    /// DELIVERABLE, and FIRST_EMPTY, LAST_EMPTY and ONE_PART of ends that belong to packets of
    /// other chunks too.
    pub(super) summary: u16,
}

impl ParsedChunk<'_> {
    #[inline]
    pub(super) fn outer_bytes(&self) -> usize {
        outer_bytes(self.reserved_bytes)
    }

    /// The bits of the record: flags, what a cut leaves, the summary.
    #[inline]
    pub(super) fn bits(&self) -> u16 {
        let incomplete = if self.info.complete { 0 } else { bit::INCOMPLETE };
        u16::from(self.flags) & bit::KNOWN_FLAGS | incomplete | self.summary
    }
}

/// What a chunk loses with its last fragment.
const TIED_TO_LAST: u8 = ChunkFlags::LAST_CONTINUES.0 | ChunkFlags::NEEDS_PATCHING.0;

/// Parses the fragments of a chunk: how many are visible, and what the record needs to know. Spans
/// of the first [`MAX_SPANS`] are left in `spans`.
#[inline(always)]
pub(super) fn parse_fragments<'a>(
    info: &'a ChunkInfo,
    key: u64,
    bytes: &'a [u8],
    spans: &mut [Span],
) -> ParsedChunk<'a> {
    let mut flags = info.flags.0 & ChunkFlags::FIELD.0;
    let mut count = usize::from(info.num_fragments);
    if !info.complete && count > 0 {
        count -= 1;
        flags &= !TIED_TO_LAST;
    }
    let walk = watershed_simd::walk(bytes, count, spans);
    let (mut fragments, mut visible_bytes, mut stop) = (walk.fragments, walk.visible_bytes, walk.stop);
    let found = &spans[..fragments];
    let (first, mut last) = match found {
        [] => (Span::default(), Span::default()),
        [first, .., last] => (*first, *last),
        [one] => (*one, *one),
    };
    let mut more_header_bytes = 0;
    if fragments == MAX_SPANS && count > MAX_SPANS {
        let rest = parse_more(bytes, count - fragments, visible_bytes);
        fragments += rest.fragments;
        visible_bytes = rest.visible_bytes;
        more_header_bytes = rest.header_bytes;
        last = rest.last.unwrap_or(last);
        stop = rest.stop;
    }
    let cut = match stop {
        _ if fragments == count => None,
        Stop::DropMarker => Some(Cut::Abort),
        _ => Some(Cut::Malformed),
    };
    if cut.is_some() {
        flags &= !TIED_TO_LAST;
    }
    let header_bytes = || header_bytes_of(found) + more_header_bytes;
    let ends = [first, last]
        .map(|end| Extent { header_bytes: end.header_bytes() as u32, total_bytes: end.total_bytes() as u32 });
    let summary = summary(flags, fragments, visible_bytes, ends, header_bytes);
    ParsedChunk {
        info,
        key,
        visible: &bytes[..visible_bytes],
        reserved_bytes: if info.complete { visible_bytes } else { bytes.len() },
        flags,
        cut,
        fragments,
        // 0 of no fragment, as the default span says.
        first_bytes: first.total_bytes() as u16,
        summary,
    }
}

/// Fragments behind the first [`MAX_SPANS`].
struct More {
    fragments: usize,
    header_bytes: usize,
    /// Of all fragments.
    visible_bytes: usize,
    last: Option<Span>,
    stop: Stop,
}

/// Parses `count` more fragments from `visible_bytes` on. Only hostile chunks have as many.
#[cold]
#[inline(never)]
fn parse_more(bytes: &[u8], count: usize, visible_bytes: usize) -> More {
    let mut more = More { fragments: 0, header_bytes: 0, visible_bytes, last: None, stop: Stop::Limit };
    let mut spans = [Span::default(); 64];
    while more.fragments < count && more.stop == Stop::Limit {
        let walk = watershed_simd::walk(&bytes[more.visible_bytes..], count - more.fragments, &mut spans);
        let found = &spans[..walk.fragments];
        more.fragments += walk.fragments;
        more.visible_bytes += walk.visible_bytes;
        more.header_bytes += header_bytes_of(found);
        more.last = found.last().copied().or(more.last);
        more.stop = walk.stop;
    }
    more
}

#[inline(never)]
fn header_bytes_of(spans: &[Span]) -> usize {
    spans.iter().map(|span| span.header_bytes()).sum()
}

/// The bits that [`ParsedChunk::summary`] names, of a chunk whose fragments have `header_bytes` in
/// all. `ends` are the first fragment and the last.
#[inline(always)]
pub(super) fn summary(
    flags: u8,
    fragments: usize,
    visible_bytes: usize,
    [first, last]: [Extent; 2],
    header_bytes: impl FnOnce() -> usize,
) -> u16 {
    let continues = flags & ChunkFlags::FIRST_CONTINUES.0 != 0 && fragments != 0;
    let goes_on = flags & ChunkFlags::LAST_CONTINUES.0 != 0 && fragments != 0;
    let first_empty = if first.header_bytes == first.total_bytes { bit::FIRST_EMPTY } else { 0 };
    let last_empty = if last.header_bytes == last.total_bytes { bit::LAST_EMPTY } else { 0 };
    if fragments == 1 && (continues || goes_on) {
        let as_first = if continues { bit::ONE_PART | first_empty } else { 0 };
        return as_first | if goes_on { last_empty } else { 0 };
    }
    let (mut summary, mut whole, mut bytes, mut header_bytes_of_ends) = (0, fragments, visible_bytes, 0);
    if continues {
        summary |= first_empty;
        (whole, bytes) = (whole - 1, bytes - first.total_bytes as usize);
        header_bytes_of_ends += first.header_bytes as usize;
    }
    if goes_on {
        summary |= last_empty;
        (whole, bytes) = (whole - 1, bytes - last.total_bytes as usize);
        header_bytes_of_ends += last.header_bytes as usize;
    }
    // Whole fragments usually have more bytes than their headers can have.
    let has_body =
        bytes > whole * MAX_HEADER_BYTES || bytes > 0 && bytes + header_bytes_of_ends > header_bytes();
    summary | if has_body { bit::DELIVERABLE } else { 0 }
}

/// Whether a fragment ends after `skip` visible bytes.
pub(super) fn ends_a_fragment(chunk: &ParsedChunk<'_>, spans: &[Span], skip: usize) -> bool {
    let mut end = 0;
    for span in &spans[..chunk.fragments.min(MAX_SPANS)] {
        if end >= skip {
            break;
        }
        end += span.total_bytes();
    }
    // Behind the spans that were kept nothing is known: the bytes are parsed as they are read.
    end == skip
}
