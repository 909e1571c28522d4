//! The kernels of one level, as functions.

use crate::level::{self, Level};
use crate::walk::{self, Job, Span, Walk};

/// The kernels of one level. Having one is the proof that this processor can run it.
///
/// The crate's free functions use [`Kernels::chosen`]; tests and benchmarks compare levels with [`Kernels::at`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kernels(Level);

/// Calls the function of the given name in the level's module.
macro_rules! at_level {
    ($level:expr, $function:ident($($argument:expr),*)) => {
        match $level {
            // SAFETY: a `Kernels` of the level exists only where the processor has it; the rest is up to the caller of this macro.
            #[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
            Level::Avx512 => unsafe { crate::x86_64::avx512::$function($($argument),*) },
            // SAFETY: as above.
            #[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
            Level::Avx2 => unsafe { crate::x86_64::avx2::$function($($argument),*) },
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
        unsafe { self.walk_raw(bytes.as_ptr(), len, limit, spans.as_mut_ptr()) }
    }

    /// As [`walk::walk_raw`].
    ///
    /// # Safety
    /// As [`walk::walk_raw`].
    #[inline]
    pub unsafe fn walk_raw(self, start: *const u8, len: usize, limit: usize, spans: *mut Span) -> Walk {
        at_level!(self.0, walk(start, len, limit, spans))
    }

    /// As [`walk::walk_many`].
    #[inline]
    pub fn walk_many(self, jobs: &mut [Job<'_>]) {
        at_level!(self.0, walk_many(jobs))
    }
}
