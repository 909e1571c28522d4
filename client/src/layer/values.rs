//! Values of fields: written at once, or encoded until their span is entered.

use std::fmt;

use tracing_core::Field;
use tracing_core::field::Visit;

use super::site::{LOG_FIELDS, LOG_TARGET, MESSAGE, Site};
use crate::track_event::{ArgValue, EncodedArgs, EventWriter, debug};

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

/// Encodes the fields of a span: it is entered as often as it is made, or more often.
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
