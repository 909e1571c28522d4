//! The pages of a shared memory buffer and the transitions of their chunks.

use thiserror::Error;

use crate::layout::{ChunkState, PageLayout, PageSnapshot};
use crate::region::Region;
use crate::sync::{Ordering, back_off, peek};

/// How often a transition is tried against neighbours that change the same bitmap word. Fourteen
/// well-behaved neighbours cannot make it fail that often in a row; a hostile peer can, and then
/// the chunk is given up.
const MAX_ATTEMPTS: u32 = 64;

/// Why a view of shared memory could not be made.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[error("pages of {page_size_bytes} bytes do not fit shared memory of {size_bytes} bytes")]
pub struct GeometryError {
    /// The page size that was asked for.
    pub page_size_bytes: usize,
    /// Size of the memory.
    pub size_bytes: usize,
}

/// Why a chunk did not change its state; the chunk stays as it is. Between well-behaved peers only
/// the first two can happen, and only to a caller that acts on an old snapshot. With a hostile peer
/// all can.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
#[non_exhaustive]
pub enum TransitionError {
    /// There is no such page, or its layout has no such chunk.
    #[error("the page has no such chunk")]
    NoSuchChunk,
    /// The chunk is in a state from which the transition does not exist.
    #[error("the chunk is {0:?}")]
    WrongState(ChunkState),
    /// The page has another layout than when the chunk was taken: the peer broke the ABI.
    #[error("the layout of the page changed while a chunk was in use")]
    LayoutChanged,
    /// The compare-exchange on the bitmap word failed 64 times in a row.
    #[error("the page is contended")]
    Contended,
}

/// A shared memory buffer: pages of one size over a mapping. Cheap to clone; all clones share the
/// memory.
#[derive(Clone, Debug)]
pub struct Smb {
    pub(crate) region: Region,
}

/// A chunk's location in the buffer, computed from one bitmap value. Small, since chunks in a queue
/// carry it; a buffer has at most 32 MiB.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) page: u32,
    offset_bytes: u32,
    payload_size_bytes: u16,
    index: u8,
    pub(crate) layout: PageLayout,
}

impl Place {
    #[inline]
    pub(crate) fn page(&self) -> usize {
        self.page as usize
    }

    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.index.into()
    }

    /// The bits of the page's bitmap that hold the chunk's state.
    #[inline]
    pub(crate) fn states(&self) -> u32 {
        PageSnapshot::state_bits(self.index())
    }

    /// Offset of the chunk header from the start of the region, in bytes.
    #[inline]
    pub(crate) fn offset_bytes(&self) -> usize {
        self.offset_bytes as usize
    }

    /// Size of the chunk without its header, in bytes.
    #[inline]
    pub(crate) fn payload_size_bytes(&self) -> usize {
        self.payload_size_bytes.into()
    }
}

impl Smb {
    /// A view of `memory` as pages of `page_size_bytes`.
    ///
    /// # Errors
    ///
    /// [`GeometryError`] unless the page size is 4, 8, 16 or 32 KiB and divides the size of the
    /// memory.
    #[cfg(not(loom))]
    pub fn new(
        memory: std::sync::Arc<crate::SharedMemory>,
        page_size_bytes: usize,
    ) -> Result<Self, GeometryError> {
        let size_bytes = memory.size_bytes();
        crate::SmbSize::exact(page_size_bytes, size_bytes)
            .ok_or(GeometryError { page_size_bytes, size_bytes })?;
        Ok(Self { region: Region::new(memory, page_size_bytes) })
    }

    #[cfg(loom)]
    pub(crate) fn modelled(layouts: &[PageLayout], page_size_bytes: usize) -> Self {
        Self { region: Region::new(layouts, page_size_bytes) }
    }

    /// The mapping below.
    #[cfg(not(loom))]
    #[must_use]
    pub fn memory(&self) -> &std::sync::Arc<crate::SharedMemory> {
        self.region.memory()
    }

    /// Whether this process is a child that does not have the memory: see
    /// [`crate::SharedMemory::without_children`]. Everything else of this type is for its parent.
    #[cfg(not(loom))]
    #[inline]
    #[must_use]
    pub fn is_forked(&self) -> bool {
        self.region.memory().is_forked()
    }

