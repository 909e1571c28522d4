//! Instruction counts: the same on every run of the same binary, so that a change of one in a
//! thousand is seen. Those of a program's events, by `counted/benches/events.rs`, are nearly so.
//!
//! ```text
//!   counted/benches/instructions.rs ── iai-callgrind, valgrind ──> target/iai/**/callgrind.*.out
//!        │ watershed_counted::engine, ::kernels                         │ callgrind::parse
//!        └─ names and units ─────────────────────────────────────────> Counts ── judge ──> verdict, table by function
//!                                                       perf/baseline/*.json ┘
//! ```
//!
//! A count is exact and says nothing about time: a cache miss is free in it, and contention does
//! not exist.

pub mod baseline;
pub mod callgrind;
pub mod collect;
pub mod judge;
