//! A copy of a chunk's bytes, in instructions of our own.
//!
//! The C library's `memcpy` is the rival here and the fallback: for lengths that chunks do not have, and on the levels where nothing
//! else was measured. It decides by length and processor at each call and has thresholds for lengths that chunks do have; the loop
//! below takes every length of a chunk the same way: full vectors at aligned places of the target, and its ragged
//! ends as vectors that overlap them.

/// Copies `len` bytes.
///
/// # Safety
/// `from` is readable and `to` writable for `len` bytes, and they do not overlap.
#[inline]
pub unsafe fn copy_raw(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    unsafe { crate::Kernels::chosen().copy_raw(from, to, len) }
}

/// A register of `BYTES` bytes.
///
/// # Safety
/// The functions need the processor's level, and a place with that many bytes, aligned for `store_aligned`.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
pub(crate) trait Vector: Copy {
    const BYTES: usize;
    unsafe fn load(from: *const u8) -> Self;
    unsafe fn store(self, to: *mut u8);
    unsafe fn store_aligned(self, to: *mut u8);
}

/// Longer copies go to the C library, which knows from what length on a processor's own copying wins.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
const MOST_BYTES: usize = 8192;

/// # Safety
/// As [`copy_raw`], and the processor has the vector's level.
#[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
#[inline(always)]
pub(crate) unsafe fn in_vectors<V: Vector>(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: every load and store begins at `at <= len - V::BYTES`; `to + at` is aligned from the first step on. The ends are
    // loaded first and stored last.
    unsafe {
        if len < V::BYTES || len > MOST_BYTES {
            std::ptr::copy_nonoverlapping(from, to, len);
            return;
        }
        let last = len - V::BYTES;
        let (head, tail) = (V::load(from), V::load(from.add(last)));
        let mut at = V::BYTES - (to as usize & (V::BYTES - 1));
        while at + 8 * V::BYTES <= len {
            let vectors: [V; 8] = std::array::from_fn(|i| V::load(from.add(at + i * V::BYTES)));
            for (i, vector) in vectors.into_iter().enumerate() {
                vector.store_aligned(to.add(at + i * V::BYTES));
            }
            at += 8 * V::BYTES;
        }
        while at < last {
            V::load(from.add(at)).store_aligned(to.add(at));
            at += V::BYTES;
        }
        head.store(to);
        tail.store(to.add(last));
    }
}

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
}
