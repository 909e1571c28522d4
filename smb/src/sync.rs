//! The door to atomics and to the scheduler: the only module of the crate that names them, so that loom can take their
//! place under `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU16, AtomicU32, AtomicUsize, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU16, AtomicU32, AtomicUsize, Ordering};

/// What to do after the `attempt`-th compare-exchange (from 0) lost against a neighbour on the same page: try again at
/// once, then let others run, then step aside for a moment.
#[cfg(not(loom))]
pub(crate) fn back_off(attempt: u32) {
    match attempt {
        0..8 => std::hint::spin_loop(),
        8..32 => std::thread::yield_now(),
        _ => std::thread::sleep(std::time::Duration::from_micros(10)),
    }
}

#[cfg(loom)]
pub(crate) fn back_off(_attempt: u32) {
    loom::thread::yield_now();
}

/// A look at a word that a compare-exchange will be tried on; orders nothing.
#[cfg(not(loom))]
pub(crate) fn peek(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

/// The same in models, as a read-modify-write: loom remembers only the last access to an object, so a plain load would
/// hide another thread's load from the exchange that follows, and the orders of those two would not be explored.
#[cfg(loom)]
pub(crate) fn peek(word: &AtomicU32) -> u32 {
    word.fetch_or(0, Ordering::Relaxed)
}
