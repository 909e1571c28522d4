//! A config as text again, in the plain style that every reader of the format takes: one field a
//! line, repeated fields repeated.

use std::ascii::escape_default;
use std::fmt::{self, Write as _};

use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, UnknownField, Value};

use crate::raw::{self, Fields};

pub(super) fn to_text(message: &DynamicMessage) -> String {
    let mut text = String::new();
    write_message(&mut text, message, 0).expect("a string takes what is written to it");
    text
}

fn write_message(text: &mut String, message: &DynamicMessage, depth: usize) -> fmt::Result {
    for (field, value) in message.fields() {
        match value {
            Value::List(values) => {
                for value in values {
                    write_field(text, &field, value, depth)?;
                }
            }
            value => write_field(text, &field, value, depth)?,
        }
    }
    for field in message.unknown_fields() {
        write_unknown(text, field, depth)?;
    }
    Ok(())
}

fn write_field(text: &mut String, field: &FieldDescriptor, value: &Value, depth: usize) -> fmt::Result {
    let indent = depth * 2;
    let name = field.name();
    if let Value::Message(message) = value {
        writeln!(text, "{:indent$}{name} {{", "")?;
        write_message(text, message, depth + 1)?;
        return writeln!(text, "{:indent$}}}", "");
    }
    write!(text, "{:indent$}{name}: ", "")?;
    match (value, field.kind()) {
        (Value::EnumNumber(number), Kind::Enum(descriptor)) => match descriptor.get_value(*number) {
            Some(value) => text.push_str(value.name()),
            None => write!(text, "{number}")?,
        },
        (Value::String(string), _) => write_quoted(text, string.as_bytes())?,
        (Value::Bytes(bytes), _) => write_quoted(text, bytes)?,
        (Value::F64(number), _) => write_float(text, *number)?,
        (Value::F32(number), _) => write_float(text, f64::from(*number))?,
        (Value::Bool(value), _) => write!(text, "{value}")?,
        (Value::I32(number), _) => write!(text, "{number}")?,
        (Value::I64(number), _) => write!(text, "{number}")?,
        (Value::U32(number), _) => write!(text, "{number}")?,
        (Value::U64(number), _) => write!(text, "{number}")?,
        // Maps are not part of the format, lists and messages were taken above.
        (Value::Map(_) | Value::List(_) | Value::Message(_) | Value::EnumNumber(_), _) => {}
    }
    text.write_char('\n')
}

/// By number, as its name is not known; such a line cannot be read back, the binary form can.
fn write_unknown(text: &mut String, field: &UnknownField, depth: usize) -> fmt::Result {
    let mut encoded = Vec::new();
    field.encode(&mut encoded);
    // A group is no field of this format; it is left out here and kept in the bytes.
    for field in Fields::new(&encoded).map_while(Result::ok) {
        write!(text, "{:1$}{2}: ", "", depth * 2, field.number)?;
        match field.value {
            raw::Value::Varint(number) => write!(text, "{number}")?,
            raw::Value::Fixed64(number) => write!(text, "0x{number:016x}")?,
            raw::Value::Fixed32(number) => write!(text, "0x{number:08x}")?,
            raw::Value::LengthDelimited(bytes) => write_quoted(text, bytes)?,
        }
        text.write_char('\n')?;
    }
    Ok(())
}

fn write_float(text: &mut String, number: f64) -> fmt::Result {
    match number.is_nan() {
        true => text.write_str("nan"),
        // `{:?}` keeps the point (1.0), and shows as many digits as are needed to read the same
        // number back.
        false => write!(text, "{number:?}"),
    }
}

/// Escapes of the format: `\n`, `\"`, and octal numbers of three digits for all that is not
/// printable ASCII.
fn write_quoted(text: &mut String, bytes: &[u8]) -> fmt::Result {
    text.write_char('"')?;
    for &byte in bytes {
        match byte {
            b'\n' | b'\r' | b'\t' | b'"' | b'\'' | b'\\' | b' '..=b'~' => {
                write!(text, "{}", escape_default(byte))?;
            }
            _ => write!(text, "\\{byte:03o}")?,
        }
    }
    text.write_char('"')
}
