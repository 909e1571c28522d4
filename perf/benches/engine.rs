//! Times of the engine's hot calls, by criterion, for work on one of them. The suites interleave
//! rivals: `cargo run --release -p watershed-perf -- run engine`.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use watershed_counted::engine::{COMMITS, Cloning, Copying, PATCHES, Patching, Reading, Writing, units};

fn write(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("write");
    group.throughput(Throughput::Elements(COMMITS));
    let mut bench = |name: &str, set_up: fn() -> Writing| {
        group.bench_function(name, |bencher| {
            bencher.iter_batched(set_up, Writing::run, BatchSize::PerIteration)
        });
    };
    bench("one_writer", Writing::one_writer);
    bench("thousand_writers", Writing::thousand_writers);
    bench("fragmented", Writing::fragmented);
    bench("out_of_order", Writing::out_of_order);
    group.bench_function("memcpy", |bencher| {
        bencher.iter_batched(Copying::mixed, Copying::run, BatchSize::PerIteration);
    });
    group.finish();
}

fn read(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("read");
    let mut bench = |name: &str, set_up: fn() -> Reading, run: fn(Reading) -> Reading| {
        let packets = units(&format!("engine/read_{name}")).map_or(1, |(_, packets)| packets);
        group.throughput(Throughput::Elements(packets));
        group.bench_function(name, |bencher| bencher.iter_batched(set_up, run, BatchSize::PerIteration));
    };
    bench("plain", Reading::plain, Reading::run);
    bench("fragmented", Reading::fragmented, Reading::run);
    bench("to_blocks", Reading::track_events, Reading::run_to_blocks);
    group.finish();
}

fn patch(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("patch");
    group.throughput(Throughput::Elements(PATCHES));
    for (name, age) in [("newest", 0), ("tenth", 9), ("missing", -1_000_000)] {
        group.bench_function(name, |bencher| {
            bencher.iter_batched(|| Patching::new(age), Patching::run, BatchSize::PerIteration);
        });
    }
    group.finish();
}

fn clone(criterion: &mut Criterion) {
    criterion.bench_function("clone/8mb", |bencher| {
        bencher.iter_batched(Cloning::full, Cloning::run, BatchSize::PerIteration);
    });
}

criterion_group! {
    name = engine;
    config = Criterion::default().sample_size(20);
    targets = write, read, patch, clone
}
criterion_main!(engine);
