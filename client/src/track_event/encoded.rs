//! Arguments that are encoded before their event is written.

use super::args::{ArgValue, ArgWriter};
use super::category::Category;
use super::heads::Begin;
use super::message::Message;
use super::names::{ArgName, EventName};
use super::stored::StoredArgs;
use crate::sync::{AtomicU32, Ordering};

/// Arguments as the packet of an event has them: names have the same numbers in all sequences.
#[derive(Debug, Default)]
pub(crate) struct EncodedArgs(Message);

/// A place in the program that begins slices. A sequence explains all of its names at once.
#[derive(Debug)]
pub(crate) struct SliceSite {
    /// Among all of these.
    number: u32,
    category: &'static Category,
    name: EventName,
    args: Box<[ArgName]>,
    begin: Begin,
}

impl SliceSite {
    pub(crate) fn new(
        category: &'static Category,
        name: &'static str,
        args: impl Iterator<Item = &'static str>,
    ) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number is all there is to it.
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        let name = EventName::new(name);
        let begin = Begin::new(category.number(), name.number());
        Self { number, category, name, args: args.map(ArgName::new).collect(), begin }
    }

    #[inline]
    pub(super) fn number(&self) -> u32 {
        self.number
    }

    #[inline]
    pub(crate) fn category(&self) -> &'static Category {
        self.category
    }

    #[inline]
    pub(crate) fn name(&self) -> &EventName {
        &self.name
    }

    #[inline]
    pub(crate) fn args(&self) -> &[ArgName] {
        &self.args
    }

    #[inline]
    pub(super) fn begin(&self) -> Begin {
        self.begin
    }

    /// Of its category's name, and of its own.
    #[inline]
    pub(super) fn numbers(&self) -> (u32, u32) {
        (self.category.number(), self.name.number())
    }
}

impl EncodedArgs {
    pub(crate) const fn new() -> Self {
        Self(Message::new())
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }

    pub(crate) fn size_bytes(&self) -> usize {
        self.0.as_bytes().len()
    }

    /// Words that have the bytes; of the last one some may have no meaning.
    pub(crate) fn words(&self) -> impl Iterator<Item = u64> {
        self.0.words()
    }

    /// Likewise without the first bytes.
    pub(crate) fn words_from(&self, from_bytes: usize) -> impl Iterator<Item = u64> {
        self.0.as_bytes()[from_bytes..].chunks(size_of::<u64>()).map(|bytes| {
            let mut word = [0; size_of::<u64>()];
            word[..bytes.len()].copy_from_slice(bytes);
            u64::from_le_bytes(word)
        })
    }

    pub(crate) fn append(&mut self, others: &Self) {
        self.0.append(others.0.as_bytes());
    }

    /// Adds those that are kept.
    pub(crate) fn append_stored(&mut self, args: StoredArgs<'_>) {
        let mut tail = self.0.tail();
        args.put(&mut tail);
        tail.end();
    }

    /// Adds one.
    #[inline]
    pub(crate) fn arg(&mut self, name: &ArgName, value: impl ArgValue) {
        ArgWriter::put(&mut self.0, name.number(), value);
    }
}
