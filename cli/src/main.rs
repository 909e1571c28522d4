//! The watershed program.
#![forbid(unsafe_code)]
fn main() {}
