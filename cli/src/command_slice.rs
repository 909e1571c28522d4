//! How a recorded command is marked in a trace, for `record`, which writes it, and `inspect`, which
//! reads it: a slice of this category, with these annotations.

/// The category of the slice.
pub(crate) const CATEGORY: &str = "watershed.command";
/// At the begin, and at the end too, as a ring may have overwritten the begin: the arguments, with
/// spaces between, and the process.
pub(crate) const COMMAND_LINE: &str = "command_line";
pub(crate) const PID: &str = "pid";
/// At the end alone: one of both.
pub(crate) const EXIT_CODE: &str = "exit_code";
pub(crate) const SIGNAL: &str = "signal";
