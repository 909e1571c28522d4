/// The most bytes of one input that a walk looks at: what a [`Span`] can count.
pub const MAX_BYTES: usize = (1 << 28) - 1;

/// The extent of one fragment, without its position.
///
/// ```text
///   31    28 27                             0
///  | header | total bytes (header and body)  |      header: 1..=10, total: header..=2^28 - 1
/// ```
///
/// Four bytes, since the engine keeps them for every fragment of a chunk. A fragment begins behind
/// the totals of those before it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Span(u32);

impl Span {
    pub(crate) const HEADER_SHIFT: u32 = 28;

    /// A span of `header_bytes` and `total_bytes`, header included.
    ///
    /// # Panics
    /// If `header_bytes` is not in 1..=10 or `total_bytes` not in `header_bytes..=MAX_BYTES`.
    pub fn new(header_bytes: usize, total_bytes: usize) -> Span {
        assert!((1..=super::MAX_HEADER_BYTES).contains(&header_bytes), "header of {header_bytes} bytes");
        assert!((header_bytes..=MAX_BYTES).contains(&total_bytes), "fragment of {total_bytes} bytes");
        Span::pack(header_bytes as u32, total_bytes as u32)
    }

    #[inline(always)]
    pub(crate) const fn pack(header_bytes: u32, total_bytes: u32) -> Span {
        Span(total_bytes | (header_bytes << Self::HEADER_SHIFT))
    }

    /// Header and body.
    #[inline]
    pub const fn total_bytes(self) -> usize {
        (self.0 & ((1 << Self::HEADER_SHIFT) - 1)) as usize
    }

    /// The size varint: 1 to 10 bytes. 0 only in a default span, which no walk writes.
    #[inline]
    pub const fn header_bytes(self) -> usize {
        (self.0 >> Self::HEADER_SHIFT) as usize
    }

    /// What the header's value counts. May be 0.
    #[inline]
    pub const fn body_bytes(self) -> usize {
        self.total_bytes() - self.header_bytes()
    }
}

impl std::fmt::Debug for Span {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}+{}", self.header_bytes(), self.total_bytes().wrapping_sub(self.header_bytes()))
    }
}
