//! What a writer's thread and the service's do with one committer: who commits, and who finds what
//! the other one has left.
//!
//! ```text
//!   writer                                    service
//!     put into waiting                          lock own: look, change, or commit what waits
//!     try to lock own                           unlock own
//!       got it: commit what waits, unlock       look into waiting: empty, or all of it again
//!       not:    go on, the service looks
//! ```
//!
//! - The writer puts before it tries to lock. The service unlocks before it looks. So what the
//!   writer leaves because it found `own` locked is seen by whoever had it.
//! - Batches are taken out of `waiting` and committed under `own`: none is committed twice, and
//!   they are committed in the order in which they were put. What could not be committed goes back
//!   in front.
//! - Where the service has left something because there was no room, and then finds nothing
//!   waiting, the writer has taken it. It may still be committing: the service waits for `own` once
//!   more.
//! - The writer waits for `waiting` only, which is locked to put something in or to take it out.
//!
//! Models: `service/models`, which `ci/loom` runs on this source.

use crate::sync::{Mutex, MutexGuard, lock, try_lock};

/// What is committed together.
pub(crate) trait Pending: Default {
    fn is_empty(&self) -> bool;

    /// Adds what has come later, of which nothing is left there.
    fn append(&mut self, later: &mut Self);
}

/// Why something still waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    /// Nothing does.
    Nothing,
    /// There is no room in a queue.
    NoRoom,
    /// The service scrapes.
    Scrape,
}

/// One writer's: its committer `C`, and batches `B`.
pub(crate) struct Handshake<C, B> {
    own: Mutex<Own<C, B>>,
    waiting: Mutex<B>,
}

pub(crate) struct Own<C, B> {
    committer: C,
    /// What is being committed. Empty otherwise: its memory is used again.
    batch: B,
}

impl<C, B: Pending> Handshake<C, B> {
    pub(crate) fn new(committer: C) -> Self {
        Self { own: Mutex::new(Own { committer, batch: B::default() }), waiting: Mutex::new(B::default()) }
    }

    /// Puts something into what waits, or takes it out. It is locked meanwhile.
    pub(crate) fn with_waiting<T>(&self, change: impl FnOnce(&mut B) -> T) -> T {
        change(&mut lock(&self.waiting))
    }

    /// For the writer: commits what waits, and looks at the committer then. `None`: the service has
    /// it, and commits what waits afterwards.
    pub(crate) fn try_commit<T>(
        &self,
        commit: impl FnOnce(&mut C, &mut B) -> Left,
        look: impl FnOnce(&C) -> T,
    ) -> Option<(Left, T)> {
        let mut own = try_lock(&self.own)?;
        let left = self.commit_waiting(&mut own, commit);
        Some((left, look(&own.committer)))
    }

    /// For the service: no commit is under way until what it returns is dropped. Then
    /// [`commit_all`](Self::commit_all) is to be called.
    pub(crate) fn hold(&self) -> MutexGuard<'_, Own<C, B>> {
        lock(&self.own)
    }

    /// For the service: from now on the committer is another one. Then
    /// [`commit_all`](Self::commit_all) is to be called.
    pub(crate) fn change(&self, change: impl FnOnce(&mut C)) {
        change(&mut lock(&self.own).committer);
    }

    /// For the service: commits all that waits, as long as `make_room` makes room where there is
    /// none. False: something still waits. True: all that was put before is committed.
    pub(crate) fn commit_all(
        &self,
        commit: impl Fn(&mut C, &mut B) -> Left,
        make_room: impl Fn(&C) -> bool,
    ) -> bool {
        loop {
            let mut own = lock(&self.own);
            let left = self.commit_waiting(&mut own, &commit);
            let goes_on = left == Left::Nothing || left == Left::NoRoom && make_room(&own.committer);
            // Unlocked before the look: see the head of the module.
            drop(own);
            match lock(&self.waiting).is_empty() {
                true if left == Left::Nothing => return true,
                // The writer has taken what was left here: its commit is waited for.
                true => {}
                false if goes_on => {}
                false => return false,
            }
        }
    }

    /// `commit` leaves in the batch what it has not committed.
    fn commit_waiting(&self, own: &mut Own<C, B>, commit: impl FnOnce(&mut C, &mut B) -> Left) -> Left {
        let Own { committer, batch } = own;
        std::mem::swap(batch, &mut *lock(&self.waiting));
        if batch.is_empty() {
            return Left::Nothing;
        }
        let left = commit(committer, batch);
        if left != Left::Nothing {
            self.put_back(batch);
        }
        left
    }

    /// In front of what has come meanwhile. The batch is empty afterwards.
    pub(crate) fn put_back(&self, batch: &mut B) {
        let mut waiting = lock(&self.waiting);
        batch.append(&mut waiting);
        std::mem::swap(batch, &mut *waiting);
    }
}
