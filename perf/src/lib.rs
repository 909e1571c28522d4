//! Workloads, measurements, gates and recorded results.
//!
//! ```text
//!   suites::all() ── Suite ── Workload ── run(&Options) ──> Measurement ──> Report ──> table, JSON
//!                                            │
//!                                            └── contest::interleave(ours, rival, ...): A B A B, one warm-up round
//! ```
//!
//! A [`suites::Workload`] knows its right answer: each lap checks, outside the timed part, what came of it, so a
//! measurement of wrong code is an error and not a figure. The tests run every workload once, small
//! ([`measure::Options::check`]); the program runs them in full.
//!
//! Figures of time are medians over laps that alternate with their rivals', so that a slow second of the machine hits
//! both. What a figure of one machine cannot show is another machine's: only ratios taken in one run are claimed.
#![forbid(unsafe_code)]

pub mod compare;
pub mod instructions;
pub mod machine;
pub mod measure;
pub mod report;
pub mod scaling;
pub mod spread;
pub mod suites;

pub use watershed_counted::workload;
