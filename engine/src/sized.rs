//! Sizing: what a record needs to know of a chunk's fragments, from one look at its bytes.

use crate::buffer::SPANS;
use crate::config::ChunkInfo;
use crate::ids::ChunkFlags;
use crate::records::bit;
use crate::tbchunk::outer_bytes;
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
    /// FIRST_EMPTY and LAST_EMPTY of ends that belong to packets of other chunks too, DELIVERABLE.
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
    let has_ends = flags & (ChunkFlags::FIRST_CONTINUES.0 | ChunkFlags::LAST_CONTINUES.0) != 0;
    let (body_of_ends, empty_ends) =
        if has_ends && fragments > 0 { ends(flags, fragments, first, last) } else { (0, 0) };
    // Usually there are more bytes than all headers together can have.
    let is_deliverable = visible_bytes > body_of_ends + fragments * 10
        || visible_bytes > body_of_ends + header_bytes_of(found) + more_header_bytes;
    let summary = empty_ends | if is_deliverable { bit::DELIVERABLE } else { 0 };
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

/// Of the fragments that are no packets by themselves: their body bytes, and which of them is empty.
#[inline]
pub(crate) fn ends(flags: u8, fragments: usize, first: Span, last: Span) -> (usize, u16) {
    let continues = flags & ChunkFlags::FIRST_CONTINUES.0 != 0;
    let goes_on = flags & ChunkFlags::LAST_CONTINUES.0 != 0;
    let of_first = if continues { first.body_bytes() } else { 0 };
    let of_last = if goes_on && fragments > usize::from(continues) { last.body_bytes() } else { 0 };
    let first_empty = if continues && first.body_bytes() == 0 { bit::FIRST_EMPTY } else { 0 };
    let last_empty = if goes_on && last.body_bytes() == 0 { bit::LAST_EMPTY } else { 0 };
    (of_first + of_last, first_empty | last_empty)
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
