//! The daemon as its users have it: a process of its own, producers in others, over real sockets.
//!
//! Each measurement starts a daemon. What matters on a busy machine is reported beside it: the rate
//! that was reached, and what part of the time the host gave to others.

mod by_hand;
mod clones;
mod compressed;
mod cost;
mod filtered;
mod load;
mod packets;
mod recorder;
mod starved;
mod throughput;
mod trace;

pub use load::LoadRole;

use super::processes::daemon::Workers;
use super::{Suite, Workload};

/// The suite.
pub fn suite() -> Suite {
    Suite {
        name: "service",
        about: "the daemon, and producers in processes of their own",
        pinned: false,
        unavailable: || None,
        workloads,
    }
}

fn workloads() -> Vec<Workload> {
    let ring = |name: &'static str, workers: fn() -> Workers| {
        Workload::new(name, move |options| throughput::ring(name, workers(), options))
    };
    let to_free = |name: &'static str, workers: fn() -> Workers| {
        Workload::new(name, move |options| cost::commit_to_free(name, workers(), options))
    };
    vec![
        ring("ring_1gbs", Workers::default),
        Workload::new("file_500mbs", |options| throughput::file("file_500mbs", options)),
        Workload::new("ring_beside_stalled_file", |options| {
            throughput::ring_beside_stalled_file("ring_beside_stalled_file", options)
        }),
        Workload::new("loss_vs_rate", |options| starved::loss_vs_rate("loss_vs_rate", options)),
        to_free("commit_to_free", Workers::default),
        to_free("commit_to_free_no_workers", || Workers { number: 0, pinned: false }),
        Workload::new("idle", |options| cost::idle("idle", options)),
        Workload::new("thousand_producers", |options| {
            cost::thousand_producers("thousand_producers", options)
        }),
        Workload::new("start_stop_100", |options| cost::start_stop("start_stop_100", options)),
        Workload::new("clone_under_load", |options| clones::under_load("clone_under_load", options)),
        Workload::new("compress_file", |options| compressed::file("compress_file", options)),
        Workload::new("trace_filter", |options| filtered::packet("trace_filter", options)),
        Workload::new("flight_recorder", |options| recorder::flight_recorder("flight_recorder", options)),
    ]
}
