//! Atomics and the scheduler: the only module of the crate that names them, so that loom replaces
//! them under `--cfg loom`.

#[cfg(loom)]
pub(crate) use loom::sync::atomic::{AtomicU16, AtomicU32, Ordering};
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// Back-off after the `attempt`-th compare-exchange (from 0) failed: retry at once, then yield. It
/// never sleeps: an exchange fails only if another one succeeded, so there is nothing to wait for.
#[cfg(not(loom))]
pub(crate) fn back_off(attempt: u32) {
    match attempt {
        0..8 => std::hint::spin_loop(),
        _ => std::thread::yield_now(),
    }
}

#[cfg(loom)]
pub(crate) fn back_off(_attempt: u32) {
    loom::thread::yield_now();
}

/// A load of a word before a compare-exchange; orders nothing.
#[cfg(not(loom))]
pub(crate) fn peek(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

/// The same in models, as a read-modify-write: loom remembers only the last access to an object, so
/// a plain load would hide another thread's load from the exchange that follows, and loom would not
/// explore their orders.
#[cfg(loom)]
pub(crate) fn peek(word: &AtomicU32) -> u32 {
    word.fetch_or(0, Ordering::Relaxed)
}
