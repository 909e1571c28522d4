//! The sharded buffer: does it scale, what does it cost, how much does it keep.
//!
//! Every ratio is between contestants of one contest, whose laps alternate. Threads are pinned,
//! each to a core of its own. Commits are of borrowed chunks, unless a result says otherwise.

mod beside;
mod cores;
mod idle;
mod latency;
mod line;
mod one_shard;
mod overhead;
mod parallel;
mod queue;
mod read;
mod retention;
mod scaling;
mod sets;
pub(super) mod team;
mod workers;

use super::{Suite, Workload};

/// The suite.
pub fn suite() -> Suite {
    Suite {
        name: "shards",
        about: "many shards as one buffer: scaling, hand-off, merged reads, what is kept, what it costs to have",
        pinned: false,
        unavailable: || None,
        workloads,
    }
}

fn workloads() -> Vec<Workload> {
    vec![
        Workload::new("scaling_two", scaling::two),
        Workload::new("scaling_two_single", scaling::two_single),
        Workload::new("scaling_two_cached", scaling::two_cached),
        Workload::new("scaling_two_cached_single", scaling::two_cached_single),
        Workload::new("scaling_cores", |options| cores::scaling("scaling_cores", options)),
        Workload::new("scaling_64_shards", scaling::many_shards),
        Workload::new("workers_scaling", |options| workers::scaling("workers_scaling", options)),
        Workload::new("write_two_in_one_shard", one_shard::two),
        Workload::new("commit_beside_reader", latency::commit_beside_reader),
        Workload::new("single_thread_overhead", overhead::single_thread),
        Workload::new("hand_off", |options| overhead::hand_off("hand_off", 1, options)),
        Workload::new("hand_off_batch8", |options| overhead::hand_off("hand_off_batch8", 8, options)),
        Workload::new("queue_one_thread", queue::one_thread),
        Workload::new("queue_two_threads", queue::two_threads),
        Workload::new("merge_overhead_8", read::merge_overhead),
        Workload::new("parallel_read_file", parallel::into_file),
        Workload::new("parallel_read_memory", parallel::into_memory),
        Workload::new("retention_uniform", |options| {
            retention::uniform("retention_uniform", 64, 4096, options)
        }),
        Workload::new("retention_skewed", |options| retention::skewed("retention_skewed", 64, 4096, options)),
        Workload::new("retention_uniform_16mb", |options| {
            retention::uniform("retention_uniform_16mb", 16, 4096, options)
        }),
        Workload::new("retention_skewed_16mb", |options| {
            retention::skewed("retention_skewed_16mb", 16, 4096, options)
        }),
        Workload::new("retention_uniform_32k_pages", |options| {
            retention::uniform("retention_uniform_32k_pages", 64, 32768, options)
        }),
        Workload::new("retention_skewed_32k_pages", |options| {
            retention::skewed("retention_skewed_32k_pages", 64, 32768, options)
        }),
        Workload::new("beside_stats", beside::stats),
        Workload::new("beside_read_start", beside::read_start),
        Workload::new("beside_clone", beside::clone),
        Workload::new("clone_64mb", idle::clone),
        Workload::new("clone_hold", idle::clone_hold),
        Workload::new("create_1024_shards", idle::create),
        Workload::new("idle_1024_shards", idle::memory),
        Workload::new("sequences_100k", idle::sequences),
    ]
}
