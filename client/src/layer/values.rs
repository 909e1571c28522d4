//! Values of fields: written at once, or encoded until their span is entered.

use std::cell::RefCell;
use std::fmt;

use tracing_core::Field;
use tracing_core::field::Visit;

use super::site::{LOG_FIELDS, LOG_TARGET, MESSAGE, Site};
use crate::sync::AtomicU64;
use crate::track_event::{ArgName, ArgStore, ArgValue, EncodedArgs, EventWriter, debug};

/// What takes the fields of a span or an event.
pub(super) trait Put {
    fn put(&mut self, field: &Field, value: impl ArgValue);
}

/// Hands on each field with its value.
pub(super) struct Each<P>(pub(super) P);

impl<P: Put> Visit for Each<P> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.put(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.put(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.put(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.put(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.put(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.put(field, debug(value));
    }
}

/// Writes the fields of an event as its arguments, but for what is its name.
pub(super) struct OfEvent<'a, 'e> {
    pub(super) site: &'static Site,
    pub(super) event: &'a mut EventWriter<'e>,
}

impl Put for OfEvent<'_, '_> {
    fn put(&mut self, field: &Field, value: impl ArgValue) {
        if field.name() != MESSAGE
            && !field.name().starts_with(LOG_FIELDS)
            && let Some(name) = self.site.args().get(field.index())
        {
            self.event.arg(name, value);
        }
    }
}

/// Encodes fields of a span: it is entered as often as it is made, or more often.
pub(super) struct OfSpan<'a> {
    pub(super) site: &'static Site,
    pub(super) args: &'a mut EncodedArgs,
}

impl Put for OfSpan<'_> {
    #[inline]
    fn put(&mut self, field: &Field, value: impl ArgValue) {
        if let Some(name) = self.site.args().get(field.index()) {
            self.args.arg(name, value);
        }
    }
}

/// Keeps the fields of a span that is made in its place, and where they are too long for it, all of
/// them elsewhere.
pub(super) struct OfNewSpan<'a> {
    site: &'static Site,
    store: ArgStore<'a>,
    /// In a box, since nearly all spans have none.
    elsewhere: Option<Box<EncodedArgs>>,
}

impl<'a> OfNewSpan<'a> {
    pub(super) fn new(site: &'static Site, words: &'a [AtomicU64]) -> Self {
        Self { site, store: ArgStore::new(words), elsewhere: None }
    }

    /// How many words of the place are used, for how many bytes; or else all of the fields.
    #[inline]
    pub(super) fn finish(self) -> Result<(usize, usize), Box<EncodedArgs>> {
        self.elsewhere.map_or(Ok(self.store.used()), Err)
    }

    #[inline]
    fn put(
        &mut self,
        field: &Field,
        value: impl ArgValue,
        keep: impl FnOnce(&mut ArgStore<'a>, &ArgName) -> bool,
    ) {
        let Some(name) = self.site.args().get(field.index()) else { return };
        if self.elsewhere.is_some() || !keep(&mut self.store, name) {
            self.encode(name, value);
        }
    }

    /// A value that has to be formatted, or for which there is no room.
    #[inline(never)]
    fn encode(&mut self, name: &ArgName, value: impl ArgValue) {
        if let Some(fields) = &mut self.elsewhere {
            fields.arg(name, value);
            return;
        }
        let mut encode = |scratch: &mut EncodedArgs| {
            scratch.clear();
            scratch.arg(name, &value);
            if !self.store.encoded(scratch) {
                self.leave(scratch);
            }
        };
        let encoded = SCRATCH.try_with(|scratch| scratch.try_borrow_mut().map(|mut args| encode(&mut args)));
        // The thread's is in use, where a value's `Debug` makes spans, or gone.
        if !matches!(encoded, Ok(Ok(()))) {
            encode(&mut EncodedArgs::new());
        }
    }

    /// There is no room for these.
    #[cold]
    fn leave(&mut self, args: &EncodedArgs) {
        let mut fields = Box::<EncodedArgs>::default();
        fields.append_stored(self.store.args());
        fields.append(args);
        self.elsewhere = Some(fields);
    }
}

thread_local! {
    /// A field of the span that is being made.
    static SCRATCH: RefCell<EncodedArgs> = const { RefCell::new(EncodedArgs::new()) };
}

impl Visit for OfNewSpan<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.put(field, value, |store, name| store.double(name, value));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.put(field, value, |store, name| store.signed(name, value));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.put(field, value, |store, name| store.unsigned(name, value));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.put(field, value, |store, name| store.boolean(name, value));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.put(field, value, |store, name| store.text(name, value));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.put(field, debug(value), |_, _| false);
    }
}

/// The target of an event of the `log` crate.
#[derive(Default)]
pub(super) struct LogTarget(pub(super) Option<String>);

impl Visit for LogTarget {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == LOG_TARGET {
            self.0 = Some(value.to_owned());
        }
    }

    /// It is a text.
    fn record_debug(&mut self, _: &Field, _: &dyn fmt::Debug) {}
}

/// The text of an event, if it has one.
#[derive(Default)]
pub(super) struct Message(pub(super) Option<String>);

impl Visit for Message {
    fn record_str(&mut self, field: &Field, value: &str) {
        if field.name() == MESSAGE {
            self.0 = Some(value.to_owned());
        }
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == MESSAGE {
            self.0 = Some(format!("{value:?}"));
        }
    }
}
