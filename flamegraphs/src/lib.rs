//! Pictures of where the instructions go.
//!
//! ```text
//!   callgrind.*.out ── perf: callgrind::functions ──> functions with addresses, and who called whom
//!          the program ── inlined::Inlined ──> what was inlined at an address     │
//!                                │                                                v
//!                                └───────────────────────────────> stacks::fold ──> "a;b;c 120" ──> picture ──> SVG
//! ```
//!
//! Everything is ordered by name, so that the same counts of the same program give the same bytes.
#![forbid(unsafe_code)]

pub mod inlined;
pub mod names;
pub mod picture;
pub mod stacks;
