//! The workloads that are counted, and the bytes that they are made of.
//!
//! ```text
//!   workload ──> engine, kernels: a set-up that is not counted, a body that is ── benches/instructions.rs ── ci/gate
//!      └───────> the timed suites of watershed-perf
//! ```
//!
//! `events` and `benches/events.rs` do likewise, with the feature of that name.
//!
//! What the compiler inlines into a workload depends on the other callers of the same function in
//! its crate and program. So the workloads have a crate and a program of their own: a change of the
//! suites cannot change a count.
#![forbid(unsafe_code)]

pub mod engine;
#[cfg(feature = "events")]
pub mod events;
pub mod kernels;
pub mod workload;

/// What a benchmark counts, and how many of them, by its name.
pub fn units(benchmark: &str) -> Option<(&'static str, u64)> {
    engine::units(benchmark)
        .or_else(|| kernels::counted::units(benchmark))
        .or_else(|| benchmark.starts_with("client/").then_some(("event", EVENTS)))
}

/// Events that are counted of each kind.
pub const EVENTS: u64 = 4096;

/// The whole environment of every counted run. It fixes the instruction sets that would otherwise
/// be chosen by the processor.
///
/// Callgrind emulates AVX2 and no AVX-512, so our kernels are held at AVX2. The C library's copy
/// routines are held at SSE2: its choice differs even between processors with the same flags.
pub const FIXED_ENVIRONMENT: [(&str, &str); 2] = [
    ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-ERMS,-AVX_Fast_Unaligned_Load"),
    ("WATERSHED_SIMD", "avx2"),
];
