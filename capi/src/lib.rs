//! The C library: a trace buffer for C and C++ embedders.
//!
//! ```text
//!   C program ── watershed.h ── api (checks pointers, one function each) ── guard ── Inner { TraceBuffer, slices }
//! ```
//!
//! The header is generated from this crate by cbindgen (`cbindgen.toml`), and what it says is in
//! the documentation of [`api`], [`sink`], [`queries`] and [`types`]. What holds for every
//! function:
//!
//! - A `NULL` buffer, or a `NULL` where a result should go, is answered with the neutral value:
//!   false, 0, `NULL`.
//! - A panic never leaves the library. It would be a bug of ours; the buffer that it happened in
//!   answers every later call with the neutral value, and can be destroyed.
//! - A call into a buffer from its own overwrite function is answered with the neutral value.
//! - A buffer may move between threads, and is used by one at a time.

pub mod api;
mod convert;
mod guard;
pub mod queries;
pub mod sink;
mod source;
pub mod types;

pub use guard::ws_buffer;
