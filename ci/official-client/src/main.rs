//! Scenarios with Perfetto's own client library against the daemon. The library reads the names of
//! the sockets once and cannot be taken down: each scenario is a process of its own, which
//! `tests/scenarios.rs` starts and watches.
//!
//! ```text
//!   scenario: daemon in a thread <── sockets ──> official producer and consumer, this process
//!                                <── sockets ──> official producers and consumers to be killed,
//!                                                processes of their own (modules `produce`, `consume`)
//!                                <── sockets ──> our own producer and consumer, this process
//! ```

#![forbid(unsafe_code)]

mod config;
mod consumer;
mod own;
mod peers;
mod producer;
mod scenarios;
mod service;
mod trace;

use std::time::{Duration, Instant};

/// How long anything may take that should happen soon.
const SOON: Duration = Duration::from_secs(20);

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["threads"] => scenarios::threads::run(),
        ["file"] => scenarios::file::run(),
        ["reconnect"] => scenarios::reconnect::run(),
        ["both-clients"] => scenarios::both_clients::run(),
        ["two-sessions"] => scenarios::two_sessions::run(),
        ["killed-producer"] => scenarios::killed::producer(),
        ["killed-consumer"] => scenarios::killed::consumer(),
        ["trigger-stops"] => scenarios::triggers::stop(),
        ["trigger-starts"] => scenarios::triggers::start(),
        ["trigger-clones"] => scenarios::triggers::clone_at(),
        ["cloned"] => scenarios::triggers::clone_by_name(),
        ["detached"] => scenarios::triggers::detached(),
        ["burst"] => scenarios::burst::run(None),
        ["burst", shm_size_kb] => {
            scenarios::burst::run(Some(shm_size_kb.parse().expect("a size in KB")));
        }
        ["burst-beside", program, ref args @ ..] => scenarios::burst::run_beside(program, args),
        ["daemon"] => service::serve(),
        ["produce"] => peers::produce(),
        ["consume"] => peers::consume(),
        _ => panic!("there is no scenario {args:?}"),
    }
}

/// Waits until `holds`.
fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let started = Instant::now();
    while !holds() {
        assert!(started.elapsed() < SOON, "after {SOON:?} still not: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
