//! What the layer keeps of spans that are open: in a table of the process, so that a span that is
//! made, entered and closed costs one atomic exchange and no lock, and allocates nothing.
//!
//! ```text
//!   id of the span -- hash --> place     free: one exchange takes it
//!                                        of another span, or the fields are too long:
//!                                        the registry's extensions have the span instead
//! ```
//!
//! Who takes a place fills it, and its id says then whose it is. After that nobody writes to it but
//! who closes the span: fields that are recorded later are in the extensions. The layer is called
//! for a span only while that is open, so that no place is given up while somebody reads it.

use super::site::Site;
use crate::sync::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use crate::track_event::EncodedArgs;

/// Half a MiB of address space, of which the system provides what is used.
const PLACES: usize = 1 << 12;
/// Fields in numbers of eight bytes: three or four numbers, or two and a short text.
const WORDS: usize = 12;
const FIELD_BYTES_MAX: usize = WORDS * size_of::<u64>();

/// Of a place that is free. No span has this id.
const FREE: u64 = 0;
/// Of a place that is being filled. Nor has one this id: registries count from one.
const TAKEN: u64 = u64::MAX;

static TABLE: [Place; PLACES] = [const { Place::new() }; PLACES];

/// What is kept of one span.
#[derive(Debug)]
#[repr(align(128))]
pub(super) struct Place {
    span_id: AtomicU64,
    /// Number of the layer that has the span: ids are those of its registry.
    layer: AtomicU32,
    /// Bytes of `fields`, and [`IS_RECORDED`].
    state: AtomicU32,
    site: AtomicUsize,
    flow_id: AtomicU64,
    fields: [AtomicU64; WORDS],
}

const _: () = assert!(size_of::<Place>() == 128);

/// Fields were recorded after the span was made.
const IS_RECORDED: u32 = 1 << 31;

/// Takes a place for a span. False: it has to be kept elsewhere.
pub(super) fn keep(
    layer: u32,
    span_id: u64,
    site: &'static Site,
    flow_id: u64,
    fields: &EncodedArgs,
) -> bool {
    let (place, size_bytes) = (place(span_id), fields.size_bytes());
    if layer == NO_LAYER || span_id == TAKEN || size_bytes > FIELD_BYTES_MAX {
        return false;
    }
    // Acquire, with the release in `close`: the span that had the place is not read any more.
    if place.span_id.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_err() {
        return false;
    }
    // Relaxed: the id publishes all of it.
    place.layer.store(layer, Ordering::Relaxed);
    place.state.store(size_bytes as u32, Ordering::Relaxed);
    place.site.store(site.key(), Ordering::Relaxed);
    place.flow_id.store(flow_id, Ordering::Relaxed);
    place.fields.iter().zip(fields.words()).for_each(|(place, word)| place.store(word, Ordering::Relaxed));
    // Release: with the acquire in `find`.
    place.span_id.store(span_id, Ordering::Release);
    true
}

/// Of a layer that no registry has: it keeps nothing here.
pub(super) const NO_LAYER: u32 = 0;

/// The place of a span that is open.
#[inline]
pub(super) fn find(layer: u32, span_id: u64) -> Option<&'static Place> {
    let place = place(span_id);
    // Acquire: see `keep`.
    let is_it = place.span_id.load(Ordering::Acquire) == span_id && span_id != TAKEN;
    (is_it && place.layer.load(Ordering::Relaxed) == layer).then_some(place)
}

/// The upper bits of a registry's ids count how often a span's data was used, and those below tell
/// the spans apart that are open: a thread that opens and closes one after the other stays in one
/// place. All of the id is compared.
#[inline]
fn place(span_id: u64) -> &'static Place {
    const COUNT_BITS: u32 = 13;
    // Multiplicative hashing, by 2^64 divided by the golden ratio.
    let hash = (span_id << COUNT_BITS).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    &TABLE[(hash >> (u64::BITS - PLACES.ilog2())) as usize]
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

    /// Bytes of its fields.
    #[inline]
    pub(super) fn size_bytes(&self) -> usize {
        (self.state.load(Ordering::Relaxed) & !IS_RECORDED) as usize
    }

    /// Words that have its fields.
    #[inline]
    pub(super) fn words(&self) -> impl Iterator<Item = u64> {
        let words = &self.fields[..self.size_bytes().div_ceil(size_of::<u64>())];
        words.iter().map(|word| word.load(Ordering::Relaxed))
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
        // Release: see `keep`.
        self.span_id.store(FREE, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::track_event::ArgName;

    static NAME: ArgName = ArgName::new("number");

    fn fields(values: std::ops::Range<u64>) -> EncodedArgs {
        let mut fields = EncodedArgs::new();
        values.for_each(|value| fields.arg(&NAME, value));
        fields
    }

    /// A place is one span's of one registry, until that is closed. The ids are no other test's.
    #[test]
    fn a_place_is_one_spans() {
        const ID: u64 = 1 << 40;
        /// Has the same place.
        const ANOTHER: u64 = ID | 1 << 60;
        let site = Site::for_tests();
        let kept = fields(1_000_000..1_000_005);
        assert!(!keep(NO_LAYER, ID, site, 7, &kept));
        assert!(keep(1, ID, site, 7, &kept));
        assert!(!keep(1, ANOTHER, site, 8, &kept), "it is taken");
        assert!(find(1, ANOTHER).is_none() && find(2, ID).is_none());
        let place = find(1, ID).expect("it was kept");
        let known = place.known().map(|(known, _)| std::ptr::eq(known, site));
        assert_eq!((known, place.flow_id(), place.size_bytes()), (Some(true), 7, kept.size_bytes()));
        assert!(place.words().eq(kept.words()) && place.words().count() == 5);
        place.set_recorded();
        assert!(place.known().is_none() && place.size_bytes() == kept.size_bytes());
        place.close();
        assert!(find(1, ID).is_none());
        assert!(!keep(1, ANOTHER, site, 8, &fields(0..30)), "it does not fit");
        assert!(keep(1, ANOTHER, site, 8, &fields(0..0)));
        let place = find(1, ANOTHER).expect("it was kept");
        assert!(place.known().is_some() && place.words().count() == 0);
        place.close();
    }
}
