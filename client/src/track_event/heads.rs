//! What the packets of events begin with.
//!
//! ```text
//!   | tag, size | type | category | name |     one word, if the numbers of both take a byte each
//! ```

#[cfg(feature = "tracing")]
use super::event::FLOW_IDS;
use super::event::{CATEGORY_IIDS, Kind, NAME_IID, TRACK_EVENT, TYPE};
use super::message::{Open, Tail};
use super::prefix::Prefix;

/// A packet begins with its event, and that with its type.
pub(super) const EVENT: Prefix = Prefix::NONE.open(TRACK_EVENT);
/// The event that ends a slice of the thread.
pub(super) const END: Prefix =
    Prefix::NONE.sized(TRACK_EVENT).byte(END_BYTES).with(TYPE, Kind::SliceEnd as u8);
const END_BYTES: u8 = 2;
/// In front of the number of a flow.
#[cfg(feature = "tracing")]
pub(super) const FLOW: Prefix = Prefix::NONE.fixed64(FLOW_IDS);

/// The word of an event whose names have small numbers, as most have; its size is missing.
#[inline(always)]
fn named(kind: Kind, category: u32, name: u32) -> Option<Prefix> {
    let event = EVENT.with(TYPE, kind as u8);
    (category < 0x80 && name < 0x80)
        .then(|| event.with(CATEGORY_IIDS, category as u8).with(NAME_IID, name as u8))
}

/// Begins an event that has a category and a name.
#[inline(always)]
pub(super) fn open_named(tail: &mut Tail<'_>, kind: Kind, category: u32, name: u32) -> Open {
    if let Some(named) = named(kind, category, name) {
        return tail.open_constant(named);
    }
    let open = tail.open_constant(EVENT.with(TYPE, kind as u8));
    tail.number(Prefix::NONE.varint(CATEGORY_IIDS), category.into());
    tail.number(Prefix::NONE.varint(NAME_IID), name.into());
    open
}

/// The begin of a slice that has a flow and arguments which are kept.
#[cfg(feature = "tracing")]
#[derive(Clone, Copy, Debug)]
pub(super) struct Begin(Option<u64>);

#[cfg(feature = "tracing")]
impl Begin {
    /// With these names.
    pub(super) fn new(category: u32, name: u32) -> Self {
        Self(named(Kind::SliceBegin, category, name).map(|named| named.word))
    }

    /// All in front of the flow, for so many bytes of arguments. `None`: it is longer than a word.
    #[inline(always)]
    pub(super) fn sized(self, args_bytes: usize) -> Option<u64> {
        const OTHER_BYTES: usize = Prefix::LEN_MAX - EVENT.open_at + FLOW.len + size_of::<u64>();
        let size = OTHER_BYTES + args_bytes;
        self.0.filter(|_| size < 0x80).map(|word| word | (size as u64) << (8 * (EVENT.open_at - 1)))
    }
}

#[cfg(all(test, feature = "tracing"))]
mod tests {
    use super::super::message::Message;
    use super::*;

    /// What is kept of a place's begins is what composing one gives.
    #[test]
    fn a_begin_is_an_event_that_is_composed() {
        for (category, name) in [(1, 1), (0x7F, 0x7F), (0x80, 1), (1, 0x80), (1, 0x4000)] {
            for args_bytes in (0..150).chain([20_000]) {
                let mut event = Message::default();
                let mut tail = event.tail();
                let open = open_named(&mut tail, Kind::SliceBegin, category, name);
                tail.word(FLOW.word, FLOW.len);
                tail.word(7, size_of::<u64>());
                tail.append(&vec![b'-'; args_bytes]);
                tail.end();
                event.close(open);
                let begin = Begin::new(category, name).sized(args_bytes).map(u64::to_le_bytes);
                let (bytes, is_short) = (event.as_bytes(), category < 0x80 && name < 0x80);
                let composed = (is_short && bytes.len() < 0x80 + 2).then(|| bytes.first_chunk().copied());
                assert_eq!(begin, composed.flatten(), "{category} {name} {args_bytes}");
            }
        }
    }
}
