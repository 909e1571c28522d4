//! Workloads, measurements, gates and recorded results.
#![forbid(unsafe_code)]
fn main() {}
