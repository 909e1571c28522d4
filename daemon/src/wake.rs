//! Waking a thread that waits from another one, and stopping all of them.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use mio::{Registry, Token, Waker};

/// Makes the wait of one thread return: an `eventfd`. It is the loop then, unless another one is,
/// which looks again; and serves if a worker is wanted.
#[derive(Debug)]
pub(crate) struct Wake {
    waker: Waker,
    is_stop_wanted: AtomicBool,
    /// A worker has made room in a queue.
    has_room: AtomicBool,
    /// A shard that was waited for is free, or drained.
    is_ready: AtomicBool,
    /// The operator wants a line about how it goes.
    is_status_wanted: AtomicBool,
}

impl Wake {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Wake> {
        let waker = Waker::new(registry, token)?;
        Ok(Wake {
            waker,
            is_stop_wanted: AtomicBool::new(false),
            has_room: AtomicBool::new(false),
            is_ready: AtomicBool::new(false),
            is_status_wanted: AtomicBool::new(false),
        })
    }

    /// Wakes the loop, which looks at everything then.
    pub(crate) fn wake(&self) {
        // An error means that the daemon has gone.
        let _ = self.waker.wake();
    }

    /// Wakes the loop because there is room in a queue.
    pub(crate) fn tell_room(&self) {
        // Release: pairs with the acquire of `take_room`, after which the loop finds the room.
        self.has_room.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether there may be room since this was last asked.
    pub(crate) fn take_room(&self) -> bool {
        // Acquire: pairs with the release of `tell_room`.
        self.has_room.swap(false, Ordering::Acquire)
    }

    /// Wakes the loop because what waits for a shard may go on.
    pub(crate) fn tell_ready(&self) {
        // Release: pairs with the acquire of `take_ready`, after which the loop looks at the shard.
        self.is_ready.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether anything may go on since this was last asked.
    pub(crate) fn take_ready(&self) -> bool {
        // Acquire: pairs with the release of `tell_ready`.
        self.is_ready.swap(false, Ordering::Acquire)
    }

    /// Whether a line about how it goes was asked for since this was last looked at.
    pub(crate) fn take_status_wanted(&self) -> bool {
        // Relaxed: it publishes nothing.
        self.is_status_wanted.swap(false, Ordering::Relaxed)
    }

    pub(crate) fn is_stop_wanted(&self) -> bool {
        // Acquire: pairs with the release of `Stopper::stop`.
        self.is_stop_wanted.load(Ordering::Acquire)
    }
}

/// Stops a daemon from another thread, or asks how it goes.
#[derive(Clone, Debug)]
pub struct Stopper(pub(crate) Arc<Wake>);

impl Stopper {
    /// Makes [`Daemon::run`](crate::Daemon::run) return, after files of running sessions are
    /// complete.
    pub fn stop(&self) {
        // Release: pairs with the acquire of the loop, which then sees what the caller did before.
        self.0.is_stop_wanted.store(true, Ordering::Release);
        self.0.wake();
    }

    /// Makes the daemon log one line about how it goes: who is connected, and how commits fare.
    pub fn ask_status(&self) {
        // Relaxed: it publishes nothing.
        self.0.is_status_wanted.store(true, Ordering::Relaxed);
        self.0.wake();
    }
}
