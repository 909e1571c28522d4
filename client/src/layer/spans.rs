//! What the layer keeps of spans that are open: in a table of the process, so that a span that is
//! made, entered and closed takes no lock, exchanges nothing atomically, and allocates nothing.
//!
//! ```text
//!   id of the span --> block of its thread --> place    free: its thread takes it
//!                      of another thread                of another span, or the fields are
//!                                                       too long
//!                        in these cases the registry's extensions have the span instead
//! ```
//!
//! Only the thread that has a block takes places of it, until it ends; any thread gives them back.
//! Who takes a place fills it, and its id says then whose it is. After that nobody writes to it but
//! who closes the span: fields that are recorded later are in the extensions. The layer is called
//! for a span only while that is open, so that no place is given up while somebody reads it.

use std::cell::Cell;

use super::site::Site;
use crate::sync::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::track_event::StoredArgs;

/// Threads that have one at a time; those beyond keep their spans in the extensions.
const BLOCKS: usize = 128;
/// Spans of a thread. All blocks are 2 MiB of address space, of which the system provides what is
/// used.
const PLACES: usize = 128;
/// For fields: six numbers, or two and a text.
const WORDS: usize = 12;

/// Of a place that is free. No span has this id.
const FREE: u64 = 0;
/// Of a place that is being filled. Nor has one this id: registries count from one.
const TAKEN: u64 = u64::MAX;

static TABLE: [Block; BLOCKS] = [const { Block::new() }; BLOCKS];

#[repr(align(128))]
struct Block {
    has_owner: AtomicBool,
    places: [Place; PLACES],
}

impl Block {
    const fn new() -> Self {
        Self { has_owner: AtomicBool::new(false), places: [const { Place::new() }; PLACES] }
    }
}

/// The block of a thread.
struct Own(Cell<Option<usize>>);

thread_local! {
    static OWN: Own = const { Own(Cell::new(None)) };
}

impl Own {
    #[inline]
    fn has(&self, block: usize) -> bool {
        match self.0.get() {
            Some(own) => own == block,
            None => self.get_one(block),
        }
    }

    #[cold]
    fn get_one(&self, block: usize) -> bool {
        let has_owner = &TABLE[block].has_owner;
        // Acquire, with the release in `drop`: places that the last owner has taken are seen so.
        let is_free = !has_owner.load(Ordering::Relaxed) && !has_owner.swap(true, Ordering::Acquire);
        if is_free {
            self.0.set(Some(block));
        }
        is_free
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        if let Some(block) = self.0.get() {
            // Release: see `get_one`.
            TABLE[block].has_owner.store(false, Ordering::Release);
        }
    }
}

/// What is kept of one span.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Place {
    span_id: AtomicU64,
    /// Number of the layer that has the span: ids are those of its registry.
    layer: AtomicU32,
    /// Words of `fields` that are used, in the lowest byte; the bytes of an event that they are, in
    /// the next one; and [`IS_RECORDED`].
    state: AtomicU32,
    site: AtomicUsize,
    flow_id: AtomicU64,
    fields: [AtomicU64; WORDS],
}

const _: () = assert!(size_of::<Place>() == 128);

/// See [`Place::state`]. Fields have fewer than 256 bytes.
const BYTES_SHIFT: usize = 8;
const _: () = assert!(WORDS * size_of::<u64>() <= u8::MAX as usize);

/// Fields were recorded after the span was made.
const IS_RECORDED: u32 = 1 << 31;

/// A place that is being filled. It is free again if this is dropped before.
pub(super) struct Taken(&'static Place);

/// Takes a place for a span. `None`: it has to be kept elsewhere.
#[inline]
pub(super) fn take(layer: u32, span_id: u64) -> Option<Taken> {
    let (block, place) = place(span_id);
    if layer == NO_LAYER || span_id == TAKEN || !OWN.try_with(|own| own.has(block)).unwrap_or(false) {
        return None;
    }
    // Acquire, with the release in `close`: the span that had the place is not read any more. Only
    // this thread takes it, so that it stays free.
    if place.span_id.load(Ordering::Acquire) != FREE {
        return None;
    }
    // Relaxed: for this thread, whose fields may make spans when they are formatted.
    place.span_id.store(TAKEN, Ordering::Relaxed);
    // Relaxed here and for what is filled in: the id publishes all of it.
    place.layer.store(layer, Ordering::Relaxed);
    Some(Taken(place))
}

impl Taken {
    /// Words for the fields.
    pub(super) fn fields(&self) -> &'static [AtomicU64; WORDS] {
        &self.0.fields
    }

    /// It is the span's from now on, and has so many words of fields, for so many bytes.
    #[inline]
    pub(super) fn give(
        self,
        span_id: u64,
        site: &'static Site,
        flow_id: u64,
        (num_words, bytes): (usize, usize),
    ) {
        let place = self.0;
        place.state.store((num_words | bytes << BYTES_SHIFT) as u32, Ordering::Relaxed);
        place.site.store(site.key(), Ordering::Relaxed);
        place.flow_id.store(flow_id, Ordering::Relaxed);
        // Release: with the acquire in `find`.
        place.span_id.store(span_id, Ordering::Release);
        std::mem::forget(self);
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.close();
    }
}

/// Of a layer that no registry has: it keeps nothing here.
pub(super) const NO_LAYER: u32 = 0;

/// The place of a span that is open.
#[inline]
pub(super) fn find(layer: u32, span_id: u64) -> Option<&'static Place> {
    let (_, place) = place(span_id);
    // Acquire: see `Taken::give`.
    let is_it = place.span_id.load(Ordering::Acquire) == span_id && span_id != TAKEN;
    (is_it && place.layer.load(Ordering::Relaxed) == layer).then_some(place)
}

