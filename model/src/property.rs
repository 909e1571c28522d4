//! The property: a buffer behaves like the model in every history.

use std::cell::Cell;
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::drive::{Scope, run_in};
use crate::history::History;
use crate::strategy::histories;
use crate::subject::Subject;

/// Histories that are drawn from one seed.
const HISTORIES_PER_SEED: u32 = 100;

/// Compares `S` with the model over at least `steps` steps, with histories drawn from `seed`, `seed
/// + 1` and so on. The number of steps that were compared, and the last seed.
///
/// # Panics
///
/// At a difference: with the shortest history that was found to show it, as a chain of calls, and
/// its seed.
pub fn check<S: Subject>(steps: u64, seed: u64) -> (u64, u64) {
    check_in::<S>(Scope::All, steps, seed)
}

/// As [`check`], comparing only a part.
///
/// # Panics
///
/// As [`check`].
pub fn check_in<S: Subject>(scope: Scope, steps: u64, mut seed: u64) -> (u64, u64) {
    let done = Cell::new(0u64);
    let watch = Watch::begin();
    // Only a cut in the middle of many records shows what is wrong there.
    let of_stretches = if S::HAS_TICKETS { 4 } else { 1 };
    loop {
        let mut bytes = [0; 32];
        bytes[..8].copy_from_slice(&seed.to_le_bytes());
        let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
        let config = Config {
            cases: HISTORIES_PER_SEED,
            failure_persistence: None,
            max_shrink_iters: 50_000,
            max_shrink_time: 60_000,
            ..Config::default()
        };
        let result = TestRunner::new_with_rng(config, rng).run(&histories(120, of_stretches), |history| {
            if done.get() >= steps {
                return Ok(());
            }
            watch.look_at(history.clone(), seed, done.get());
            let reached = run_in::<S>(&history, scope).map_err(TestCaseError::fail)?;
            done.set(done.get() + reached.steps);
            Ok(())
        });
        match result {
            Ok(()) if done.get() >= steps => return (done.get(), seed),
            Ok(()) => seed += 1,
            Err(TestError::Fail(reason, _)) => panic!("seed {seed}, after {} steps:\n{reason}", done.get()),
            Err(TestError::Abort(reason)) => panic!("seed {seed}: {reason}"),
        }
    }
}

/// How long a history may take: thousands of times the usual.
const LONGEST: Duration = Duration::from_secs(60);

/// How often the watchdog checks. It counts checks, not time, since the whole process may be
/// stopped for minutes.
const LOOK: Duration = Duration::from_millis(500);

/// A history that is run.
struct Watched {
    looks: u32,
    seed: u64,
    steps: u64,
    history: History,
}

/// Ends the process and prints the history when a call does not return.
struct Watch(Arc<Mutex<Option<Watched>>>);

impl Watch {
    fn begin() -> Self {
        let shared = Arc::new(Mutex::new(None::<Watched>));
        let weak = Arc::downgrade(&shared);
        std::thread::spawn(move || {
            while let Some(shared) = weak.upgrade() {
                if let Some(watched) = &mut *shared.lock().unwrap_or_else(PoisonError::into_inner) {
                    watched.look();
                }
                drop(shared);
                std::thread::sleep(LOOK);
            }
        });
        Self(shared)
    }

    fn look_at(&self, history: History, seed: u64, steps: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(Watched { looks: 0, seed, steps, history });
    }
}

impl Watched {
    fn look(&mut self) {
        self.looks += 1;
        if LOOK * self.looks > LONGEST {
            let Self { seed, steps, history, .. } = self;
            // Directly, since the test harness captures `eprintln` until the test ends.
            let told = format!("seed {seed}, after {steps} steps: no end after {LONGEST:?}:\n{history:?}\n");
            let _ = std::io::stderr().write_all(told.as_bytes());
            std::process::exit(101);
        }
    }
}
