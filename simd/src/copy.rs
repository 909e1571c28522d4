//! A copy of a chunk's bytes, in instructions of our own.
//!
//! The C library's `memcpy` is the rival here and the fallback: for lengths that chunks do not have, and on the levels where nothing
//! else was measured. It decides by length and processor at each call and has thresholds for lengths that chunks do have; the block
//! of instructions below takes every length of a chunk the same way: full vectors at aligned places of the target, and its ragged
//! ends as vectors that overlap them.
//!
//! ```text
//!   from  |head........|                                |........tail|     loaded first, stored last
//!   to       |head........|
//!                   ^ aligned: 16 vectors, 16 vectors, ..., 8, 1, 1, 1
//! ```
//!
//! The block is `asm!`, not intrinsics, because the bytes of a chunk may lie in memory that another process changes meanwhile. To the
//! language that is a foreign routine, as a call of the C library's would be: no load of it can be seen, repeated or used for a decision by
//! the compiler, so that a race gives bytes of unknown value and nothing worse.

/// Copies `len` bytes.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap.
#[inline]
pub unsafe fn copy_raw(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { crate::Kernels::chosen().copy_raw(from, to, len) }
}

/// Copies `len` bytes of which either side may be read or written by another thread or process at the same time, without letting the
/// compiler look into the copy. What arrives is, for each byte, some value that it had during the call. False, and nothing done, where the level
/// in use has no such copy, or not for this length: then another routine must be taken that the compiler cannot look into.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap. Of the bytes that others may touch there is no Rust reference.
#[inline]
pub unsafe fn try_copy_shared(from: *const u8, to: *mut u8, len: usize) -> bool {
    // SAFETY: the caller's promise.
    unsafe { crate::Kernels::chosen().try_copy_shared(from, to, len) }
}

/// The lengths that are copied here: at least a vector of any level. Longer copies go to the C library, which knows from what length on
/// a processor's own copying wins.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
pub(crate) const LENGTHS: std::ops::RangeInclusive<usize> = LEAST_BYTES..=8192;

/// The least of them.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
pub(crate) const LEAST_BYTES: usize = 64;

/// From this length on vectors of 64 bytes are taken where there are any: the ragged ends of shorter ones are too much of the whole.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
pub(crate) const WIDE_FROM: usize = 512;

/// Defines `fn copy_vectors(from, to, len)` of a level: `$bytes` a vector, `$load` and `$store` for any place, `$store_aligned`.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
macro_rules! copy_in_vectors {
    ($features:literal, $bytes:literal, $any:literal, $aligned:literal, $v:literal, [$($register:tt)*]) => {
        /// # Safety
        /// As [`crate::copy::try_copy_shared`], the length is one of [`crate::copy::LENGTHS`], and the processor has the level.
        #[target_feature(enable = $features)]
        pub(crate) unsafe fn copy_vectors(from: *const u8, to: *mut u8, len: usize) {
            let last = len - $bytes;
            let aligned = $bytes - (to as usize & ($bytes - 1));
            // SAFETY: the vectors that are loaded and stored begin at 0, at `last`, and at `at = aligned, aligned + $bytes, ...` as long as
            // at < last; so all lie in the ranges, and `to + at` is aligned. Base registers stand at `last - 7 * $bytes` and the index at
            // `at - last + 7 * $bytes`: not positive as long as eight vectors end inside. In the first loop it is eight vectors further.
            unsafe {
                std::arch::asm!(
                    concat!($any, " ", $v, "0, [{from}]"),
                    concat!($any, " ", $v, "1, [{from_last} + {seven}]"),
                    // Sixteen vectors as long as they end inside, in two halves that take the same registers.
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
                    // Or each SSE instruction that follows would wait for upper halves.
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
        let source: Vec<u8> = (0..9000_u32).map(|i| (i * 7 % 251) as u8).collect();
        for level in Level::available() {
            let kernels = Kernels::at(level).expect("it is available");
            let lengths = (0..700).chain([1023, 2673, 4080, 8191, 8192, 8193, 8500]);
            for len in lengths {
                let (skew, place) = (len % 61, len * 13 % 67);
                let mut target = vec![0xee; 9000];
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
        let source: Vec<u8> = (0..9000_u32).map(|i| (i * 11 % 253) as u8).collect();
        for level in Level::available() {
            let kernels = Kernels::at(level).expect("it is available");
            for len in (0..1100).chain([4079, 4080, 8191, 8192, 8193]) {
                let (skew, place) = (len * 7 % 64, len * 5 % 64);
                let mut target = vec![0xee; 9000];
                let (from, to) = (source[skew..].as_ptr(), target[place..].as_mut_ptr());
                // SAFETY: both have room for `len` bytes behind the place, and nobody else touches them.
                let is_done = unsafe { kernels.try_copy_shared(from, to, len) };
                let expected = (64..=8192).contains(&len) && matches!(level, Level::Avx2 | Level::Avx512);
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
