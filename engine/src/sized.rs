//! Sizing: what a record needs to know of a chunk's fragments, from one look at its bytes.

use crate::buffer::SPANS;
use crate::config::ChunkInfo;
use crate::ids::ChunkFlags;
use crate::records::bit;
use crate::sizes::Extent;
use crate::tbchunk::outer_bytes;
use watershed_simd::walk::MAX_HEADER_BYTES;
use watershed_simd::{Span, Stop};

/// Why fewer fragments are visible than were declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// A fragment is missing or malformed.
    Malformed,
    /// The writer gave up its packet.
    Abort,
}

/// A chunk whose fragments have been looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizedChunk<'a> {
    pub(crate) info: &'a ChunkInfo,
    pub(crate) key: u32,
    /// The visible fragments, and nothing else.
    pub(crate) visible: &'a [u8],
    pub(crate) reserved_bytes: usize,
    /// The flags that count: those of the header, less what a cut makes meaningless.
    pub(crate) flags: u8,
    pub(crate) cut: Option<Cut>,
    pub(crate) fragments: usize,
    pub(crate) first_bytes: u16,
    /// FIRST_EMPTY, LAST_EMPTY and ONE_PART of ends that belong to packets of other chunks too, DELIVERABLE.
    pub(crate) summary: u16,
}

impl SizedChunk<'_> {
    #[inline]
    pub(crate) fn outer_bytes(&self) -> usize {
        outer_bytes(self.reserved_bytes)
    }

    /// The bits of the record: flags, what a cut leaves, the summary.
    #[inline]
    pub(crate) fn bits(&self) -> u16 {
        let incomplete = if self.info.complete { 0 } else { bit::INCOMPLETE };
        u16::from(self.flags) & bit::KNOWN_FLAGS | incomplete | self.summary
    }
}

/// What a chunk loses with its last fragment.
const TIED_TO_LAST: u8 = ChunkFlags::LAST_CONTINUES.0 | ChunkFlags::NEEDS_PATCHING.0;

/// Looks at the fragments of a chunk: how many are visible, and what the record needs to know about them. Spans of the first
/// [`SPANS`] are left in `spans`.
#[inline(always)]
pub(crate) fn size_fragments<'a>(
    info: &'a ChunkInfo,
    key: u32,
    bytes: &'a [u8],
    spans: &mut [Span],
) -> SizedChunk<'a> {
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
    if fragments == SPANS && count > SPANS {
        let rest = size_more(bytes, count - fragments, visible_bytes);
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
    SizedChunk {
        info,
        key,
        visible: &bytes[..visible_bytes],
        reserved_bytes: if info.complete { visible_bytes } else { bytes.len() },
        flags,
        cut,
        fragments,
        // 0 of none, as the default span says.
        first_bytes: first.total_bytes() as u16,
        summary,
    }
}

/// Fragments behind the first [`SPANS`].
struct More {
    fragments: usize,
    header_bytes: usize,
    /// Of all fragments.
    visible_bytes: usize,
    last: Option<Span>,
    stop: Stop,
}

/// Looks for `count` more fragments from `visible_bytes` on. Only hostile chunks have as many.
#[cold]
#[inline(never)]
fn size_more(bytes: &[u8], count: usize, visible_bytes: usize) -> More {
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

/// FIRST_EMPTY, LAST_EMPTY and ONE_PART of ends that belong to packets of other chunks too, DELIVERABLE: of a chunk whose fragments have `header_bytes`
/// together. `ends` are the first fragment and the last.
#[inline(always)]
pub(crate) fn summary(
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
    // Usually those that are packets by themselves have more bytes than their headers can have.
    let has_body =
        bytes > whole * MAX_HEADER_BYTES || bytes > 0 && bytes + header_bytes_of_ends > header_bytes();
    summary | if has_body { bit::DELIVERABLE } else { 0 }
}

/// Whether a fragment ends after `skip` visible bytes.
pub(crate) fn ends_a_fragment(chunk: &SizedChunk<'_>, spans: &[Span], skip: usize) -> bool {
    let mut end = 0;
    for span in &spans[..chunk.fragments.min(SPANS)] {
        if end >= skip {
            break;
        }
        end += span.total_bytes();
    }
    // Behind the spans that were kept nothing is known: the bytes are tested as they are read.
    end == skip
}