    /// Size of a page in bytes.
    #[must_use]
    pub fn page_size_bytes(&self) -> usize {
        self.region.page_size_bytes()
    }

    /// Number of pages, at least 1.
    #[must_use]
    pub fn num_pages(&self) -> usize {
        self.region.size_bytes() / self.page_size_bytes()
    }

    /// Size of the whole buffer in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.region.size_bytes()
    }

    /// The bitmap of `page` as it is now, or `None` if there is no such page.
    #[must_use]
    pub fn snapshot(&self, page: usize) -> Option<PageSnapshot> {
        (page < self.num_pages()).then(|| self.load(page))
    }

    /// `page` must be a valid index.
    pub(crate) fn load(&self, page: usize) -> PageSnapshot {
        // Acquire: pairs with the Release of `complete`, so that a snapshot that shows a chunk as
        // complete also shows its header and payload (a scrape reads them without another
        // synchronising access). Relaxed would let a scrape read an older header.
        PageSnapshot::from_word(self.region.page_word(page * self.page_size_bytes()).load(Ordering::Acquire))
    }

    pub(crate) fn place(&self, page: usize, index: usize, layout: PageLayout) -> Place {
        let page_size = self.page_size_bytes();
        let chunk_size = layout.chunk_size_bytes(page_size);
        let offset_bytes = page * page_size + layout.chunk_offset_bytes(page_size, index);
        Place {
            page: page as u32,
            offset_bytes: offset_bytes as u32,
            payload_size_bytes: (chunk_size - crate::CHUNK_HEADER_BYTES) as u16,
            index: index as u8,
            layout,
        }
    }

    /// Says that a chunk of `page` will change its state soon. A hint: the line of the page's
    /// bitmap, which another core wrote last, is fetched exclusively, beside those of other pages.
    /// Any `page` may be given.
    #[inline]
    pub fn prefetch_page(&self, page: usize) {
        #[cfg(not(loom))]
        if let Some(word) = page.checked_mul(self.page_size_bytes()).and_then(|at| self.region.get(at, 4)) {
            watershed_simd::prefetch::for_write_shared(word);
        }
        #[cfg(loom)]
        let _ = page;
    }

    /// Changes the bitmap of `page` to what `next` returns for it, and retries while neighbours
    /// change it. Returns the new value; an error of `next` ends it.
    pub(crate) fn update(
        &self,
        page: usize,
        success: Ordering,
        next: impl Fn(PageSnapshot) -> Result<PageSnapshot, TransitionError>,
    ) -> Result<PageSnapshot, TransitionError> {
        if page >= self.num_pages() {
            return Err(TransitionError::NoSuchChunk);
        }
        let word = self.region.page_word(page * self.page_size_bytes());
        // Relaxed here and on failure: the value is only what the exchange expects; the successful
        // exchange synchronises.
        let mut current = peek(word);
        for attempt in 0..MAX_ATTEMPTS {
            let wanted = next(PageSnapshot::from_word(current))?;
            match word.compare_exchange(current, wanted.word(), success, Ordering::Relaxed) {
                Ok(_) => return Ok(wanted),
                Err(found) => current = found,
            }
            back_off(attempt);
        }
        Err(TransitionError::Contended)
    }

    /// Moves one chunk from `from` to `to`. With `layout` the page must still have that layout.
    pub(crate) fn transition(
        &self,
        page: usize,
        index: usize,
        layout: Option<PageLayout>,
        (from, to): (ChunkState, ChunkState),
        success: Ordering,
    ) -> Result<PageSnapshot, TransitionError> {
        self.update(page, success, |now| {
            if layout.is_some_and(|layout| layout != now.layout()) {
                return Err(TransitionError::LayoutChanged);
            }
            match now.state(index) {
                None => Err(TransitionError::NoSuchChunk),
                Some(found) if found != from => Err(TransitionError::WrongState(found)),
                Some(_) if to == ChunkState::Free => Ok(now.with_chunk_freed(index)),
                Some(_) => Ok(now.with_state(index, to)),
            }
        })
    }
}
