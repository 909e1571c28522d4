//! The workloads that are counted, and the bytes that they are made of.
//!
//! ```text
//!   workload ──> engine, kernels: a set-up that is not counted, a body that is ── benches/instructions.rs ── ci/gate
//!      └───────> the timed suites of watershed-perf
//! ```
//!
//! What the compiler inlines into a workload depends on who else calls the same function in its crate and, linked together, in its
//! program. Hence a crate and a program of their own: the suites, which change often, cannot move a count.
#![forbid(unsafe_code)]

pub mod engine;
pub mod kernels;
pub mod workload;

/// What a benchmark counts, and how many of them, by its name.
pub fn units(benchmark: &str) -> Option<(&'static str, u64)> {
    engine::units(benchmark).or_else(|| kernels::counted::units(benchmark))
}

/// The environment of every counted run, beside which there is none: what would choose an instruction set by the
/// processor at hand is told which one to take.
///
/// Callgrind's processor has AVX2 and no AVX-512, so that our own kernels are held at AVX2. The C library's copy routines
/// are held at plain SSE2: which of its many it would take differs even between processors with the same flags.
pub const FIXED_ENVIRONMENT: [(&str, &str); 2] = [
    ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-ERMS,-AVX_Fast_Unaligned_Load"),
    ("WATERSHED_SIMD", "avx2"),
];
