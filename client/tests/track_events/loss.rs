//! Events that are lost, and what the trace is worth then.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use watershed_client::in_process::{InProcess, InProcessOptions};
use watershed_client::track_event::{self, Category};
use watershed_client::{instant, slice};
use watershed_smb::SmbSize;
use watershed_wire::protos::track_event::Type;

use crate::{WATCHDOG, config, on_thread, only, start_with, stop};

static LOSS: Category = Category::new("loss");

/// Names of slices by their depth.
const DEPTHS: [&str; 6] = ["0", "1", "2", "3", "4", "5"];

/// Slices in slices, and an event in each. Counts the events: two for a slice and one in it.
fn nest(depth: usize, random: &mut u64, num_events: &AtomicU64) {
    *random = random.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
    let num_inner = (*random >> 33) % 3;
    let _slice = slice!(LOSS, { DEPTHS[depth] }, number = *random);
    instant!(LOSS, "inside", depth);
    num_events.fetch_add(3, Ordering::Relaxed);
    if depth + 1 < DEPTHS.len() {
        (0..num_inner).for_each(|_| nest(depth + 1, random, num_events));
    }
}

/// Four threads and a memory of four pages: most of what they write is lost. What is left resolves,
/// and slices nest as they did in the program.
#[test]
fn what_survives_a_loss_is_right() {
    let options = InProcessOptions { smb_size: SmbSize::negotiate(4096, 16 << 10), ..Default::default() };
    let backend = InProcess::new(options).unwrap();
    backend.register(track_event::data_source());
    let mut config = config(only(&["loss"]));
    // What the ring overwrites is not what this test is about.
    config.buffers[0].size_kb = Some(256 << 10);
    let session = start_with(&backend, &config);
    let (num_events, is_over) = (AtomicU64::new(0), AtomicBool::new(false));
    std::thread::scope(|scope| {
        for thread in 0..4_u64 {
            let (num_events, is_over, session) = (&num_events, &is_over, &session);
            scope.spawn(move || {
                on_thread(&format!("loss-{thread}"), || {
                    let mut random = thread;
                    while !is_over.load(Ordering::Relaxed) {
                        (0..200).for_each(|_| nest(0, &mut random, num_events));
                    }
                    // Each in turn has the memory for itself, and says what it still owes.
                    for _ in 0..10 {
                        assert!(session.flush_and_wait(WATCHDOG));
                        instant!(LOSS, "quiet");
                        num_events.fetch_add(1, Ordering::Relaxed);
                    }
                });
            });
        }
        // How much is lost depends on how the system lets the threads run.
        let started = Instant::now();
        while started.elapsed() < Duration::from_millis(500)
            || backend.arbiter_stats().packets_dropped == 0 && started.elapsed() < WATCHDOG
        {
            std::thread::sleep(Duration::from_millis(10));
        }
        is_over.store(true, Ordering::Relaxed);
    });
    let num_events = num_events.load(Ordering::Relaxed);
    let num_dropped = backend.arbiter_stats().packets_dropped;
    let trace = stop(&session);
    assert!(num_dropped > 0 && trace.num_losses > 0, "the test makes losses");
    assert_eq!(trace.num_unreadable, 0, "behind a loss everything is explained anew");
    // Ends of slices whose begin was lost are not written, and not lost.
    let num_read = trace.events.len() as u64;
    assert!(
        num_read > 1000 && num_read + num_dropped <= num_events + 100,
        "{num_read} {num_dropped} {num_events}"
    );
    // A begin that is lost and counted takes its end with it.
    assert!(num_read + 2 * num_dropped >= num_events, "{num_read} {num_dropped} {num_events}");
    for thread in 0..4 {
        check_nesting(&trace, &format!("loss-{thread}"));
    }
}

/// A slice lies only in slices that it lay in in the program, and each has its end.
fn check_nesting(trace: &crate::Trace, thread: &str) {
    let mut open: Vec<&str> = Vec::new();
    for event in trace.on(thread) {
        match event.kind {
            Type::SliceBegin => {
                assert!(open.last().is_none_or(|outer| *outer < &*event.name), "{} in {open:?}", event.name);
                open.push(&event.name);
            }
            Type::SliceEnd => assert!(open.pop().is_some(), "an end too many"),
            _ => {}
        }
        if event.name == "quiet" {
            assert_eq!(open, [""; 0], "each end that was lost is made up for");
        }
    }
}
