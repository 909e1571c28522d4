//! A buffer takes the place of another one, which a clone empties or gets. Writers may be in chunks
//! that were scraped: what they complete comes to the new buffer whole, which has to know what the
//! old one has of it.
//!
//! ```text
//!   the service's thread                            any thread
//!   the new buffer is there, commits wait
//!   poll_clone                                 ---> run: looks at each shard of the old one
//!   handle_clone_work: commits what has waited <---
//! ```
//!
//! Whoever must not wait for commits runs it itself. Where the owner of a shard is stopped, commits
//! wait no longer than [`SUCCESSION_WAIT_MAX_MS`](crate::limits::SUCCESSION_WAIT_MAX_MS): then the
//! new buffer may have again what was scraped into the old one.

use std::sync::{Arc, OnceLock};

use watershed_shards::ShardedBuffer;

use crate::clock::ClockReadings;
use crate::timer::Deadline;

/// What a buffer has to learn before anything is committed to it.
#[derive(Debug)]
pub(crate) struct Succession {
    old: Arc<ShardedBuffer>,
    new: Arc<ShardedBuffer>,
    /// That of the old one, where it had not learnt it yet.
    before: Option<Arc<Succession>>,
    /// Commits wait until then.
    pub(super) deadline: Deadline,
    is_done: OnceLock<()>,
}

impl Succession {
    pub(crate) fn new(
        old: &Arc<ShardedBuffer>,
        new: &Arc<ShardedBuffer>,
        before: Option<Arc<Succession>>,
        deadline: Deadline,
    ) -> Arc<Succession> {
        let (old, new, is_done) = (Arc::clone(old), Arc::clone(new), OnceLock::new());
        Arc::new(Succession { old, new, before, deadline, is_done })
    }

    /// Whether commits have waited long enough.
    pub(crate) fn is_overdue(&self, now: &ClockReadings) -> bool {
        self.deadline.overdue_ns(now).is_some()
    }

    /// Whether it is that of this buffer.
    pub(crate) fn is_of(&self, new: &Arc<ShardedBuffer>) -> bool {
        Arc::ptr_eq(&self.new, new)
    }

    /// Does it, or waits for who is at it. Waits for threads that have a shard.
    pub(crate) fn run(&self) {
        self.is_done.get_or_init(|| {
            self.before.iter().for_each(|before| before.run());
            self.new.remember_from(&self.old);
        });
    }
}
