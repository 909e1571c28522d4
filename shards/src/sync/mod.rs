//! Primitives that threads share: lock-free, checked by the loom models in `models`.
//!
//! ```text
//!   tickets      one order over all chunks, and cuts through it   (one fetch_add per batch)
//!   directory    sequence -> home shard                           (loads; a lock for a new one)
//!   lock         who may touch a shard's ring                     (try-lock)
//!   queue        batches for a locked shard                       (one compare-exchange per batch)
//!   node_pool    the nodes of the queues
//!   extent_pool  memory that no shard has                         (a stack of indices)
//!   reclaim      requests for another shard's extent; drains that were deferred
//!   ready        shards that wait for a worker, and the threads that serve as one
//!   once         a value that is made when it is first needed
//! ```
//!
//! Everything in this crate takes atomics and cells from here, so that loom compiles the shipped
//! source: with `RUSTFLAGS="--cfg loom"` each name below is loom's. Each primitive tells at its
//! head what its atomics publish, with which ordering, who reads it, and which model shows it.
//! Where it says "argument", loom cannot show it: loom runs the stores of one thread in program
//! order and treats SeqCst loads as Acquire.

pub(crate) mod directory;
pub(crate) mod extent_pool;
pub(crate) mod lock;
pub(crate) mod node_pool;
pub(crate) mod once;
pub(crate) mod queue;
pub(crate) mod ready;
pub(crate) mod reclaim;
pub(crate) mod tickets;

#[cfg(loom)]
pub(crate) use loom::{
    cell::UnsafeCell,
    sync::Mutex,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering},
};

#[cfg(not(loom))]
pub(crate) use self::std_cell::UnsafeCell;
#[cfg(not(loom))]
pub(crate) use std::sync::Mutex;
#[cfg(not(loom))]
pub(crate) use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// The standard cell behind loom's interface: access by closure, so that loom sees how long it
/// lasts.
#[cfg(not(loom))]
mod std_cell {
    #[derive(Debug)]
    pub(crate) struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        pub(crate) const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        #[inline]
        pub(crate) fn with<R>(&self, read: impl FnOnce(*const T) -> R) -> R {
            read(self.0.get())
        }

        #[inline]
        pub(crate) fn with_mut<R>(&self, write: impl FnOnce(*mut T) -> R) -> R {
            write(self.0.get())
        }
    }
}

/// Tells the processor, or loom's scheduler, that this thread waits for another one.
#[inline]
pub(crate) fn spin_hint() {
    #[cfg(loom)]
    loom::thread::yield_now();
    #[cfg(not(loom))]
    std::hint::spin_loop();
}
