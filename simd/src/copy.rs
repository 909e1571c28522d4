//! A copy of a chunk's bytes.
//!
//! The C library's `memcpy` chooses a routine by length and processor at each call, with thresholds
//! within the lengths that chunks have. The block of instructions below copies every length of a
//! chunk the same way: full vectors at aligned addresses of the target, and both ends as vectors
//! that overlap them. Other lengths, and levels without such a block, use the C library, and so do
//! copies of less than 129 bytes that are no part of a walk: for these it is faster. The shortest
//! of them, of at most 64 bytes, are made in place: two words or vectors that overlap.
//!
//! ```text
//!   from  |head........|                                |........tail|     loaded first, stored last
//!   to       |head........|
//!                   ^ aligned: 16 vectors, 16 vectors, ..., 8, 1, 1, 1
//! ```
//!
//! The block is `asm!`, not intrinsics, because another process may change the chunk's bytes during
//! the copy. To the compiler it is a foreign routine, like a call of the C library: it cannot see a
//! load, repeat it, or base a decision on it. So a race gives bytes of unknown value and nothing
//! worse.

use crate::prefetch::{LINE_BYTES, LinesAhead};

/// Copies `len` bytes.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap.
#[inline]
pub unsafe fn copy_raw(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { crate::Kernels::chosen().copy_raw(from, to, len) }
}

/// Copies `len` bytes that another thread or process may read or write at the same time. Each byte
/// arrives with some value that it had during the call.
///
/// Returns false, and copies nothing, where the level in use has no such copy for this length. Then
/// the caller must use another routine that the compiler cannot look into.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap. There is no Rust
/// reference to the bytes that others may touch.
#[inline]
pub unsafe fn try_copy_shared(from: *const u8, to: *mut u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { crate::Kernels::chosen().try_copy_shared(from, to, len) }
}

/// The most bytes of a short copy: a packet, say, or the end of one.
pub(crate) const SHORT_BYTES: usize = 64;

/// Copies at most [`SHORT_BYTES`], without a call: both halves as words that overlap.
///
/// # Safety
/// As [`copy_raw`], and there are no more.
#[inline(always)]
pub(crate) unsafe fn copy_short(from: *const u8, to: *mut u8, len: usize) {
    /// Copies two words of `N` bytes, of which one begins where the range does, and one ends where
    /// it does.
    ///
    /// # Safety
    /// As [`copy_raw`], and `N <= len <= 2 * N`.
    #[inline(always)]
    unsafe fn copy_ends<const N: usize>(from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: both words lie inside of the ranges.
        unsafe {
            let (first, last) = (from.cast::<[u8; N]>().read(), from.add(len - N).cast::<[u8; N]>().read());
            to.cast::<[u8; N]>().write(first);
            to.add(len - N).cast::<[u8; N]>().write(last);
        }
    }
    // SAFETY: the caller's promise, and the lengths were tested.
    unsafe {
        match len {
            33.. => copy_ends::<32>(from, to, len),
            17.. => copy_ends::<16>(from, to, len),
            8.. => copy_ends::<8>(from, to, len),
            4.. => copy_ends::<4>(from, to, len),
            2.. => copy_ends::<2>(from, to, len),
            1 => to.write(from.read()),
            0 => {}
        }
    }
}

/// From this length on it matters in which order a chunk is copied.
pub(crate) const LONG_BYTES: usize = 8 << 10;

/// A longer chunk and its place in the ring may not both fit the first-level cache, which has 32 to
/// 64 KiB.
const CACHED_BYTES: usize = 16 << 10;

/// Lines of the target that are asked for before a copy that asks for the others.
pub(crate) const LINES_BEFORE: usize = 32;

/// Whether the copy of a long chunk asks for lines of the target: if it has so few fragments that
/// their walk ends before these arrive. In a chunk that fits the cache the walk asks for more.
#[inline(never)]
pub(crate) fn asks_for_lines(fragments: usize, len: usize) -> bool {
    let least_lines = if len > CACHED_BYTES { 5 } else { 8 };
    fragments * least_lines * LINE_BYTES <= len
}

