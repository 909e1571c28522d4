//! Instruction counts of the kernels at AVX2, by iai-callgrind; callgrind's processor has no AVX-512. The plain loop is counted beside
//! each: a count is no time, a mispredicted branch and a chain of loads cost nothing in it.
#![expect(missing_docs, reason = "the macros write public items")]

use iai_callgrind::{Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use watershed_perf::instructions::FIXED_ENVIRONMENT;
use watershed_perf::suites::simd::counted::Counted;

#[library_benchmark]
#[bench::real(Counted::walk("real", false, false))]
#[bench::real_plain(Counted::walk("real", false, true))]
#[bench::dense(Counted::walk("dense", false, false))]
#[bench::dense_plain(Counted::walk("dense", false, true))]
#[bench::one_byte(Counted::walk("one_byte", false, false))]
#[bench::one_byte_plain(Counted::walk("one_byte", false, true))]
#[bench::two_byte(Counted::walk("two_byte", false, false))]
#[bench::two_byte_plain(Counted::walk("two_byte", false, true))]
#[bench::four_byte(Counted::walk("four_byte", false, false))]
#[bench::four_byte_plain(Counted::walk("four_byte", false, true))]
fn walk_one(ready: Counted) -> Counted {
    ready.run()
}

#[library_benchmark]
#[bench::real(Counted::walk("real", true, false))]
#[bench::dense(Counted::walk("dense", true, false))]
fn walk_many(ready: Counted) -> Counted {
    ready.run()
}

#[library_benchmark]
#[bench::one_byte(Counted::decode("one_byte", false))]
#[bench::one_byte_plain(Counted::decode("one_byte", true))]
#[bench::small(Counted::decode("small", false))]
#[bench::small_plain(Counted::decode("small", true))]
#[bench::mixed(Counted::decode("mixed", false))]
#[bench::mixed_plain(Counted::decode("mixed", true))]
fn decode(ready: Counted) -> Counted {
    ready.run()
}

#[library_benchmark]
#[bench::track_event(Counted::fields("track_event", false))]
#[bench::track_event_plain(Counted::fields("track_event", true))]
#[bench::counter(Counted::fields("counter", false))]
#[bench::counter_plain(Counted::fields("counter", true))]
fn fields(ready: Counted) -> Counted {
    ready.run()
}

library_benchmark_group!(name = simd; benchmarks = walk_one, walk_many, decode, fields);
main!(
    config = LibraryBenchmarkConfig::default()
        .envs(FIXED_ENVIRONMENT)
        .tool(Callgrind::with_args(["--cache-sim=no"]));
    library_benchmark_groups = simd
);
