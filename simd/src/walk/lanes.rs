/// A vector of unsigned 32-bit numbers, one for each of several chunks, and what the lockstep walk does with it.
///
/// Each method is one or a few instructions. They are unsafe since the processor must have those; the function with the
/// `target_feature` that everything is inlined into has seen to it.
pub(crate) trait Lanes: Copy {
    /// How many numbers there are; the rows of a block, too.
    const LANES: usize;
    /// One truth value for each lane.
    type Mask: Copy;

    unsafe fn splat(value: u32) -> Self;
    /// Reads `LANES` numbers; no alignment is needed.
    unsafe fn load(from: *const u32) -> Self;
    /// Writes `LANES` numbers; no alignment is needed.
    unsafe fn store(self, to: *mut u32);
    /// Reads the four bytes at `base + offset` of each lane, lowest first.
    unsafe fn gather(base: *const u8, offsets: Self) -> Self;

    unsafe fn add(self, other: Self) -> Self;
    unsafe fn sub(self, other: Self) -> Self;
    unsafe fn min(self, other: Self) -> Self;
    unsafe fn and(self, other: Self) -> Self;
    /// `!self & other`
    unsafe fn not_and(self, other: Self) -> Self;
    unsafe fn shift_right<const N: u32>(self) -> Self;
    unsafe fn shift_left<const N: u32>(self) -> Self;
    /// The bits of `self` where `bits` has ones, those of `other` where it has zeros.
    unsafe fn pick(bits: Self, this: Self, other: Self) -> Self;
    /// How many bytes there are up to the lowest stop: `stops` has the high bits of the bytes that end a varint, `below` is
    /// `stops - 1`. 0 to 4 where `stops` is 0.
    unsafe fn header_bytes(stops: Self, below: Self) -> Self;

    /// All lanes.
    unsafe fn all() -> Self::Mask;
    /// Those of `among` where `self <= other`.
    unsafe fn le(self, other: Self, among: Self::Mask) -> Self::Mask;
    /// Those of `among` where `self` is not 0.
    unsafe fn nonzero(self, among: Self::Mask) -> Self::Mask;
    unsafe fn blend(mask: Self::Mask, yes: Self, no: Self) -> Self;
    /// One bit for each lane, lane 0 lowest.
    unsafe fn bits(mask: Self::Mask) -> u32;

    /// Turns `LANES` rows of `LANES` numbers into columns and writes the first `counts[i]` numbers of column i to `to[i]`.
    unsafe fn scatter_columns(rows: *const u32, counts: *const u32, to: *const *mut u32);
}

/// A vector that turns one-byte headers into spans.
pub(crate) trait HeaderLanes: Lanes {
    /// Writes headers of one byte as spans. Each row has those of four steps, the first in the lowest byte of a lane; the first
    /// `counts[i]` of lane i go to `to[i]`.
    unsafe fn scatter_headers(rows: [Self; 4], counts: *const u32, to: *const *mut u32);
}