/// Copies a long chunk with so many fragments, which was just walked, at a level that copies shared
/// bytes: whether it is one.
///
/// # Safety
/// As [`try_copy_shared`].
#[inline(never)]
pub(crate) unsafe fn copy_long(
    kernels: crate::Kernels,
    from: *const u8,
    to: *mut u8,
    len: usize,
    fragments: usize,
) -> bool {
    let (mut done, mut left) = (0, len);
    let (asks, is_cached) = (asks_for_lines(fragments, len), len <= CACHED_BYTES);
    // SAFETY: parts of the caller's ranges. More than a vector is left.
    unsafe {
        if !asks && !is_cached {
            left = copy_last_blocks(kernels, from, to, len);
        }
        if asks || !is_cached {
            done = copy_first_pieces(kernels, from, to, left);
        }
        kernels.copy_vectors(from.add(done), to.add(done), left - done)
    }
}

/// Copies pieces from the beginning on. Before each of them it asks for as many lines of the
/// target, [`LINES_BEFORE`] ahead, as long as there are any. How much it has copied.
///
/// # Safety
/// As [`copy_raw`].
unsafe fn copy_first_pieces(kernels: crate::Kernels, from: *const u8, to: *mut u8, len: usize) -> usize {
    const PIECE_BYTES: usize = 16 * LINE_BYTES;
    const AHEAD_BYTES: usize = LINES_BEFORE * LINE_BYTES;
    let mut done = 0;
    while done + AHEAD_BYTES + PIECE_BYTES <= len {
        LinesAhead::new(to.wrapping_add(done + AHEAD_BYTES)).of_bytes(PIECE_BYTES).finish();
        // SAFETY: a part of the caller's ranges.
        unsafe { kernels.copy_raw(from.add(done), to.add(done), PIECE_BYTES) };
        done += PIECE_BYTES;
    }
    done
}

/// Copies blocks from the end on, until what is left fits the cache: how much that is. What was
/// walked last is still there.
///
/// # Safety
/// As [`copy_raw`].
unsafe fn copy_last_blocks(kernels: crate::Kernels, from: *const u8, to: *mut u8, len: usize) -> usize {
    const BLOCK_BYTES: usize = 4096;
    let mut left = len;
    while left > CACHED_BYTES {
        left -= BLOCK_BYTES;
        // SAFETY: a part of the caller's ranges.
        unsafe { kernels.copy_raw(from.add(left), to.add(left), BLOCK_BYTES) };
    }
    left
}

/// The lengths of short copies that are two vectors of 32 bytes. With words of the half size, which
/// each processor has, they would be eight moves for four.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
pub(crate) const IN_TWO_VECTORS: std::ops::RangeInclusive<usize> = 33..=SHORT_BYTES;

/// The lengths that are copied here: at least a vector of any level, at most a chunk. Longer copies
/// go to the C library, which knows when a processor's string instructions win.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
pub(crate) const LENGTHS: std::ops::RangeInclusive<usize> = LEAST_BYTES..=MOST_BYTES;

/// The least of them.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
pub(crate) const LEAST_BYTES: usize = 64;

/// From this length on they are at least as fast as the C library's, which shorter copies take.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
pub(crate) const VECTORS_FROM: usize = 129;

/// The most of them.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
pub(crate) const MOST_BYTES: usize = 65_536;

/// From this length on vectors of 64 bytes are used where there are any: of shorter copies the
/// overlapping ends are too large a part.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
pub(crate) const WIDE_FROM: usize = 512;

