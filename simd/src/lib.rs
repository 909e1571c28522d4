//! Kernels on untrusted bytes: fragment walk, varint decode, protobuf field scan.
//!
//! The crate knows nothing of tracing. Every function takes bytes that may have been written by an attacker, reads
//! nothing outside of them, and answers with values, never with a panic.
//!
//! | module | question it answers |
//! |---|---|
//! | [`walk`](mod@walk) | where does each `[varint size][body]` fragment of a chunk begin, and why does the row of them end? |
#![warn(missing_docs)]

pub mod walk;

pub use walk::{Span, Stop, Walk, walk};
