//! The fragment walk: `[varint size][body][varint size][body]...`
//!
//! ```text
//!   bytes   | 05 . . . . . | 83 80 80 00 . . . | 00 | ff ff ff 7f
//!   spans     6 (1 + 5)      7 (4 + 3)           1    DropMarker: the walk stops in front of it
//!           0              6                   13   14 = visible_bytes
//! ```
//!
//! A size is a base-128 varint of 1 to 10 bytes, redundant forms included; it counts the body
//! alone. The next header's address depends on this header's value, so the walk is one dependent
//! chain: its speed depends on the number of fragments, hardly on the number of bytes.
//!
//! The format is the shared-memory chunk payload (spec, trace-buffer 1.4). Every version of the
//! walk returns what [`naive::walk`] returns, on every input.

pub(crate) mod long;
pub mod naive;
pub(crate) mod one;
pub(crate) mod ordinary;
pub(crate) mod pairs;
mod span;

use crate::Kernels;

pub use ordinary::{ENTRY_HEADER_SHIFT, MAX_ENTRY_BYTES, is_dense, walk_ordinary};
pub use span::{MAX_BYTES, Span};

/// The size value that says "the writer dropped the rest of this packet": 2^28 - 1.
pub const DROP_MARKER: u64 = 268_435_455;

/// The longest header that is accepted, in bytes: ten groups of seven bits hold 64 bits.
pub const MAX_HEADER_BYTES: usize = 10;

/// Why a walk ended. The tests are made in this order before and in each fragment; the first that
/// holds is the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Stop {
    /// The wanted number of fragments was found. Also if the last of them ends with the last byte.
    Limit,
    /// The bytes ended exactly behind a fragment, before the limit.
    End,
    /// The bytes ended within a header: its last byte says that more follow.
    TruncatedHeader,
    /// Ten header bytes all say that more follow.
    OverlongHeader,
    /// The size is [`DROP_MARKER`], in whatever encoding. Tested before the bounds, so it needs no
    /// body.
    DropMarker,
    /// The body would end behind the bytes.
    OutOfBounds,
}

/// What a walk found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Walk {
    /// The number of fragments, and of spans written. `0 <= fragments <= min(limit, spans.len())`.
    pub fragments: usize,
    /// Headers and bodies of these fragments together: where the walk stopped. `0 <= visible_bytes
    /// <= bytes.len()`.
    pub visible_bytes: usize,
    /// Why it ended there.
    pub stop: Stop,
}

/// Walks the fragments of one chunk: writes the span of each to `spans`, in order, and says where
/// and why it stopped.
///
/// At most `min(limit, spans.len())` fragments are walked; finding that many is [`Stop::Limit`].
/// Spans behind [`Walk::fragments`] mean nothing afterwards. Bytes from [`MAX_BYTES`] on are
/// ignored: a fragment that reaches there is out of bounds.
///
/// Any bytes are fine: no input makes it panic, and nothing outside `bytes` is read.
#[inline]
pub fn walk(bytes: &[u8], limit: usize, spans: &mut [Span]) -> Walk {
    Kernels::chosen().walk(bytes, limit, spans)
}