/// Defines `fn copy_vectors(from, to, len)` of a level: bytes of a vector, its moves for any
/// address and for aligned ones, the prefix of its registers, and all that are overwritten.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
macro_rules! copy_in_vectors {
    ($features:literal, $bytes:literal, $any:literal, $aligned:literal, $v:literal, [$($register:tt)*]) => {
        /// # Safety
        /// As [`crate::copy::try_copy_shared`], the length is one of [`crate::copy::LENGTHS`], and
        /// the processor has the level.
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn copy_vectors(from: *const u8, to: *mut u8, len: usize) {
            let last = len - $bytes;
            let aligned = $bytes - (to as usize & ($bytes - 1));
            // SAFETY: the vectors that are loaded and stored begin at 0, at `last`, and at `at =
            // aligned, aligned + $bytes, ...` as long as at < last; so all lie in the ranges, and
            // `to + at` is aligned. Base registers stand at `last - 7 * $bytes` and the index at
            // `at - last + 7 * $bytes`: not positive as long as eight vectors end inside. In the
            // first loop it is eight vectors further.
            unsafe {
                std::arch::asm!(
                    concat!($any, " ", $v, "0, [{from}]"),
                    concat!($any, " ", $v, "1, [{from_last} + {seven}]"),
                    // Sixteen vectors as long as they end inside, in two halves that take the same
                    // registers.
                    concat!("add {at}, 8 * ", $bytes),
                    "jg 3f",
                    ".p2align 5",
                    "2:",
                    concat!($any, " ", $v, "2, [{from_last} + {at} - 8 * ", $bytes, "]"),
                    concat!($any, " ", $v, "3, [{from_last} + {at} - 7 * ", $bytes, "]"),
                    concat!($any, " ", $v, "4, [{from_last} + {at} - 6 * ", $bytes, "]"),
                    concat!($any, " ", $v, "5, [{from_last} + {at} - 5 * ", $bytes, "]"),
                    concat!($any, " ", $v, "6, [{from_last} + {at} - 4 * ", $bytes, "]"),
                    concat!($any, " ", $v, "7, [{from_last} + {at} - 3 * ", $bytes, "]"),
                    concat!($any, " ", $v, "8, [{from_last} + {at} - 2 * ", $bytes, "]"),
                    concat!($any, " ", $v, "9, [{from_last} + {at} - 1 * ", $bytes, "]"),
                    concat!($aligned, " [{to_last} + {at} - 8 * ", $bytes, "], ", $v, "2"),
                    concat!($aligned, " [{to_last} + {at} - 7 * ", $bytes, "], ", $v, "3"),
                    concat!($aligned, " [{to_last} + {at} - 6 * ", $bytes, "], ", $v, "4"),
                    concat!($aligned, " [{to_last} + {at} - 5 * ", $bytes, "], ", $v, "5"),
                    concat!($aligned, " [{to_last} + {at} - 4 * ", $bytes, "], ", $v, "6"),
                    concat!($aligned, " [{to_last} + {at} - 3 * ", $bytes, "], ", $v, "7"),
                    concat!($aligned, " [{to_last} + {at} - 2 * ", $bytes, "], ", $v, "8"),
                    concat!($aligned, " [{to_last} + {at} - 1 * ", $bytes, "], ", $v, "9"),
                    concat!($any, " ", $v, "2, [{from_last} + {at}]"),
                    concat!($any, " ", $v, "3, [{from_last} + {at} + 1 * ", $bytes, "]"),
                    concat!($any, " ", $v, "4, [{from_last} + {at} + 2 * ", $bytes, "]"),
                    concat!($any, " ", $v, "5, [{from_last} + {at} + 3 * ", $bytes, "]"),
                    concat!($any, " ", $v, "6, [{from_last} + {at} + 4 * ", $bytes, "]"),
                    concat!($any, " ", $v, "7, [{from_last} + {at} + 5 * ", $bytes, "]"),
                    concat!($any, " ", $v, "8, [{from_last} + {at} + 6 * ", $bytes, "]"),
                    concat!($any, " ", $v, "9, [{from_last} + {at} + 7 * ", $bytes, "]"),
                    concat!($aligned, " [{to_last} + {at}], ", $v, "2"),
                    concat!($aligned, " [{to_last} + {at} + 1 * ", $bytes, "], ", $v, "3"),
                    concat!($aligned, " [{to_last} + {at} + 2 * ", $bytes, "], ", $v, "4"),
                    concat!($aligned, " [{to_last} + {at} + 3 * ", $bytes, "], ", $v, "5"),
                    concat!($aligned, " [{to_last} + {at} + 4 * ", $bytes, "], ", $v, "6"),
                    concat!($aligned, " [{to_last} + {at} + 5 * ", $bytes, "], ", $v, "7"),
                    concat!($aligned, " [{to_last} + {at} + 6 * ", $bytes, "], ", $v, "8"),
                    concat!($aligned, " [{to_last} + {at} + 7 * ", $bytes, "], ", $v, "9"),
                    concat!("add {at}, 16 * ", $bytes),
                    "jle 2b",
                    "3:",
                    concat!("sub {at}, 8 * ", $bytes),
                    "jg 6f",
                    concat!($any, " ", $v, "2, [{from_last} + {at}]"),
                    concat!($any, " ", $v, "3, [{from_last} + {at} + ", $bytes, "]"),
                    concat!($any, " ", $v, "4, [{from_last} + {at} + 2 * ", $bytes, "]"),
                    concat!($any, " ", $v, "5, [{from_last} + {at} + 3 * ", $bytes, "]"),
                    concat!($any, " ", $v, "6, [{from_last} + {at} + 4 * ", $bytes, "]"),
                    concat!($any, " ", $v, "7, [{from_last} + {at} + 5 * ", $bytes, "]"),
                    concat!($any, " ", $v, "8, [{from_last} + {at} + 6 * ", $bytes, "]"),
                    concat!($any, " ", $v, "9, [{from_last} + {at} + 7 * ", $bytes, "]"),
                    concat!($aligned, " [{to_last} + {at}], ", $v, "2"),
                    concat!($aligned, " [{to_last} + {at} + ", $bytes, "], ", $v, "3"),
                    concat!($aligned, " [{to_last} + {at} + 2 * ", $bytes, "], ", $v, "4"),
                    concat!($aligned, " [{to_last} + {at} + 3 * ", $bytes, "], ", $v, "5"),
                    concat!($aligned, " [{to_last} + {at} + 4 * ", $bytes, "], ", $v, "6"),
                    concat!($aligned, " [{to_last} + {at} + 5 * ", $bytes, "], ", $v, "7"),
                    concat!($aligned, " [{to_last} + {at} + 6 * ", $bytes, "], ", $v, "8"),
                    concat!($aligned, " [{to_last} + {at} + 7 * ", $bytes, "], ", $v, "9"),
                    concat!("add {at}, 8 * ", $bytes),
                    "6:",
                    "sub {at}, {seven}",
                    "jns 5f",
                    "4:",
                    concat!($any, " ", $v, "2, [{from_last} + {at} + {seven}]"),
                    concat!($aligned, " [{to_last} + {at} + {seven}], ", $v, "2"),
                    concat!("add {at}, ", $bytes),
                    "js 4b",
                    "5:",
                    concat!($any, " [{to}], ", $v, "0"),
                    concat!($any, " [{to_last} + {seven}], ", $v, "1"),
                    // Without it each SSE instruction that follows would wait for the upper halves.
                    "vzeroupper",
                    from = in(reg) from,
                    to = in(reg) to,
                    from_last = in(reg) from.wrapping_add(last).wrapping_sub(7 * $bytes),
                    to_last = in(reg) to.wrapping_add(last).wrapping_sub(7 * $bytes),
                    at = inout(reg) (aligned + 8 * $bytes).wrapping_sub(len) => _,
                    seven = const 7 * $bytes,
                    $($register)*
                    options(nostack),
                );
            }
        }
    };
}
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
pub(crate) use copy_in_vectors;

