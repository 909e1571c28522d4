//! The entry points of a level, which [`crate::kernels`] calls: the generic kernels, compiled for
//! the level.

/// Defines the entry points of a level from its decoder of varints ([`crate::word::Header`]) and
/// its walk over pairs ([`crate::walk::pairs::Pairs`]). The attributes enable the processor's
/// features for each function; everything generic is inlined there.
macro_rules! entry_points {
    ($(#[$features:meta])* header: $header:ty, pairs: $pairs:ty) => {
        /// # Safety
        /// As [`crate::walk::one::walk`], and the processor has the level.
        $(#[$features])*
        pub(crate) unsafe fn walk(
            start: *const u8,
            len: usize,
            limit: usize,
            spans: *mut crate::walk::Span,
        ) -> crate::walk::Walk {
            // SAFETY: the caller's promise.
            unsafe { crate::walk::one::walk::<$header, $pairs>(start, len, limit, spans) }
        }

        /// # Safety
        /// The processor has the level.
        $(#[$features])*
        pub(crate) unsafe fn walk_ordinary(
            bytes: &[u8],
            entries: &mut [u16],
            ahead: crate::prefetch::LinesAhead,
        ) -> usize {
            // SAFETY: the caller's promise.
            unsafe { crate::walk::ordinary::walk::<$header>(bytes, entries, ahead) }
        }

        /// # Safety
        /// The processor has the level.
        $(#[$features])*
        pub(crate) unsafe fn scan(
            slices: &[&[u8]],
            rules: &crate::fields::Rules,
        ) -> Result<crate::fields::Scan, crate::fields::Violation> {
            // SAFETY: the caller's promise.
            unsafe { crate::fields::scan::scan::<$header>(slices, rules) }
        }
    };
}
pub(crate) use entry_points;
