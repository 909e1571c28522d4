//! The fragment walk: `[varint size][body][varint size][body]...`
//!
//! ```text
//!   bytes   | 05 . . . . . | 83 80 80 00 . . . | 00 | ff ff ff 7f
//!   spans     6 (1 + 5)      7 (4 + 3)           1    DropMarker: the walk stops in front of it
//!           0              6                   13   14 = visible_bytes
//! ```
//!
//! A size is a base-128 varint of 1 to 10 bytes, redundant forms included; it counts the body alone. The next header's
//! place depends on this header's value, so the walk is one dependent chain: how fast it is depends on how
//! long each link takes and on how many chains are under way at once, hardly on the number of bytes.
//!
//! Source of the format: the shared-memory chunk payload (spec, trace-buffer 1.4). The tests that end a walk are made
//! in this order, and every version of the walk gives the answer of [`naive::walk`] on every input.

#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
pub(crate) mod blocks;
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
pub(crate) mod lanes;
pub(crate) mod long;
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
pub(crate) mod many;
pub mod naive;
pub(crate) mod one;
pub(crate) mod pairs;
pub(crate) mod small;
mod span;
pub(crate) mod sprint;

use crate::Kernels;

pub use small::{MAX_SMALL_BYTES, SMALL_HEADER_SHIFT, walk_small};
pub use span::{MAX_BYTES, Span, placed};

/// The size value that says "the writer dropped the rest of this packet": 2^28 - 1.
pub const DROP_MARKER: u64 = 268_435_455;

/// The longest header that is accepted, in bytes: ten groups of seven bits hold 64 bits.
pub const MAX_HEADER_BYTES: usize = 10;

/// Why a walk ended. The tests are made in this order before and in each fragment; the first that holds is the answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stop {
    /// The wanted number of fragments was found. Also when the last of them ends with the last byte.
    Limit,
    /// The bytes ended exactly behind a fragment, before the limit.
    End,
    /// The bytes ended within a header: its last byte says that more follow.
    TruncatedHeader,
    /// Ten header bytes all say that more follow.
    OverlongHeader,
    /// The size is [`DROP_MARKER`], in whatever encoding. Tested before the bounds, so it needs no body.
    DropMarker,
    /// The body would end behind the bytes.
    OutOfBounds,
}

impl Stop {
    /// Whether the row of fragments ended in a way that no well-behaved writer produces when it has been asked for
    /// no more fragments than it wrote. [`Stop::End`] is not malformed by itself: the caller knows what was declared.
    pub fn is_malformed(self) -> bool {
        matches!(self, Stop::TruncatedHeader | Stop::OverlongHeader | Stop::OutOfBounds)
    }
}

/// What a walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Walk {
    /// The number of fragments, and of spans written. `0 <= fragments <= min(limit, spans.len())`.
    pub fragments: usize,
    /// Headers and bodies of these fragments together: where the walk stopped. `0 <= visible_bytes <= bytes.len()`.
    pub visible_bytes: usize,
    /// Why it ended there.
    pub stop: Stop,
}

/// Walks the fragments of one chunk: writes the span of each to `spans`, in order, and says where and why it stopped.
///
/// At most `min(limit, spans.len())` fragments are looked for; finding that many is [`Stop::Limit`]. Spans behind
/// [`Walk::fragments`] mean nothing afterwards.
/// Bytes from [`MAX_BYTES`] on are not looked at: a fragment that reaches there is out of bounds.
///
/// Any bytes are fine, no input makes it panic, nothing outside `bytes` is read.
#[inline]
pub fn walk(bytes: &[u8], limit: usize, spans: &mut [Span]) -> Walk {
    Kernels::chosen().walk(bytes, limit, spans)
}

/// [`walk`] on raw memory: for a caller who has checked its ranges already, or who has no slices.
///
/// # Safety
/// - `start` is readable for `len` bytes, which nobody changes meanwhile, and `len <= MAX_BYTES`;
/// - `spans` is writable for `limit` spans, to which nobody else has access meanwhile.
#[inline]
pub unsafe fn walk_raw(start: *const u8, len: usize, limit: usize, spans: *mut Span) -> Walk {
    // SAFETY: the caller's promise.
    unsafe { Kernels::chosen().walk_raw(start, len, limit, spans) }
}

/// The walk over one chunk at some level: the contract of [`walk_raw`].
pub(crate) type WalkOne = unsafe fn(*const u8, usize, usize, *mut Span) -> Walk;

