//! Stopping the loop from outside.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::Waker;

/// Stops a daemon from another thread.
#[derive(Clone, Debug)]
pub struct Stopper(pub(crate) Arc<Stop>);

#[derive(Debug)]
pub(crate) struct Stop {
    pub(crate) is_wanted: AtomicBool,
    pub(crate) waker: Waker,
}

impl Stopper {
    /// Makes [`Daemon::run`](crate::Daemon::run) return, after files of running sessions are complete.
    pub fn stop(&self) {
        // Release: pairs with the acquire of the loop, which then sees what the caller did before.
        self.0.is_wanted.store(true, Ordering::Release);
        // An error means that the daemon has gone.
        let _ = self.0.waker.wake();
    }
}
