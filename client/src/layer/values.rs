//! Values of fields: written at once, or kept until their span is entered.

use std::fmt;

use tracing_core::Field;
use tracing_core::field::Visit;

use super::site::{LOG_FIELDS, LOG_TARGET, MESSAGE, Site};
use crate::track_event::{ArgValue, ArgWriter, EventWriter, debug};

/// Writes the fields of an event as its arguments, but for what is its name.
pub(super) struct Args<'a, 'e> {
    pub(super) site: &'static Site,
    pub(super) event: &'a mut EventWriter<'e>,
}

impl Args<'_, '_> {
    fn write(&mut self, field: &Field, value: impl ArgValue) {
        if field.name() != MESSAGE
            && !field.name().starts_with(LOG_FIELDS)
            && let Some(name) = self.site.arg(field.index())
        {
            self.event.arg(name, value);
        }
    }
}

impl Visit for Args<'_, '_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.write(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.write(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.write(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.write(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.write(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.write(field, debug(value));
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

#[derive(Debug)]
enum Value {
    Boolean(bool),
    Signed(i64),
    Unsigned(u64),
    Double(f64),
    Text(String),
}

impl ArgValue for Value {
    fn write(&self, arg: &mut ArgWriter<'_>) {
        match self {
            Value::Boolean(value) => arg.boolean(*value),
            Value::Signed(value) => arg.signed(*value),
            Value::Unsigned(value) => arg.unsigned(*value),
            Value::Double(value) => arg.double(*value),
            Value::Text(value) => arg.text(value),
        }
    }
}

/// Fields of a span, by their index and in the order of recording.
#[derive(Debug, Default)]
pub(super) struct Recorded(Vec<(usize, Value)>);

impl Recorded {
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Writes them from the one at `first` on.
    pub(super) fn write(&self, first: usize, site: &'static Site, event: &mut EventWriter<'_>) {
        for (index, value) in &self.0[first..] {
            if let Some(name) = site.arg(*index) {
                event.arg(name, value);
            }
        }
    }
}

impl Visit for Recorded {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.0.push((field.index(), Value::Double(value)));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.0.push((field.index(), Value::Signed(value)));
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.0.push((field.index(), Value::Unsigned(value)));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.0.push((field.index(), Value::Boolean(value)));
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.push((field.index(), Value::Text(value.to_owned())));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.push((field.index(), Value::Text(format!("{value:?}"))));
    }
}
