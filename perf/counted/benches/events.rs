//! Instruction counts of a program's events, by iai-callgrind, as `instructions.rs` has those of
//! the engine.
#![expect(missing_docs, reason = "the macros write public items")]

use iai_callgrind::{Callgrind, LibraryBenchmarkConfig, library_benchmark, library_benchmark_group, main};
use watershed_counted::FIXED_ENVIRONMENT;
use watershed_counted::events::{Dropping, Spans, Writing};

#[library_benchmark]
#[bench::instant(Writing::instants())]
#[bench::slice_two_args(Writing::slices())]
#[bench::disabled(Writing::disabled())]
fn event(ready: Writing) -> Writing {
    ready.run()
}

#[library_benchmark]
#[bench::span(Spans::new())]
fn layer(ready: Spans) -> Spans {
    ready.run()
}

#[library_benchmark]
#[bench::packet(Dropping::full())]
fn dropped(ready: Dropping) -> Dropping {
    ready.run()
}

library_benchmark_group!(name = client; benchmarks = event, layer, dropped);
main!(
    config = LibraryBenchmarkConfig::default()
        .envs(FIXED_ENVIRONMENT)
        .tool(Callgrind::with_args(["--cache-sim=no"]));
    library_benchmark_groups = client
);