/// The block and the place of a span. In the ids of the registry of `tracing-subscriber`, less one,
/// the lowest 38 bits tell the spans of a thread apart that are open, the next 13 the threads, and
/// those above count how often the span's data was used: a thread that opens and closes one after
/// the other stays in one place. All of the id is compared; those of other registries, if they are
/// otherwise, only have fewer places.
#[inline]
fn place(span_id: u64) -> (usize, &'static Place) {
    const THREAD_SHIFT: u32 = 38;
    let index = span_id.wrapping_sub(1);
    let block = (index >> THREAD_SHIFT) as usize % BLOCKS;
    (block, &TABLE[block].places[index as usize % PLACES])
}

impl Place {
    const fn new() -> Self {
        Self {
            span_id: AtomicU64::new(FREE),
            layer: AtomicU32::new(NO_LAYER),
            state: AtomicU32::new(0),
            site: AtomicUsize::new(0),
            flow_id: AtomicU64::new(0),
            fields: [const { AtomicU64::new(0) }; WORDS],
        }
    }

    /// The place with where the span was made, if this thread has met that before, and if the place
    /// has all of its fields.
    #[inline]
    pub(super) fn known(&'static self) -> Option<(&'static Site, &'static Self)> {
        let site = Site::by_key(self.site.load(Ordering::Relaxed))?;
        (!self.is_recorded()).then_some((site, self))
    }

    #[inline]
    pub(super) fn flow_id(&self) -> u64 {
        self.flow_id.load(Ordering::Relaxed)
    }

    /// Those that the span was made with.
    #[inline]
    pub(super) fn fields(&self) -> StoredArgs<'_> {
        let state = self.state.load(Ordering::Relaxed);
        let (num_words, bytes) = (state as u8, (state >> BYTES_SHIFT) as u8);
        StoredArgs::new(self.fields.get(..num_words.into()).unwrap_or_default(), bytes.into())
    }

    /// From now on the extensions have to be looked at, too.
    pub(super) fn set_recorded(&self) {
        // Release: with the acquire in `is_recorded`.
        self.state.fetch_or(IS_RECORDED, Ordering::Release);
    }

    #[inline]
    pub(super) fn is_recorded(&self) -> bool {
        // Acquire: who sees it sees what the extensions have.
        self.state.load(Ordering::Acquire) & IS_RECORDED != 0
    }

    /// The span is closed.
    #[inline]
    pub(super) fn close(&self) {
        // Release: see `take`.
        self.span_id.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track_event::{ArgName, ArgStore};

    fn keep(layer: u32, span_id: u64, site: &'static Site, flow_id: u64, numbers: usize) -> bool {
        let Some(taken) = take(layer, span_id) else { return false };
        static NAME: ArgName = ArgName::new("kept");
        let mut store = ArgStore::new(taken.fields());
        let have_fitted = (0..numbers).all(|number| store.unsigned(&NAME, number as u64));
        have_fitted && {
            taken.give(span_id, site, flow_id, store.used());
            true
        }
    }

    fn num_words(place: &Place) -> usize {
        place.state.load(Ordering::Relaxed) as usize % (1 << BYTES_SHIFT)
    }

    /// The first id of a block that no other test and no registry of a test uses.
    const fn id(block: u64) -> u64 {
        (block << 38) + 1
    }

    /// A place is one span's of one registry, until that is closed.
    #[test]
    fn a_place_is_one_spans() {
        const ID: u64 = id(100);
        /// Has the same place.
        const ANOTHER: u64 = ID | 1 << 60;
        let site = Site::for_tests();
        assert!(!keep(NO_LAYER, ID, site, 7, 5));
        assert!(keep(1, ID, site, 7, 5));
        assert!(!keep(1, ANOTHER, site, 8, 5), "it is taken");
        assert!(find(1, ANOTHER).is_none() && find(2, ID).is_none());
        let place = find(1, ID).expect("it was kept");
        let known = place.known().map(|(known, _)| std::ptr::eq(known, site));
        assert_eq!((known, place.flow_id(), num_words(place)), (Some(true), 7, 5 * 2));
        place.set_recorded();
        assert!(place.known().is_none() && num_words(place) == 5 * 2);
        place.close();
        assert!(find(1, ID).is_none());
        assert!(!keep(1, ANOTHER, site, 8, 30), "it does not fit");
        assert!(keep(1, ANOTHER, site, 8, 0));
        let place = find(1, ANOTHER).expect("it was kept");
        assert!(place.known().is_some() && num_words(place) == 0);
        place.close();
    }

    /// A block is one thread's, until that ends; its spans stay.
    #[test]
    fn a_block_is_one_threads() {
        const ID: u64 = id(101);
        let site = Site::for_tests();
        let (keep_next, is_next) = std::sync::mpsc::channel::<()>();
        let (say_kept, is_kept) = std::sync::mpsc::channel();
        let owner = std::thread::spawn(move || {
            say_kept.send(keep(1, ID, site, 7, 1)).expect("the test listens");
            let _ = is_next.recv();
        });
        assert_eq!(is_kept.recv(), Ok(true));
        let is_kept_by = |id| std::thread::spawn(move || keep(1, id, Site::for_tests(), 7, 1)).join();
        assert_eq!(is_kept_by(ID + 1).ok(), Some(false), "another thread has the block");
        drop(keep_next);
        assert!(owner.join().is_ok() && find(1, ID).is_some());
        assert_eq!(is_kept_by(ID).ok(), Some(false), "its span is open");
        assert_eq!(is_kept_by(ID + 1).ok(), Some(true));
        assert!(find(1, ID + 1).is_some());
    }
}
