//! The property: a buffer is like the model in every history.

use std::cell::Cell;

use proptest::test_runner::{Config, RngAlgorithm, TestCaseError, TestError, TestRng, TestRunner};

use crate::drive::{Scope, run_in};
use crate::strategy::histories;
use crate::subject::Subject;

/// Histories that are drawn from one seed.
const HISTORIES_PER_SEED: u32 = 100;

/// Compares `S` with the model over at least `steps` steps, with histories drawn from `seed`, `seed + 1` and so on. The
/// number of steps that were compared, and the last seed.
///
/// # Panics
///
/// At a difference: with the shortest history that was found to show it, as a chain of calls, and its seed.
pub fn check<S: Subject>(steps: u64, seed: u64) -> (u64, u64) {
    check_in::<S>(Scope::All, steps, seed)
}

/// As [`check`], for a part of what can be compared.
///
/// # Panics
///
/// As [`check`].
pub fn check_in<S: Subject>(scope: Scope, steps: u64, mut seed: u64) -> (u64, u64) {
    let done = Cell::new(0u64);
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
        let result = TestRunner::new_with_rng(config, rng).run(&histories(120), |history| {
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
