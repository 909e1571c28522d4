//! Values of fields: written at once, or kept until their span is entered.

use std::fmt;

use smallvec::SmallVec;
use tracing_core::Field;
use tracing_core::field::Visit;

use super::site::{LOG_FIELDS, LOG_TARGET, MESSAGE, Site};
use crate::track_event::{ArgValue, EventWriter, debug, encoded};

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

/// Fields of a span in the order of recording, encoded: a span is made more often than it is looked
/// at, and most have their fields where the span's data is.
///
/// ```text
///   | index (1 byte) | size (4 bytes) | value of a DebugAnnotation |  next field ...
/// ```
#[derive(Debug, Default)]
pub(super) struct Recorded(SmallVec<[u8; INLINE_BYTES]>);

/// Three or four numbers, or two and a short text.
const INLINE_BYTES: usize = 96;
/// In front of each value.
const PREFIX_BYTES: usize = 5;

impl Recorded {
    pub(super) fn size_bytes(&self) -> usize {
        self.0.len()
    }

    /// Writes the fields behind the first `from_bytes`.
    pub(super) fn write(&self, from_bytes: usize, site: &'static Site, event: &mut EventWriter<'_>) {
        let mut rest = &self.0[from_bytes..];
        while let Some((&[index, ref size @ ..], fields)) = rest.split_first_chunk::<PREFIX_BYTES>() {
            let (value, next) = fields.split_at(u32::from_le_bytes(*size) as usize);
            if let Some(name) = site.arg(index.into()) {
                event.encoded_arg(name, value);
            }
            rest = next;
        }
    }

    fn push(&mut self, field: &Field, value: impl ArgValue) {
        // There are 32 fields at most, and no value has 4 GiB.
        encoded(&value, |bytes| {
            self.0.push(field.index() as u8);
            self.0.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
            self.0.extend_from_slice(bytes);
        });
    }
}

impl Visit for Recorded {
    fn record_f64(&mut self, field: &Field, value: f64) {
        self.push(field, value);
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.push(field, value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.push(field, value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.push(field, value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.push(field, value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.push(field, debug(value));
    }
}
