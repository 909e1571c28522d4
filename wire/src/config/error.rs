//! What is wrong with a config, and where.

use std::fmt;

use super::CONFIG_SIZE_BYTES_MAX;
use crate::raw::Malformed;

/// Why a config was refused. Whoever wrote the config is at fault.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    /// The text form has an error.
    #[error("{0}")]
    Text(#[from] TextError),
    /// The binary form has an error.
    #[error("{0}")]
    Binary(#[from] BinaryError),
    /// More than [`CONFIG_SIZE_BYTES_MAX`].
    #[error("the config has {size_bytes} bytes, the limit is {CONFIG_SIZE_BYTES_MAX}; is this a config?")]
    TooLarge {
        /// Size of what was given.
        size_bytes: usize,
    },
}

/// A position in a text, as editors count.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// From 1.
    pub line: usize,
    /// In characters, from 1.
    pub column: usize,
}

impl Position {
    /// The position just after `text`.
    pub fn end_of(text: &str) -> Self {
        let line_begin = text.rfind('\n').map_or(0, |at| at + 1);
        Position { line: text.matches('\n').count() + 1, column: text[line_begin..].chars().count() + 1 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}, column {}", self.line, self.column)
    }
}

/// An error in the text form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{position}: {message}")]
pub struct TextError {
    /// Where the offending token begins.
    pub position: Position,
    /// What was found and what was expected.
    pub message: String,
}

impl TextError {
    pub(super) fn not_utf8(position: Position) -> Self {
        TextError { position, message: "expected text in UTF-8, found a byte that is not".to_owned() }
    }
}

/// An error in the binary form.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("byte {offset_bytes}: expected a binary config, found a field that cannot be read: {message}")]
pub struct BinaryError {
    /// Place of the outermost field that holds the error.
    pub offset_bytes: usize,
    /// What is wrong.
    pub message: String,
}

impl BinaryError {
    pub(super) fn new(offset_bytes: usize, message: String) -> Self {
        BinaryError { offset_bytes, message }
    }
}

impl From<Malformed> for BinaryError {
    fn from(malformed: Malformed) -> Self {
        BinaryError::new(malformed.offset_bytes, malformed.kind.to_string())
    }
}

impl From<Malformed> for ConfigError {
    fn from(malformed: Malformed) -> Self {
        BinaryError::from(malformed).into()
    }
}