/// Mean bytes of a fragment below which all headers of a chunk may have one byte, if its writer wastes none.
const ONE_BYTE_MEAN_BYTES: usize = 96;

/// One chunk of a [`walk_many`]: the arguments of a [`walk`] and, afterwards, its answer.
#[derive(Debug)]
pub struct Job<'a> {
    /// At most [`MAX_BYTES`].
    bytes: &'a [u8],
    /// `0 <= limit <= spans.len()`
    limit: usize,
    spans: &'a mut [Span],
    found: Walk,
}

impl<'a> Job<'a> {
    /// A chunk yet to be walked, on the same terms as [`walk`].
    #[inline]
    pub fn new(bytes: &'a [u8], limit: usize, spans: &'a mut [Span]) -> Job<'a> {
        let bytes = &bytes[..bytes.len().min(MAX_BYTES)];
        let limit = limit.min(spans.len());
        Job { bytes, limit, spans, found: Walk { fragments: 0, visible_bytes: 0, stop: Stop::Limit } }
    }

    /// Walks the chunk by itself.
    ///
    /// # Safety
    /// The processor has what `one` needs.
    #[inline(always)]
    pub(crate) unsafe fn walk_alone(&mut self, one: WalkOne) {
        // SAFETY: the ranges of the job's own slices.
        self.found =
            unsafe { one(self.bytes.as_ptr(), self.bytes.len(), self.limit, self.spans.as_mut_ptr()) };
    }

    /// Whether the fragments may all have one-byte headers: by what was declared, and the first one. A wrong answer costs a few steps.
    #[inline(always)]
    pub(crate) fn is_dense(&self) -> bool {
        self.bytes.len() / ONE_BYTE_MEAN_BYTES < self.limit
            && self.bytes.first().is_some_and(|&header| header < 0x80)
    }

    /// Walks one fragment with whatever header, the one at `offset`, and writes its span behind the first `fragments`. Returns its bytes, or
    /// `None` if it ends the walk.
    #[cold]
    #[inline(never)]
    pub(crate) fn step(&mut self, offset: usize, fragments: usize) -> Option<usize> {
        let mut span = [Span::default()];
        let found = naive::walk(&self.bytes[offset..], 1, &mut span);
        if found.fragments == 0 || fragments >= self.limit {
            return None;
        }
        [self.spans[fragments]] = span;
        Some(found.visible_bytes)
    }

    /// Walks what is left behind `found` by itself.
    ///
    /// # Safety
    /// The processor has what `one` needs.
    #[cold]
    #[inline(never)]
    pub(crate) unsafe fn finish(&mut self, one: WalkOne) {
        let Walk { fragments, visible_bytes, .. } = self.found;
        let bytes = &self.bytes[visible_bytes..];
        let spans = &mut self.spans[fragments..self.limit];
        let rest = if bytes.len() < 2 * MAX_HEADER_BYTES {
            naive::walk(bytes, spans.len(), spans)
        } else {
            // SAFETY: the rest of the job's own slices.
            unsafe { one(bytes.as_ptr(), bytes.len(), spans.len(), spans.as_mut_ptr()) }
        };
        self.found = Walk {
            fragments: fragments + rest.fragments,
            visible_bytes: visible_bytes + rest.visible_bytes,
            stop: rest.stop,
        };
    }

    /// What [`walk_many`] found; before it, an empty walk.
    #[inline]
    pub fn found(&self) -> Walk {
        self.found
    }

    /// The spans of the fragments that were found.
    #[inline]
    pub fn spans(&self) -> &[Span] {
        &self.spans[..self.found.fragments]
    }
}

/// Walks the chunks that are not [dense](Job::is_dense) one after another, and returns how many are.
///
/// # Safety
/// The processor has what `one` needs.
#[inline(always)]
pub(crate) unsafe fn walk_others_alone(jobs: &mut [Job<'_>], one: WalkOne) -> usize {
    let mut dense = 0;
    for job in jobs {
        if job.is_dense() {
            dense += 1;
        } else {
            // SAFETY: the caller's promise.
            unsafe { job.walk_alone(one) };
        }
    }
    dense
}

/// Walks several chunks. The answers are those of [`walk`] on each; the chunks' chains overlap, so that a batch of 16 or 32
/// takes a fraction of the time. Best where the chunks have about the same number of fragments; one that lies three quarters of
/// a GiB from the first is walked by itself.
#[inline]
pub fn walk_many(jobs: &mut [Job<'_>]) {
    Kernels::chosen().walk_many(jobs);
}
