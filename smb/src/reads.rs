//! Chunks that are read one after the other, as from a queue: costs of each chunk are paid once for
//! many.
//!
//! ```text
//!   take_up(smb)   attach, drop   attach, drop   put_down or take_up(another) or drop
//!                  |zero header   |zero header   |
//!                  +------------- one page ------+--> its bitmap: all of them Free, in one read-modify-write
//! ```

use crate::layout::{ChunkState, MAX_CHUNKS_PER_PAGE, PageLayout};
use crate::read::{Payload, ReadToken};
use crate::smb::{Place, Smb, TransitionError};
use crate::sync::Ordering;

/// The memory whose chunks are being read, and the chunks that have been read and are not free yet.
///
/// Freeing a chunk is a read-modify-write of its page's bitmap, which the producer's writers
/// change. Here consecutive chunks of one page are freed together: when another page or memory
/// comes, and when this is dropped. Holding it for long makes the producer wait for chunks.
#[derive(Debug)]
pub struct Reads {
    freed: Freed,
    smb: Option<Smb>,
}

/// Chunks of one page that have been read.
#[derive(Debug)]
struct Freed {
    /// The bits of the page's bitmap that hold their states; 0 if there are none.
    states: u32,
    page: u32,
    layout: PageLayout,
}

impl Reads {
    /// With nothing to read.
    #[must_use]
    pub const fn new() -> Self {
        Self { freed: Freed { states: 0, page: 0, layout: PageLayout::NotPartitioned }, smb: None }
    }

    /// The following chunks are in this memory.
    #[inline]
    pub fn take_up(&mut self, smb: Smb) {
        if self.smb.as_ref().is_none_or(|last| !last.region.is_same(&smb.region)) {
            self.free();
            self.smb = Some(smb);
        }
    }

    /// Returns the memory that was passed last, `None` if it was returned.
    #[must_use]
    pub fn put_down(&mut self) -> Option<Smb> {
        self.free();
        self.smb.take()
    }

    /// Borrows a chunk of the memory that was passed last, `None` if there is no memory. As with
    /// [`Smb::attach`] it is freed some time after the result is dropped, so its token must not be
    /// used again.
    #[inline]
    pub fn attach<'a>(&'a mut self, token: &'a ReadToken) -> Option<Reading<'a>> {
        let Self { freed, smb } = self;
        let (smb, place) = (smb.as_ref()?, token.place());
        // It is freed once its bytes are copied, which its line can be on its way for.
        smb.prefetch_page(place.page());
        Some(Reading { smb, place, freed })
    }

    /// Frees the chunks that have been read, now.
    #[inline]
    pub fn free(&mut self) {
        if let Some(smb) = &self.smb {
            self.freed.flush(smb);
        }
    }
}

impl Default for Reads {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Reads {
    #[inline]
    fn drop(&mut self) {
        self.free();
    }
}

/// A chunk that [`Reads`] lends.
#[derive(Debug)]
pub struct Reading<'a> {
    smb: &'a Smb,
    place: &'a Place,
    freed: &'a mut Freed,
}

impl<'a> Reading<'a> {
    /// The payload.
    #[must_use]
    #[inline]
    pub fn payload(&self) -> Payload<'a> {
        #[cfg(loom)]
        self.smb.region.witness_exclusive(self.place.offset_bytes());
        self.smb.payload(self.place)
    }
}

impl Drop for Reading<'_> {
    #[inline]
    fn drop(&mut self) {
        self.smb.zero_header(self.place);
        self.freed.add(self.smb, self.place);
    }
}

impl Freed {
    #[inline]
    fn add(&mut self, smb: &Smb, place: &Place) {
        if (self.page, self.layout) != (place.page, place.layout) {
            self.flush(smb);
            (self.page, self.layout) = (place.page, place.layout);
        }
        self.states |= place.states();
    }

    #[inline]
    fn flush(&mut self, smb: &Smb) {
        if self.states != 0 {
            self.free(smb);
        }
    }

    #[inline(never)]
    fn free(&mut self, smb: &Smb) {
        let states = std::mem::take(&mut self.states);
        let (page, layout) = (self.page as usize, self.layout);
        // Release as in `Smb::release_chunk`: everything that was read in any of these chunks
        // happens before its next owner's Acquire.
        let freed = smb.update(page, Ordering::Release, |now| match now.with_read_chunks_freed(states) {
            _ if now.layout() != layout => Err(TransitionError::LayoutChanged),
            None => Err(TransitionError::WrongState(ChunkState::Free)),
            Some(freed) => Ok(freed),
        });
        if let Err(TransitionError::WrongState(_)) = freed {
            // The producer broke the ABI. It loses only the chunks that it tampered with.
            for index in (0..MAX_CHUNKS_PER_PAGE).filter(|index| states >> (2 * index) & 1 != 0) {
                let change = (ChunkState::BeingRead, ChunkState::Free);
                let _ = smb.transition(page, index, Some(layout), change, Ordering::Release);
            }
        }
        smb.count_free(page);
    }
}
