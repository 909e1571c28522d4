//! Values of arguments: `DebugAnnotation`.

use std::fmt;

use super::message::Message;

pub(super) const BOOL_VALUE: u32 = 2;
pub(super) const UINT_VALUE: u32 = 3;
pub(super) const INT_VALUE: u32 = 4;
pub(super) const DOUBLE_VALUE: u32 = 5;
pub(super) const STRING_VALUE: u32 = 6;

/// What an event may have as the value of an argument: integers of at most 64 bits, floating point
/// numbers, booleans, texts, and by [`debug()`] and [`display()`] what can be formatted.
pub trait ArgValue {
    /// Writes the value.
    fn write(&self, arg: &mut ArgWriter<'_>);
}

/// The argument that is being written. It has one value; the last one counts.
#[derive(Debug)]
pub struct ArgWriter<'a>(pub(super) &'a mut Message);

impl ArgWriter<'_> {
    /// A boolean.
    pub fn boolean(&mut self, value: bool) {
        self.0.varint(BOOL_VALUE, value.into());
    }

    /// A number without a sign.
    #[inline]
    pub fn unsigned(&mut self, value: u64) {
        self.0.varint(UINT_VALUE, value);
    }

    /// A number with a sign.
    #[inline]
    pub fn signed(&mut self, value: i64) {
        self.0.varint(INT_VALUE, value as u64);
    }

    /// A floating point number.
    pub fn double(&mut self, value: f64) {
        self.0.fixed64(DOUBLE_VALUE, value.to_bits());
    }

    /// A text.
    #[inline]
    pub fn text(&mut self, value: &str) {
        self.0.bytes(STRING_VALUE, value.as_bytes());
    }

    /// A text that is formatted now.
    pub fn format(&mut self, value: fmt::Arguments<'_>) {
        self.0.text(STRING_VALUE, value);
    }
}

macro_rules! values {
    ($($method:ident: $($type:ty),+;)+) => {$($(
        impl ArgValue for $type {
            #[inline]
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
    #[inline]
    fn write(&self, arg: &mut ArgWriter<'_>) {
        arg.text(self);
    }
}

impl ArgValue for String {
    #[inline]
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
