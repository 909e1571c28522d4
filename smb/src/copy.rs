//! The one routine that moves bytes to and from memory that another process may be using.

use std::arch::asm;
use std::ffi::c_void;

type CopyFn = unsafe extern "C" fn(*mut c_void, *const c_void, usize) -> *mut c_void;

/// Copies `len` bytes from `src` to `dst`, where either may be memory that another thread or
/// process reads or writes at the same time.
///
/// Each byte arrives with some value that it had during the call; different bytes may be from
/// different moments. The compiler cannot see into the copy: for the lengths of chunks it is one
/// block of instructions ([`watershed_simd::copy::try_copy_shared`]), otherwise a call of the C
/// library's `memcpy` through a pointer that an empty `asm!` block hides. So it cannot assume that
/// two copies of the same memory agree, cannot replace a later use of the private copy by another
/// access to shared memory, and the race is no undefined behaviour: to the language this is a
/// foreign function that may copy with relaxed atomic accesses.
///
/// # Safety
///
/// * `src` is valid for reads of `len` bytes and `dst` for writes of `len` bytes, for the whole
///   call.
/// * The two ranges do not overlap.
/// * There is no Rust reference to a range that other threads or processes may touch meanwhile, and
///   they touch it only through atomics, through this routine, or from outside this program.
/// * Nobody else touches the private range, if any, during the call.
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
    // SAFETY: the block is empty and leaves the value in its register. It exists so that the
    // compiler must assume that `copy` may be any function afterwards.
    unsafe {
        asm!("/* {0} */", inout(reg) copy, options(nomem, nostack, preserves_flags))
    };
    // SAFETY: `copy` still is `memcpy`; the caller guarantees valid ranges that do not overlap.
    unsafe { copy(dst.cast(), src.cast(), len) };
}

/// Stores eight bytes, the lowest of `word` first, as [`copy_untrusted`] would: where the compiler
/// cannot look into it, and at any address.
///
/// # Safety
///
/// As [`copy_untrusted`], of eight bytes.
#[inline(always)]
pub(crate) unsafe fn store_untrusted(dst: *mut u8, word: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: one store to bytes that the caller may write.
    unsafe {
        asm!("mov qword ptr [{}], {}", in(reg) dst, in(reg) word, options(nostack, preserves_flags));
    }
    #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
    // SAFETY: one store to bytes that the caller may write; the architecture allows any address.
    unsafe {
        asm!("str {}, [{}]", in(reg) word, in(reg) dst, options(nostack, preserves_flags));
    }
    #[cfg(not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))))]
    // SAFETY: the caller's promise; the source is a local array.
    unsafe {
        copy_untrusted(word.to_le_bytes().as_ptr(), dst, size_of::<u64>());
    }
}

/// The same copy between slices of one length, for tests and measurements in which private memory
/// stands for shared one.
///
/// # Panics
/// If the lengths differ.
#[inline]
pub fn copy_as_untrusted(src: &[u8], dst: &mut [u8]) {
    assert_eq!(src.len(), dst.len(), "the lengths of a copy");
    // SAFETY: the ranges of two slices of which one is exclusive; nobody else touches them.
    unsafe { copy_untrusted(src.as_ptr(), dst.as_mut_ptr(), dst.len()) }
}
