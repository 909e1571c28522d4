//! Arguments that are encoded before their event is written.

use super::args::{ArgValue, ArgWriter};
use super::event::DEBUG_ANNOTATIONS;
use super::message::Message;
#[cfg(feature = "tracing")]
use super::names::ArgName;
use super::prefix::Prefix;
#[cfg(feature = "tracing")]
use crate::sync::{AtomicU32, Ordering};

/// Arguments as the packet of an event has them: names have the same numbers in all sequences.
#[cfg(feature = "tracing")]
#[derive(Debug, Default)]
pub(crate) struct EncodedArgs(Message);

/// Names of arguments that belong together. A sequence explains them all at once.
#[cfg(feature = "tracing")]
#[derive(Debug)]
pub(crate) struct ArgNames {
    /// Among all of these.
    pub(super) number: u32,
    names: Box<[ArgName]>,
}

#[cfg(feature = "tracing")]
impl ArgNames {
    pub(crate) fn new(names: impl Iterator<Item = &'static str>) -> Self {
        static LAST: AtomicU32 = AtomicU32::new(0);
        // Relaxed: the number is all there is to it.
        let number = LAST.fetch_add(1, Ordering::Relaxed) + 1;
        Self { number, names: names.map(ArgName::new).collect() }
    }
}

#[cfg(feature = "tracing")]
impl std::ops::Deref for ArgNames {
    type Target = [ArgName];

    fn deref(&self) -> &[ArgName] {
        &self.names
    }
}

#[cfg(feature = "tracing")]
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

    /// Adds one.
    #[inline]
    pub(crate) fn arg(&mut self, name: &ArgName, value: impl ArgValue) {
        put_arg(&mut self.0, name.number(), value);
    }
}

/// Writes an argument into an event.
#[inline]
pub(super) fn put_arg(event: &mut Message, name: u32, value: impl ArgValue) {
    const ARG: Prefix = Prefix::NONE.open(DEBUG_ANNOTATIONS).varint(1);
    let open = event.open_with(ARG, name.into());
    value.write(&mut ArgWriter(event));
    event.close(open);
}
