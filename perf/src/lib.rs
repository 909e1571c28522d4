//! Workloads, measurements, gates and recorded results.
//!
//! ```text
//!   suites::all() ── Suite ── Workload ── run(&Options) ──> Measurement ──> Report ──> table, JSON
//!                                            │
//!                                            └── contest::interleave(ours, rival, ...): A B A B, one warm-up round
//! ```
//!
//! A [`suites::Workload`] knows its right answer, and each lap checks it outside the timed part, so
//! a measurement of wrong code is an error and not a figure. The tests run every workload once,
//! small ([`measure::Options::check`]).
//!
//! Times are medians over laps that alternate with their rivals', so that a slow second of the
//! machine slows both. Only ratios taken in one run say something about other machines.
#![forbid(unsafe_code)]

pub mod compare;
pub mod instructions;
pub mod machine;
pub mod measure;
pub mod record;
pub mod report;
pub mod scaling;
pub mod spread;
pub mod suites;

pub use watershed_counted::workload;
