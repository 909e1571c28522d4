//! The bytes that suites and benchmarks feed to what they measure.

pub mod minstd;
pub mod templates;
