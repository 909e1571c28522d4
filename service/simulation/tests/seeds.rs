//! Some thousand runs. `WATERSHED_RUNS` says how many, `WATERSHED_SEED` which one is the first.

use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use watershed_simulation::{Report, run_seed};

fn from_environment(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().expect("a number"))
}

/// Runs of the seeds from `first` on, on all processors.
fn run_all(first: u64, runs: u64) -> Report {
    let next = AtomicU64::new(first);
    let one_thread = || {
        let mut sums = Report::default();
        // Relaxed: each number is taken once, which is all.
        while let seed = next.fetch_add(1, Ordering::Relaxed)
            && seed < first + runs
        {
            sums.add(&run_seed(seed));
        }
        sums
    };
    let num_threads = thread::available_parallelism().map_or(1, usize::from);
    thread::scope(|scope| {
        let threads: Vec<_> = (0..num_threads).map(|_| scope.spawn(one_thread)).collect();
        let mut sums = Report::default();
        threads.into_iter().for_each(|thread| sums.add(&thread.join().expect("all runs hold")));
        sums
    })
}

#[test]
fn whatever_happens() {
    let runs = from_environment("WATERSHED_RUNS").unwrap_or(2000);
    let sums = run_all(from_environment("WATERSHED_SEED").unwrap_or(0), runs);
    eprintln!("{sums:#?}");
    if runs >= 1000 {
        // Each of these would be a part that the runs do not reach.
        let each = [
            sums.packets / 20,
            sums.losses,
            sums.sessions / 2,
            sums.refused,
            sums.drained,
            sums.flushes,
            sums.stats,
            sums.clones,
            sums.clones_compared,
            sums.triggers,
            sums.filtered,
            sums.in_files,
            sums.compressed,
            sums.steps,
            sums.handed_back * 10,
            sums.attached,
            sums.deaths,
            sums.lies,
        ];
        assert!(each.iter().all(|count| *count > runs / 50), "{sums:#?}");
    }
}

#[test]
fn a_seed_is_a_run() {
    let first = run_seed(5);
    assert!(first.packets > 0 || first.sessions > 0);
    assert_eq!(first, run_seed(5));
}
