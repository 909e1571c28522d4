//! Instruction counts: the same on every run of the same binary, so that a change of one in a thousand is seen.
//!
//! ```text
//!   benches/instructions.rs ── iai-callgrind, valgrind ──> target/iai/**/callgrind.*.out
//!        │ counted::*                                            │ callgrind::parse
//!        └─ the same list gives names and units ──────────> Counts ── judge ──> verdict, table by function
//!                                                perf/baseline/*.json ┘
//! ```
//!
//! A count is exact and says nothing about time: a cache miss is free in it, and contention does not exist.

pub mod baseline;
pub mod callgrind;
pub mod collect;
pub mod counted;
pub mod judge;

/// The environment of every counted run, beside which there is none: what would choose an instruction set by the
/// processor at hand is told which one to take.
///
/// Callgrind's processor has AVX2 and no AVX-512, so that our own kernels are held at AVX2. The C library's copy routines
/// are held at plain SSE2: which of its many it would take differs even between processors with the same flags.
pub const FIXED_ENVIRONMENT: [(&str, &str); 2] = [
    ("GLIBC_TUNABLES", "glibc.cpu.hwcaps=-AVX2,-AVX2_Usable,-ERMS,-AVX_Fast_Unaligned_Load"),
    ("WATERSHED_SIMD", "avx2"),
];
