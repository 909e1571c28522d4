//! Values of arguments: `DebugAnnotation`.

use std::fmt;

use super::annotation::{self, Tag};
use super::message::Message;

/// What an event may have as the value of an argument: integers of at most 64 bits, floating point
/// numbers, booleans, texts, and by [`debug()`] and [`display()`] what can be formatted.
pub trait ArgValue {
    /// Writes the value.
    fn write(&self, arg: &mut ArgWriter<'_>);
}

/// The argument that is being written. It has one value; the last one counts.
#[derive(Debug)]
pub struct ArgWriter<'a> {
    event: &'a mut Message,
    /// Where the argument begins.
    start: usize,
    /// `None`: it is written already.
    name: Option<u32>,
}

impl<'a> ArgWriter<'a> {
    /// Adds an argument to an event: its name is a number.
    #[inline]
    pub(super) fn put(event: &mut Message, name: u32, value: impl ArgValue) {
        let start = event.len();
        value.write(&mut ArgWriter { event, start, name: Some(name) });
        if event.len() == start {
            annotation::put_any(event, name, |_| ());
        }
    }

    /// Writes the value of an argument whose name is written in it.
    pub(super) fn put_value(arg: &'a mut Message, value: impl ArgValue) {
        value.write(&mut Self { start: arg.len(), event: arg, name: None });
    }

    #[inline(always)]
    fn number(&mut self, tag: Tag, value: u64) {
        let Self { event, start, name } = self;
        event.truncate(*start);
        match *name {
            Some(name) => {
                let mut tail = event.tail();
                annotation::put_number(&mut tail, name, tag, value);
                tail.end();
            }
            None => annotation::put_value(event, tag, value),
        }
    }

    /// A boolean.
    #[inline]
    pub fn boolean(&mut self, value: bool) {
        self.number(Tag::BOOL, value.into());
    }

    /// A number without a sign.
    #[inline]
    pub fn unsigned(&mut self, value: u64) {
        self.number(Tag::UINT, value);
    }

    /// A number with a sign.
    #[inline]
    pub fn signed(&mut self, value: i64) {
        self.number(Tag::INT, value as u64);
    }

    /// A floating point number.
    #[inline]
    pub fn double(&mut self, value: f64) {
        self.number(Tag::DOUBLE, value.to_bits());
    }

    /// A text.
    #[inline(always)]
    pub fn text(&mut self, value: &str) {
        let Self { event, start, name } = self;
        event.truncate(*start);
        match *name {
            Some(name) => {
                let (mut tail, text) = (event.tail(), value.as_bytes());
                annotation::put_sized(&mut tail, name, Tag::STRING, text.len(), |tail| tail.append(text));
                tail.end();
            }
            None => event.bytes(Tag::STRING.field(), value.as_bytes()),
        }
    }

    /// A text that is formatted now.
    pub fn format(&mut self, value: fmt::Arguments<'_>) {
        let Self { event, start, name } = self;
        event.truncate(*start);
        match *name {
            Some(name) => {
                annotation::put_any(event, name, |arg| arg.text(Tag::STRING.field(), value));
            }
            None => event.text(Tag::STRING.field(), value),
        }
    }
}

macro_rules! values {
    ($($method:ident: $($type:ty),+;)+) => {$($(
        impl ArgValue for $type {
            #[inline(always)]
            fn write(&self, arg: &mut ArgWriter<'_>) {
                arg.$method((*self).into());
            }
        }
    )+)+};
}

values! {
    boolean: bool;
    unsigned: u8, u16, u32, u64;
    signed: i8, i16, i32, i64;
    double: f32, f64;
}

impl ArgValue for usize {
    #[inline]
    fn write(&self, arg: &mut ArgWriter<'_>) {
        arg.unsigned(*self as u64);
    }
}

impl ArgValue for isize {
    #[inline]
    fn write(&self, arg: &mut ArgWriter<'_>) {
        arg.signed(*self as i64);
    }
}

impl ArgValue for str {
    #[inline(always)]
    fn write(&self, arg: &mut ArgWriter<'_>) {
        arg.text(self);
    }
}

impl ArgValue for String {
    #[inline(always)]
    fn write(&self, arg: &mut ArgWriter<'_>) {
        arg.text(self);
    }
}

impl ArgValue for fmt::Arguments<'_> {
    fn write(&self, arg: &mut ArgWriter<'_>) {
        arg.format(*self);
    }
}

impl<T: ArgValue + ?Sized> ArgValue for &T {
    #[inline(always)]
    fn write(&self, arg: &mut ArgWriter<'_>) {
        (**self).write(arg);
    }
}

/// `None` is the text `none`.
impl<T: ArgValue> ArgValue for Option<T> {
    fn write(&self, arg: &mut ArgWriter<'_>) {
        match self {
            Some(value) => value.write(arg),
            None => arg.text("none"),
        }
    }
}

/// See [`debug()`].
#[derive(Debug)]
pub struct DebugValue<T>(T);

/// A value as its `Debug` has it. It is formatted only if a session wants the event.
pub fn debug<T: fmt::Debug>(value: T) -> DebugValue<T> {
    DebugValue(value)
}

impl<T: fmt::Debug> ArgValue for DebugValue<T> {
    fn write(&self, arg: &mut ArgWriter<'_>) {
        arg.format(format_args!("{:?}", self.0));
    }
}

/// See [`display()`].
#[derive(Debug)]
pub struct DisplayValue<T>(T);

/// A value as its `Display` has it. It is formatted only if a session wants the event.
pub fn display<T: fmt::Display>(value: T) -> DisplayValue<T> {
    DisplayValue(value)
}

impl<T: fmt::Display> ArgValue for DisplayValue<T> {
    fn write(&self, arg: &mut ArgWriter<'_>) {
        arg.format(format_args!("{}", self.0));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes so many values.
    struct Values(u64);

    impl ArgValue for Values {
        fn write(&self, arg: &mut ArgWriter<'_>) {
            (0..self.0).for_each(|value| arg.unsigned(value));
        }
    }

    #[test]
    fn the_last_value_counts_and_none_is_a_name_alone() {
        let put = |value: &dyn Fn(&mut Message)| {
            let mut event = Message::default();
            value(&mut event);
            event.as_bytes().to_vec()
        };
        let last = put(&|event| ArgWriter::put(event, 7, Values(5)));
        assert_eq!(last, put(&|event| ArgWriter::put(event, 7, 4_u64)));
        assert_eq!(put(&|event| ArgWriter::put(event, 7, Values(0))), [0x22, 2, 8, 7]);
        let in_full = put(&|event| ArgWriter::put_value(event, Values(5)));
        assert_eq!(in_full, put(&|event| ArgWriter::put_value(event, 4_u64)));
    }
}
