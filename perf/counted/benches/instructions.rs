//! Instruction counts, by iai-callgrind: `ci/gate` runs them and compares them with
//! `perf/baseline/`.
#![expect(missing_docs, reason = "the macros write public items")]

use iai_callgrind::{Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use watershed_counted::FIXED_ENVIRONMENT;
use watershed_counted::engine::{Cloning, Copying, Patching, Reading, Writing};
use watershed_counted::kernels::counted::Counted;

#[library_benchmark]
#[bench::one_writer(Writing::one_writer())]
#[bench::thousand_writers(Writing::thousand_writers())]
#[bench::fragmented(Writing::fragmented())]
#[bench::out_of_order(Writing::out_of_order())]
#[bench::track_events(Writing::track_events())]
#[bench::small_packets(Writing::small_packets())]
#[bench::chunks_16k(Writing::chunks_16k())]
#[bench::short_threads(Writing::short_threads())]
fn write(ready: Writing) -> Writing {
    ready.run()
}

#[library_benchmark]
#[bench::memcpy(Copying::mixed())]
fn write_rival(ready: Copying) -> Copying {
    ready.run()
}

#[library_benchmark]
#[bench::plain(Reading::plain())]
#[bench::fragmented(Reading::fragmented())]
fn read(ready: Reading) -> Reading {
    ready.run()
}

#[library_benchmark]
#[bench::blocks(Reading::track_events())]
fn read_to(ready: Reading) -> Reading {
    ready.run_to_blocks()
}

#[library_benchmark]
#[bench::newest(Patching::new(0))]
#[bench::tenth(Patching::new(9))]
#[bench::missing(Patching::new(-1_000_000))]
fn patch(ready: Patching) -> Patching {
    ready.run()
}

#[library_benchmark]
#[bench::_8mb(Cloning::full())]
fn clone(ready: Cloning) -> Cloning {
    ready.run()
}

// The plain loop is counted beside each kernel: a count is no time, a mispredicted branch and a
// chain of loads cost nothing in it.

#[library_benchmark]
#[bench::real(Counted::walk("real", false))]
#[bench::real_plain(Counted::walk("real", true))]
#[bench::dense(Counted::walk("dense", false))]
#[bench::dense_plain(Counted::walk("dense", true))]
#[bench::one_byte(Counted::walk("one_byte", false))]
#[bench::one_byte_plain(Counted::walk("one_byte", true))]
#[bench::two_byte(Counted::walk("two_byte", false))]
#[bench::two_byte_plain(Counted::walk("two_byte", true))]
#[bench::four_byte(Counted::walk("four_byte", false))]
#[bench::four_byte_plain(Counted::walk("four_byte", true))]
#[bench::mixed(Counted::walk("mixed", false))]
#[bench::mixed_plain(Counted::walk("mixed", true))]
fn walk_one(ready: Counted) -> Counted {
    ready.run()
}

#[library_benchmark]
#[bench::track_event(Counted::fields("track_event", false))]
#[bench::track_event_plain(Counted::fields("track_event", true))]
#[bench::counter(Counted::fields("counter", false))]
#[bench::counter_plain(Counted::fields("counter", true))]
#[bench::cut(Counted::fields("cut", false))]
#[bench::cut_plain(Counted::fields("cut", true))]
fn fields(ready: Counted) -> Counted {
    ready.run()
}

library_benchmark_group!(name = engine; benchmarks = write, write_rival, read, read_to, patch, clone);
library_benchmark_group!(name = simd; benchmarks = walk_one, fields);
main!(
    config = LibraryBenchmarkConfig::default()
        .envs(FIXED_ENVIRONMENT)
        .tool(Callgrind::with_args(["--cache-sim=no"]));
    library_benchmark_groups = engine, simd
);
