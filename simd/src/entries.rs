//! What a level's module has for [`crate::kernels`] to call: the generic kernels, compiled for the level.

/// Makes the entry points of a level, all but `walk_many`, from its way to decode a header ([`crate::word::Header`]), to walk in pairs
/// ([`crate::walk::pairs::Pairs`]) and to look at a window of bytes ([`crate::bytes::Bytes`]). The attributes are those of each function: the
/// processor's features, from where on everything generic is inlined.
macro_rules! entry_points {
    ($(#[$features:meta])* header: $header:ty, pairs: $pairs:ty, window: $window:ty) => {
        /// # Safety
        /// As [`crate::walk::walk_raw`], and the processor has the level.
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
        pub(crate) unsafe fn walk_small(bytes: &[u8], entries: &mut [u16]) -> usize {
            // SAFETY: the caller's promise.
            unsafe { crate::walk::small::walk::<$header>(bytes, entries) }
        }

        /// # Safety
        /// The processor has the level.
        $(#[$features])*
        pub(crate) unsafe fn varint(bytes: &[u8]) -> Result<(u64, usize), crate::decode::VarintError> {
            crate::decode::one::varint::<$window>(bytes)
        }

        /// # Safety
        /// The processor has the level.
        $(#[$features])*
        pub(crate) unsafe fn varints(bytes: &[u8], values: &mut [u64]) -> crate::decode::Varints {
            // SAFETY: the caller's promise.
            unsafe { crate::decode::many::varints::<$window>(bytes, values) }
        }

        /// # Safety
        /// The processor has the level.
        $(#[$features])*
        pub(crate) unsafe fn field(bytes: &[u8]) -> Result<crate::decode::Field, crate::decode::FieldError> {
            crate::decode::one::field::<$window>(bytes)
        }

        /// # Safety
        /// The processor has the level.
        $(#[$features])*
        pub(crate) unsafe fn field_lengths(
            bytes: &[u8],
            fields: &mut [crate::decode::Field],
        ) -> crate::decode::FieldLengths {
            crate::decode::one::field_lengths::<$window>(bytes, fields)
        }

        /// # Safety
        /// The processor has the level.
        $(#[$features])*
        pub(crate) unsafe fn scan(
            slices: &[&[u8]],
            rules: &crate::fields::Rules,
        ) -> Result<crate::fields::Scan, crate::fields::Violation> {
            // SAFETY: the caller's promise.
            unsafe { crate::fields::scan::scan::<$window>(slices, rules) }
        }
    };
}
pub(crate) use entry_points;
