//! The kernels of one level, as functions.

use crate::fields::{Rules, Scan, Violation};
use crate::level::{self, Level};
use crate::prefetch::LinesAhead;
use crate::shared::Headers;
use crate::walk::{self, Span, Walk};

/// The kernels of one level. Having one is the proof that this processor can run it.
///
/// The crate's free functions use [`Kernels::chosen`]; tests and benchmarks compare levels with
/// [`Kernels::at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernels(Level);

/// Calls the function of the given name in the level's module.
macro_rules! at_level {
    ($level:expr, $function:ident($($argument:expr),*)) => {
        match $level {
            // SAFETY: a `Kernels` of the level exists only where the processor has it; the rest is
            // up to the caller of this macro.
            #[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
            Level::Avx512 => unsafe { crate::x86_64::avx512::$function($($argument),*) },
            // SAFETY: as above.
            #[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
            Level::Avx2 => unsafe { crate::x86_64::avx2::$function($($argument),*) },
            // SAFETY: as above.
            #[cfg(all(feature = "intrinsics", target_arch = "aarch64"))]
            Level::Neon => unsafe { crate::aarch64::neon::$function($($argument),*) },
            // SAFETY: every processor can run it; the rest is up to the caller of this macro.
            _ => unsafe { crate::scalar::$function($($argument),*) },
        }
    };
}

impl Kernels {
    /// The kernels in use: see [`level::chosen`].
    #[inline]
    pub fn chosen() -> Kernels {
        Kernels(level::chosen())
    }

    /// The kernels of a level, if this build has them and this processor can run them.
    pub fn at(level: Level) -> Option<Kernels> {
        level.is_available().then_some(Kernels(level))
    }

    /// Their level.
    #[inline]
    pub fn level(self) -> Level {
        self.0
    }

    /// As [`walk::walk`].
    #[inline]
    pub fn walk(self, bytes: &[u8], limit: usize, spans: &mut [Span]) -> Walk {
        let len = bytes.len().min(walk::MAX_BYTES);
        let limit = limit.min(spans.len());
        // SAFETY: the ranges are those of the slices, or shorter.
        at_level!(self.0, walk(bytes.as_ptr(), len, limit, spans.as_mut_ptr()))
    }

    /// As [`walk::walk_ordinary`].
    #[inline(always)]
    pub fn walk_ordinary(self, bytes: &[u8], entries: &mut [u16], ahead: LinesAhead) -> usize {
        at_level!(self.0, walk_ordinary(bytes, entries, ahead))
    }

    /// As [`Headers::fetch`](crate::shared::Headers::fetch); 0 where that has none.
    ///
    /// # Safety
    /// `start` is readable for `len` bytes, which may change meanwhile.
    #[inline(always)]
    pub(crate) unsafe fn fetch_headers(
        self,
        start: *const u8,
        len: usize,
        entries: &mut [u16],
        headers: &mut Headers,
        ahead: LinesAhead,
    ) -> usize {
        #[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
        if matches!(self.0, Level::Avx2 | Level::Avx512) {
            // SAFETY: a `Kernels` of these levels exists only where the processor has BMI2; the
            // rest is the caller's promise.
            return unsafe { crate::x86_64::fetch_headers(start, len, entries, headers, ahead) };
        }
        let _ = (start, len, entries, headers, ahead);
        0
    }

    /// Whether [`copy_and_walk`](Self::copy_and_walk) does anything.
    #[inline(always)]
    pub(crate) fn copies_beside_walk(self) -> bool {
        cfg!(all(feature = "intrinsics", target_arch = "x86_64"))
            && matches!(self.0, Level::Avx2 | Level::Avx512)
    }

    /// Copies bytes that others may change, each once, and walks the copy as
    /// [`walk_ordinary`](Self::walk_ordinary) does. 0, and not all may be copied, also where the
    /// level has none of it.
    ///
    /// # Safety
    /// As many bytes are readable at `from` as the copy has, and do not overlap it.
    #[inline(always)]
    pub(crate) unsafe fn copy_and_walk(
        self,
        from: *const u8,
        copy: &mut [u8],
        entries: &mut [u16],
        ahead: LinesAhead,
    ) -> usize {
        #[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
        if self.copies_beside_walk() {
            // SAFETY: a `Kernels` of these levels exists only where the processor has AVX2; the
            // rest is the caller's promise.
            return unsafe { crate::x86_64::copy_and_walk(from, copy, entries, ahead) };
        }
        let _ = (from, copy, entries, ahead);
        0
    }

    /// As [`copy::copy_raw`](crate::copy::copy_raw).
    ///
    /// # Safety
    /// As there.
    #[inline]
    pub unsafe fn copy_raw(self, from: *const u8, to: *mut u8, len: usize) {
        // SAFETY: the caller's promise, which says more than is needed here.
        if unsafe { self.try_copy_shared(from, to, len) } {
            return;
        }
        // SAFETY: the caller's promise, and the length was tested; these levels have AVX2.
        unsafe {
            #[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
            if crate::copy::IN_TWO_VECTORS.contains(&len) && self.copies_beside_walk() {
                return crate::x86_64::copy_two_vectors(from, to, len);
            }
            if len <= crate::copy::SHORT_BYTES {
                crate::copy::copy_short(from, to, len);
            } else {
                std::ptr::copy_nonoverlapping(from, to, len);
            }
        }
    }

    /// As [`copy::try_copy_shared`](crate::copy::try_copy_shared).
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    pub unsafe fn try_copy_shared(self, from: *const u8, to: *mut u8, len: usize) -> bool {
        #[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
        if (crate::copy::VECTORS_FROM..=crate::copy::MOST_BYTES).contains(&len) {
            // SAFETY: the caller's promise, and the length was tested.
            return unsafe { self.copy_vectors(from, to, len) };
        }
        let _ = (from, to, len);
        false
    }

    /// The same for one of [`copy::LENGTHS`](crate::copy::LENGTHS).
    ///
    /// # Safety
    /// As there, and the length is one of these.
    #[inline(always)]
    pub(crate) unsafe fn copy_vectors(self, from: *const u8, to: *mut u8, len: usize) -> bool {
        match self.0 {
            // SAFETY: a `Kernels` of the level exists only where the processor has it; the rest is
            // the caller's promise.
            #[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
            Level::Avx512 if len >= crate::copy::WIDE_FROM => unsafe {
                crate::x86_64::avx512::copy_vectors(from, to, len);
                true
            },
            // SAFETY: as above; the higher level has all of the lower one.
            #[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
            Level::Avx2 | Level::Avx512 => unsafe {
                crate::x86_64::avx2::copy_vectors(from, to, len);
                true
            },
            _ => {
                let _ = (from, to, len);
                false
            }
        }
    }

    /// As [`fields::scan`](crate::fields::scan()).
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn scan(self, slices: &[&[u8]], rules: &Rules) -> Result<Scan, Violation> {
        at_level!(self.0, scan(slices, rules))
    }
}
