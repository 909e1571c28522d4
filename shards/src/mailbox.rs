//! The commit queue by itself, for the benchmark that compares it with crossbeam's `ArrayQueue`. Not part of the interface.

use std::sync::{Arc, Mutex};

use crate::inbox::Inbox;
use crate::nodes::{NodePool, Returns};

#[derive(Debug)]
struct Shared {
    // Letters lie in the inbox and belong to the pools: the inbox goes first.
    inbox: Inbox<u64>,
    pools: Mutex<Vec<NodePool<u64>>>,
}

/// The receiving end: any number of senders.
#[derive(Debug)]
pub struct Mailbox(Arc<Shared>);

/// One sender.
#[derive(Debug)]
pub struct Sender {
    pool: Option<NodePool<u64>>,
    shared: Arc<Shared>,
}

impl Mailbox {
    /// A queue of at most `capacity` items.
    pub fn new(capacity: usize) -> Mailbox {
        Mailbox(Arc::new(Shared { inbox: Inbox::new(capacity), pools: Mutex::default() }))
    }

    /// A way in.
    pub fn sender(&self) -> Sender {
        // SAFETY: the pool goes to `Shared::pools` when the sender is dropped, and is dropped behind all letters there; a letter that was
        // taken is dropped before `take_all` returns, which borrows what keeps the pools alive.
        Sender { pool: Some(unsafe { NodePool::new(1024) }), shared: Arc::clone(&self.0) }
    }

    /// Takes everything that is there, oldest first.
    pub fn take_all(&self, mut each: impl FnMut(u64)) {
        let mut returns = Returns::none();
        for mut letter in self.0.inbox.take_all() {
            each(letter.with_item(|item| *item));
            returns.add(letter);
        }
    }
}

impl Sender {
    /// Puts an item. False if the queue is full.
    pub fn put(&mut self, value: u64) -> bool {
        if !self.shared.inbox.has_room() {
            return false;
        }
        let Some(mut letter) = self.pool.as_mut().and_then(NodePool::letter) else { return false };
        letter.with_item(|item| *item = value);
        self.shared.inbox.put(letter);
        true
    }
}

impl Drop for Sender {
    fn drop(&mut self) {
        let mut pools = self.shared.pools.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        pools.extend(self.pool.take());
    }
}
