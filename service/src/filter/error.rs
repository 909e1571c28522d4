//! Why a filter is refused.

use crate::limits;

/// What is wrong with a `trace_filter`: the session does not start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant is its documentation")]
pub enum FilterError {
    #[error("it has no bytecode")]
    NoBytecode,
    #[error("the {part} is not a list of varints of 32 bits")]
    NotWords { part: &'static str },
    #[error("the {part} has the checksum {found:#x}, not {expected:#x}")]
    Checksum { part: &'static str, found: u32, expected: u32 },
    #[error("word {at}: field number 0")]
    FieldZero { at: usize },
    #[error("word {at}: unknown operation {opcode}")]
    Opcode { at: usize, opcode: u32 },
    #[error("word {at}: the operation has no operand")]
    NoOperand { at: usize },
    #[error("word {at}: a range of {len} fields from {first}")]
    BadRange { at: usize, first: u32, len: u32 },
    #[error("message {message}: field {field} is listed twice")]
    Overlap { message: usize, field: u32 },
    #[error("message {message}: field {field} has message {nested}, there are {messages}")]
    NoSuchMessage { message: usize, field: u32, nested: usize, messages: usize },
    #[error("the last message has no end")]
    NoEnd,
    #[error("it has more than {} words", limits::FILTER_WORDS_MAX)]
    TooManyWords,
    #[error("it has more than {} messages", limits::FILTER_MESSAGES_MAX)]
    TooManyMessages,
    #[error("message 0, the trace, does not allow field 1, its packets")]
    NoPackets,
    #[error("the overlay is not a list of message, field and argument")]
    OverlayLength,
    #[error("the overlay is not sorted at message {message}, field {field}")]
    OverlayOrder { message: u32, field: u32 },
    #[error("the overlay is for message {message}, there are {messages}")]
    OverlayMessage { message: u32, messages: usize },
    #[error("string filter {index}: unknown policy {policy}")]
    Policy { index: usize, policy: i32 },
    #[error("string filter {index}: {pattern:?} is not a pattern: {reason}")]
    Pattern { index: usize, pattern: String, reason: String },
    #[error("it has {count} string filters, at most {} are allowed", limits::STRING_FILTERS_MAX)]
    TooManyStringFilters { count: usize },
}
