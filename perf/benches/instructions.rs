//! Instruction counts, by iai-callgrind: `ci/gate` runs them and compares them with `perf/baseline/`.
#![expect(missing_docs, reason = "the macros write public items")]

use iai_callgrind::{Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use watershed_perf::instructions::FIXED_ENVIRONMENT;
use watershed_perf::instructions::counted::{Cloning, Copying, Patching, Reading, Writing};

#[library_benchmark]
#[bench::one_writer(Writing::one_writer())]
#[bench::thousand_writers(Writing::thousand_writers())]
#[bench::fragmented(Writing::fragmented())]
#[bench::out_of_order(Writing::out_of_order())]
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

library_benchmark_group!(name = engine; benchmarks = write, write_rival, read, read_to, patch, clone);
main!(
    config = LibraryBenchmarkConfig::default()
        .envs(FIXED_ENVIRONMENT)
        .tool(Callgrind::with_args(["--cache-sim=no"]));
    library_benchmark_groups = engine
);
