//! The text form: parsed by `prost-reflect`, its errors placed by line and column and put in terms
//! of what was expected.

use miette::Diagnostic as _;
use prost_reflect::text_format::ParseError;
use prost_reflect::{DynamicMessage, EnumDescriptor, MessageDescriptor};

use super::error::{Position, TextError};
use crate::schema;

/// Deepest nesting of messages in a text. The schema of configs ends at 6; the parser recurses once
/// a level.
const DEPTH_MAX: usize = 64;

/// Longest list of names that an error message shows.
const NAMES_SHOWN_MAX: usize = 12;

/// End of the message about an unknown field: only the binary form can hold it.
const USE_BINARY: &str = "give the config in binary form, which is passed through unchanged";

pub(super) fn parse(descriptor: MessageDescriptor, text: &str) -> Result<DynamicMessage, TextError> {
    check_depth(text)?;
    DynamicMessage::parse_text_format(descriptor, text).map_err(|error| {
        // Without a span the parser met the end of the text; that is just after the last token, not
        // after the blank lines behind it.
        let offset = span_begin(&error).unwrap_or(text.trim_end().len());
        let before = text.get(..offset).unwrap_or(text);
        TextError { position: Position::end_of(before), message: explain(&error) }
    })
}

fn span_begin(error: &ParseError) -> Option<usize> {
    Some(error.labels()?.next()?.offset())
}

/// Refuses what would overflow the parser's stack: it bounds nothing itself.
fn check_depth(text: &str) -> Result<(), TextError> {
    let mut depth = 0_usize;
    let mut chars = text.char_indices();
    while let Some((at, char)) = chars.next() {
        match char {
            '{' | '<' => depth += 1,
            '}' | '>' => depth = depth.saturating_sub(1),
            '#' => {
                chars.find(|(_, char)| *char == '\n');
            }
            '"' | '\'' => skip_string(&mut chars, char),
            _ => {}
        }
        if depth > DEPTH_MAX {
            return Err(TextError {
                position: Position::end_of(&text[..at]),
                message: format!("expected at most {DEPTH_MAX} nested messages, found one more"),
            });
        }
    }
    Ok(())
}

fn skip_string(chars: &mut std::str::CharIndices<'_>, quote: char) {
    while let Some((_, char)) = chars.next() {
        match char {
            // A string cannot go on in the next line; the parser will say so.
            '\n' => return,
            '\\' => {
                chars.next();
            }
            char if char == quote => return,
            _ => {}
        }
    }
}

/// The parser keeps the kind of an error to itself, so its sentence is taken apart; one that is not
/// recognised is passed on.
fn explain(error: &ParseError) -> String {
    let sentence = error.to_string();
    let mut quoted = sentence.split('\'').skip(1).step_by(2);
    let names = (quoted.next(), quoted.next());
    let explained = match names {
        (Some(field), Some(message)) if sentence.contains("not found for message") => {
            schema_message(message).map(|message| unknown_field(field, &message))
        }
        (Some(value), Some(name)) if sentence.contains("not found for enum") => schema::descriptor_pool()
            .get_enum_by_name(name)
            .map(|descriptor| unknown_value(value, &descriptor)),
        _ => None,
    };
    explained.unwrap_or_else(|| match error.help() {
        Some(help) => format!("{sentence}; {help}"),
        None => sentence,
    })
}

fn schema_message(full_name: &str) -> Option<MessageDescriptor> {
    schema::descriptor_pool().get_message_by_name(full_name)
}

fn unknown_field(field: &str, message: &MessageDescriptor) -> String {
    let name = message.name();
    let known: Vec<String> = message.fields().map(|field| field.name().to_owned()).collect();
    let hint = suggest(field, &known);
    let way_out = match hint.is_empty() || name == "DataSourceConfig" {
        true => format!("; if it is newer than this program, {USE_BINARY}"),
        false => String::new(),
    };
    format!("expected a field of {name}, found '{field}'{hint}{way_out}")
}

fn unknown_value(value: &str, descriptor: &EnumDescriptor) -> String {
    let known: Vec<String> = descriptor.values().map(|value| value.name().to_owned()).collect();
    let hint = suggest(value, &known);
    format!("expected a value of {}, found '{value}'{hint}", descriptor.name())
}

/// The name that was probably meant, or all names if they are few.
fn suggest(found: &str, known: &[String]) -> String {
    const ALIKE: f64 = 0.8;
    let closest =
        known.iter().map(|name| (strsim::jaro_winkler(found, name), name)).max_by(|a, b| a.0.total_cmp(&b.0));
    match closest {
        Some((score, name)) if score >= ALIKE => format!("; did you mean '{name}'?"),
        _ if known.len() <= NAMES_SHOWN_MAX => format!("; known are {}", known.join(", ")),
        _ => String::new(),
    }
}
