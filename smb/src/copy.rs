//! The one routine that moves bytes to and from memory that another process may be using.

use std::arch::asm;
use std::ffi::c_void;

type CopyFn = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

/// Copies `len` bytes from `src` to `dst`, where either may be memory that another thread or process reads or writes
/// at the same time.
///
/// What arrives is, for each byte, some value that the byte had during the call; different bytes may be of different
/// moments. The compiler cannot look into the copy: it is one block of instructions for the lengths of chunks
/// ([`watershed_simd::copy::try_copy_shared`]), and else a call of the C library's `memcpy` through a pointer whose
/// value is hidden behind an empty `asm!` block. So it can neither assume that two copies of the same place agree, nor
/// replace a later use of the private copy by another access to the shared place, nor turn the race into undefined
/// behaviour: to the language this is a foreign function that may well copy byte by byte with relaxed atomic accesses.
///
/// # Safety
///
/// * `src` is valid for reads of `len` bytes and `dst` for writes of `len` bytes, for the whole call.
/// * The two ranges do not overlap.
/// * A range that other threads or processes may touch meanwhile is not the target of any Rust reference, and those
///   others touch it only through atomics, through this routine, or from outside this program.
/// * The private range, if any, is not touched by anybody else during the call.
#[inline]
pub unsafe fn copy_untrusted(src: *const u8, dst: *mut u8, len: usize) {
    // SAFETY: the caller's promise.
    if unsafe { watershed_simd::copy::try_copy_shared(src, dst, len) } {
        return;
    }
    let mut copy: CopyFn = libc::memcpy;
    #[expect(
        clippy::pointers_in_nomem_asm_block,
        reason = "the block is empty: it hides a value, it follows no pointer"
    )]
    // SAFETY: the block is empty and leaves the value in its register. It exists so that the compiler must assume that
    // `copy` may be any function afterwards.
    unsafe {
        asm!("/* {0} */", inout(reg) copy, options(nomem, nostack, preserves_flags))
    };
    // SAFETY: `copy` still is `memcpy`; the caller guarantees valid ranges that do not overlap.
    unsafe { copy(dst.cast(), src.cast(), len) };
}

/// The same copy between slices of one length, for tests and measurements in which private memory stands for shared one.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_as_untrusted(src: &[u8], dst: &mut [u8]) {
    assert_eq!(src.len(), dst.len(), "the lengths of a copy");
    // SAFETY: the ranges of two slices of which one is exclusive; nobody else touches them.
    unsafe { copy_untrusted(src.as_ptr(), dst.as_mut_ptr(), dst.len()) }
}
