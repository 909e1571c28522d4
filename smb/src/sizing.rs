//! The sizes of a producer's shared memory and of its pages.

/// Smallest page, and the unit of all page sizes, in bytes.
pub const MIN_PAGE_SIZE_BYTES: usize = 4096;
/// Largest page that the service accepts, in bytes. The ABI would allow 64 KiB, but the record of a
/// trace buffer holds at most 65535 bytes.
pub const MAX_PAGE_SIZE_BYTES: usize = 32 * 1024;
/// Default page size in bytes.
pub const DEFAULT_PAGE_SIZE_BYTES: usize = MIN_PAGE_SIZE_BYTES;
/// Default size of the memory in bytes.
pub const DEFAULT_SMB_SIZE_BYTES: usize = 256 * 1024;
/// Largest memory, in bytes.
pub const MAX_SMB_SIZE_BYTES: usize = 32 * 1024 * 1024;

/// Sizes of one producer's shared memory that go together: `size_bytes` is a multiple of
/// `page_size_bytes`, and that is 4, 8, 16 or 32 KiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SmbSize {
    page_size_bytes: usize,
    size_bytes: usize,
}

impl SmbSize {
    /// The default: 256 KiB in pages of 4 KiB.
    pub const DEFAULT: Self =
        Self { page_size_bytes: DEFAULT_PAGE_SIZE_BYTES, size_bytes: DEFAULT_SMB_SIZE_BYTES };

    /// The sizes that the service uses for requested ones, where 0 means the default.
    ///
    /// Requests above the largest sizes are reduced to them. A pair that does not fit together is
    /// not rounded: both values become the defaults.
    #[must_use]
    pub fn negotiate(page_size_bytes: usize, size_bytes: usize) -> Self {
        let or_default = |value: usize, default: usize| if value == 0 { default } else { value };
        let page = or_default(page_size_bytes, DEFAULT_PAGE_SIZE_BYTES).min(MAX_PAGE_SIZE_BYTES);
        let size = or_default(size_bytes, DEFAULT_SMB_SIZE_BYTES).min(MAX_SMB_SIZE_BYTES);
        Self::exact(page, size).unwrap_or(Self::DEFAULT)
    }

    /// Exactly these sizes, or `None` if they do not fit together. Memory that a producer brings
    /// must pass this: the pair must come through [`SmbSize::negotiate`] unchanged.
    #[must_use]
    pub fn exact(page_size_bytes: usize, size_bytes: usize) -> Option<Self> {
        let valid = is_page_size(page_size_bytes)
            && (page_size_bytes..=MAX_SMB_SIZE_BYTES).contains(&size_bytes)
            && size_bytes.is_multiple_of(page_size_bytes);
        valid.then_some(Self { page_size_bytes, size_bytes })
    }

    /// Size of a page in bytes.
    #[must_use]
    pub fn page_size_bytes(self) -> usize {
        self.page_size_bytes
    }

    /// Size of the memory in bytes.
    #[must_use]
    pub fn size_bytes(self) -> usize {
        self.size_bytes
    }

    /// How many pages the memory has, at least 1.
    #[must_use]
    pub fn num_pages(self) -> usize {
        self.size_bytes / self.page_size_bytes
    }
}

pub(crate) const fn is_page_size(bytes: usize) -> bool {
    bytes >= MIN_PAGE_SIZE_BYTES && bytes <= MAX_PAGE_SIZE_BYTES && bytes.is_power_of_two()
}

const _: () = {
    assert!(is_page_size(DEFAULT_PAGE_SIZE_BYTES) && is_page_size(MAX_PAGE_SIZE_BYTES));
    assert!(DEFAULT_SMB_SIZE_BYTES.is_multiple_of(DEFAULT_PAGE_SIZE_BYTES));
    assert!(MAX_SMB_SIZE_BYTES.is_multiple_of(MAX_PAGE_SIZE_BYTES));
};