#[cfg(test)]
mod tests {
    use crate::{Kernels, Level};

    #[test]
    fn every_length_at_every_alignment_and_nothing_beside() {
        let source: Vec<u8> = (0..66_000_u32).map(|i| (i * 7 % 251) as u8).collect();
        for level in Level::available() {
            let kernels = Kernels::at(level).expect("it is available");
            let lengths = (0..700).chain([1023, 2673, 4080, 8191, 65_535, 65_536, 65_537, 65_700]);
            for len in lengths {
                let (skew, place) = (len % 61, len * 13 % 67);
                let mut target = vec![0xee; 66_000];
                let (from, to) = (&source[skew..][..len], &mut target[place..][..len]);
                // SAFETY: both are slices of `len` bytes.
                unsafe { kernels.copy_raw(from.as_ptr(), to.as_mut_ptr(), len) };
                assert_eq!(from, to, "{level}, {len} bytes");
                let beside = target[..place].iter().chain(&target[place + len..]);
                assert!(beside.into_iter().all(|&byte| byte == 0xee), "{level}, {len} bytes");
            }
        }
    }

    #[test]
    fn the_shared_copy_is_the_same_where_there_is_one() {
        let source: Vec<u8> = (0..66_000_u32).map(|i| (i * 11 % 253) as u8).collect();
        for level in Level::available() {
            let kernels = Kernels::at(level).expect("it is available");
            for len in (0..1100).chain([4079, 4080, 8191, 65_535, 65_536, 65_537]) {
                let (skew, place) = (len * 7 % 64, len * 5 % 64);
                let mut target = vec![0xee; 66_000];
                let (from, to) = (source[skew..].as_ptr(), target[place..].as_mut_ptr());
                // SAFETY: both have room for `len` bytes from these addresses on, and nobody else
                // touches them.
                let is_done = unsafe { kernels.try_copy_shared(from, to, len) };
                let expected = (129..=65_536).contains(&len) && matches!(level, Level::Avx2 | Level::Avx512);
                assert_eq!(is_done, expected, "{level}, {len} bytes");
                let copied = if is_done { len } else { 0 };
                assert_eq!(
                    target[place..place + copied],
                    source[skew..skew + copied],
                    "{level}, {len} bytes"
                );
                let beside = target[..place].iter().chain(&target[place + copied..]);
                assert!(beside.into_iter().all(|&byte| byte == 0xee), "{level}, {len} bytes");
            }
        }
    }
}
