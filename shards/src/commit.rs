//! Committing: any thread, with a [`Committer`] of its own.
//!
//! ```text
//!   announce -> take tickets -> find homes -> one shard, free, nothing waiting?  yes: do it now (module `direct`)
//!                                                |
//!                                                no: look for room at every shard -> full? help, else hand back
//!                                                    |
//!                         a few shards, no workers: do what can be done now, put the rest
//!                         else: put the parts
//!                                                    |
//!                                                    visit shards that are free, or ring for the workers
//! ```

mod queueing;

use std::sync::Arc;

use watershed_engine::{ChunkInfo, Refused};

use crate::batch::{Batch, Look, check};
use crate::direct::{Recent, Tried, commit_batch_now, commit_by_shard, commit_chunk_now, commit_now};
use crate::inner::Inner;
use crate::keep::Keeper;
use crate::nodes::{Letter, NodePool};
use crate::part::Part;
use crate::route::{ROOM_BETWEEN, Route};
use crate::sync::Ordering;
use crate::ticket::Seat;
use crate::word::OwnerId;

/// How many parts of one committer can be on their way.
pub(crate) const MOST_PARTS: usize = 1024;

/// One thread's way into a buffer. Cheap to keep, a few allocations to make.
///
/// It is written at every commit. Two that lie side by side, as in a list with one for each thread, must not share a cache line, nor a pair of
/// lines that processors fetch together.
#[derive(Debug)]
#[repr(align(128))]
pub struct Committer {
    // The keeper has the seat's flag and words of `inner`; it goes first, and lets go of what it keeps. The seat and the pool point into `inner`: see
    // `Drop`.
    keeper: Keeper,
    seat: Seat,
    pool: Option<NodePool<Part>>,
    recent: Recent,
    /// The CPU whose shard new sequences go to, if it is not the one at hand.
    cpu_id: Option<usize>,
    route: Route,
    /// For the parts of the next batch. Those of them that are not needed stay.
    letters: Vec<Letter<Part>>,
    inner: Arc<Inner>,
}

/// A batch that was not taken: a queue is full, and its owner is at work. Nothing of it was committed; it is as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the queue of shard {shard} is full")]
pub struct HandedBack {
    /// Whose queue.
    pub shard: usize,
}

/// Why a batch was not committed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// A chunk in it is wrong in a way that is the caller's mistake; nothing of the batch was committed.
    #[error(transparent)]
    Refused(#[from] Refused),
    /// A chunk of it is [`Source::Shared`](crate::Source::Shared), and [`Batch::memory`] is not there: the caller's mistake too.
    #[error("the batch does not say in which shared memory its chunks are")]
    NoMemory,
    /// To be tried again later.
    #[error(transparent)]
    HandedBack(#[from] HandedBack),
}

impl Committer {
    pub(crate) fn new(inner: &Arc<Inner>) -> Committer {
        let inner = Arc::clone(inner);
        let recycled = inner.pools.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).pop();
        // SAFETY: the pool goes to `Inner::pools` when the committer is dropped, and is dropped behind all letters there.
        let pool = recycled.unwrap_or_else(|| unsafe { NodePool::new(MOST_PARTS) });
        // SAFETY: the seat is dropped before `inner` is, which keeps the tickets alive.
        let seat = unsafe { inner.tickets.register() };
        let owner = OwnerId(inner.next_owner.fetch_add(1, Ordering::Relaxed) % (1 << 30));
        // SAFETY: the flag is that of the seat, which is this committer's alone and is dropped behind the keeper; the words are `inner`'s.
        let keeper = unsafe { Keeper::new(owner, seat.at_work()) };
        Committer {
            keeper,
            seat,
            pool: Some(pool),
            recent: Recent::none(),
            cpu_id: None,
            route: Route::new(),
            letters: Vec::with_capacity(ROOM_BETWEEN),
            inner,
        }
    }

    /// The number by which reports name this committer when it owns a shard.
    pub fn owner(&self) -> OwnerId {
        self.keeper.owner()
    }

    /// From now on, sequences that come for the first time go to the shard of this CPU, as if this thread ran there: for who commits on behalf
    /// of threads elsewhere. `None`: the CPU at hand.
    pub fn set_cpu(&mut self, cpu_id: Option<usize>) {
        self.cpu_id = cpu_id;
    }

    /// Commits a batch: afterwards it is empty, and a later cut covers it (unless another committer is stopped in mid-commit: see the
    /// module `ticket`). Never waits.
    ///
    /// # Errors
    /// [`CommitError`]; then the batch is as it was.
    pub fn commit(&mut self, batch: &mut Batch<'_>) -> Result<(), CommitError> {
        self.inner.tickets.will_be_taken();
        match self.queue_plain(batch) {
            Some(queued) => Ok(queued?),
            None => self.commit_any(batch),
        }
    }

    /// Commits what need not be queued, or not without a closer look.
    #[inline(never)]
    fn commit_any(&mut self, batch: &mut Batch<'_>) -> Result<(), CommitError> {
        let look = batch.look()?;
        if batch.is_empty() {
            return Ok(());
        }
        if look.has_shared && batch.memory.is_none() {
            return Err(CommitError::NoMemory);
        }
        let Committer { keeper, seat, recent, inner, .. } = self;
        let tried = match inner.has_workers {
            true => Tried::Taken,
            false => commit_batch_now(inner, (keeper, seat, recent), batch, look.only_writer),
        };
        match (tried, look.only_writer) {
            (Tried::Done, _) => {}
            (Tried::Taken, Some(key)) => self.queue(key, batch, look.is_owned)?,
            _ => self.commit_by_the_long_way(batch, look, tried)?,
        }
        batch.memory = None;
        Ok(())
    }

    /// Commits a batch that goes to more than one shard, or whose home is not known yet.
    #[inline(never)]
    fn commit_by_the_long_way(
        &mut self,
        batch: &mut Batch<'_>,
        look: Look,
        tried: Tried,
    ) -> Result<(), HandedBack> {
        let Committer { keeper, seat, pool, cpu_id, route, letters, inner, .. } = self;
        let owner = keeper.owner();
        let mut announced = seat.announce(&inner.tickets);
        let first_ticket = announced.take(batch.chunks.len() as u64);
        let pool = pool.as_mut().expect("taken only by the drop");
        let may_write = !inner.has_workers && tried != Tried::Taken;
        let going = Going { inner, keeper, pool, letters, may_write, is_owned: look.is_owned, first_ticket };
        route.find(inner, *cpu_id, batch);
        let committed = going.by_route(route, batch);
        drop(announced);
        // As in `queue`.
        route.shards.iter().for_each(|&home| inner.after_put(home.into(), owner));
        inner.attend(owner);
        committed
    }

    /// Takes the ticket of a batch of one chunk, and stops there, as a thread that loses its processor: until
    /// [`go_on_with_ticket`](Self::go_on_with_ticket) no cut passes that ticket, and nothing else may be committed. For tests.
    #[doc(hidden)]
    pub fn stop_with_ticket(&mut self) -> u64 {
        let mut announced = self.seat.announce(&self.inner.tickets);
        let first_ticket = announced.take(1);
        std::mem::forget(announced);
        first_ticket
    }

    /// Commits the batch of which the ticket was taken.
    ///
    /// # Errors
    /// As [`commit`](Self::commit); the ticket is given up all the same.
    #[doc(hidden)]
    pub fn go_on_with_ticket(&mut self, first_ticket: u64, batch: &mut Batch<'_>) -> Result<(), CommitError> {
        let Committer { keeper, seat, pool, cpu_id, route, letters, inner, .. } = self;
        let owner = keeper.owner();
        // What was announced before stands in the cell until this is dropped.
        let announced = seat.announced_before(&inner.tickets);
        let pool = pool.as_mut().expect("taken only by the drop");
        let is_owned = batch.look().is_ok_and(|look| look.is_owned);
        let going =
            Going { inner, keeper, pool, letters, may_write: !inner.has_workers, is_owned, first_ticket };
        route.find(inner, *cpu_id, batch);
        let committed = going.by_route(route, batch);
        drop(announced);
        committed?;
        route.shards.iter().for_each(|&home| inner.after_put(home.into(), owner));
        inner.attend(owner);
        Ok(())
    }

    /// Commits one chunk of the caller's bytes. See [`commit`](Self::commit).
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn commit_chunk(&mut self, info: &ChunkInfo, bytes: &[u8]) -> Result<(), CommitError> {
        self.inner.tickets.will_be_taken();
        check(info, bytes.len())?;
        let Committer { keeper, seat, recent, inner, .. } = self;
        if !inner.has_workers
            && let Some(done) = commit_chunk_now(inner, (keeper, seat, recent), info, bytes)
        {
            return done.map_err(CommitError::from);
        }
        self.commit_chunk_alone(info, bytes)
    }

    /// The same by the long way.
    #[cold]
    #[inline(never)]
    fn commit_chunk_alone(&mut self, info: &ChunkInfo, bytes: &[u8]) -> Result<(), CommitError> {
        self.commit(&mut Batch::of_chunk(*info, bytes))
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            self.inner.pools.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(pool);
        }
    }
}

/// A batch on its way: announced, with its tickets.
struct Going<'a> {
    inner: &'a Inner,
    keeper: &'a mut Keeper,
    pool: &'a mut NodePool<Part>,
    letters: &'a mut Vec<Letter<Part>>,
    /// Whether a shard that has all of it is to be tried: committers drain, and it was not found taken just now.
    may_write: bool,
    /// Whether no chunk borrows its bytes.
    is_owned: bool,
    first_ticket: u64,
}

impl Going<'_> {
    /// A batch of which the homes were found.
    #[inline(never)]
    fn by_route(self, route: &Route, batch: &mut Batch<'_>) -> Result<(), HandedBack> {
        let Going { inner, keeper, pool, letters, may_write, is_owned, first_ticket } = self;
        let is_of_one_shard = route.is_of_one_shard(inner, batch);
        if is_of_one_shard
            && may_write
            && commit_now(inner, keeper, batch, first_ticket, usize::from(route.shards[0]))
        {
            return Ok(());
        }
        make_ready(inner, keeper.owner(), pool, &route.shards, letters)?;
        // A shard that was just found taken gets the list of chunks as it is.
        if !is_of_one_shard && route.is_of_few_shards(inner, batch) {
            commit_by_shard(inner, keeper, route, letters, batch, first_ticket);
            return Ok(());
        }
        let parts = &mut letters[..route.shards.len()];
        route.fill(inner, parts, batch, is_owned, first_ticket);
        for (&shard, letter) in route.shards.iter().zip(letters.drain(..route.shards.len())) {
            inner.places.get(shard.into()).inbox.put(letter);
        }
        Ok(())
    }
}

/// Whether a batch can be taken whole: room in the queue of each of its shards, and a letter for each.
fn make_ready(
    inner: &Inner,
    owner: OwnerId,
    pool: &mut NodePool<Part>,
    shards: &[u16],
    letters: &mut Vec<Letter<Part>>,
) -> Result<(), HandedBack> {
    if let Some(&shard) = shards.iter().find(|&&shard| !has_room(inner, shard.into(), owner)) {
        return Err(HandedBack { shard: shard.into() });
    }
    while letters.len() < shards.len() {
        letters.push(pool.letter().ok_or(HandedBack { shard: shards[0].into() })?);
    }
    Ok(())
}

/// Whether a shard's queue has room; if it is full and nobody has the shard, helps first.
#[inline]
fn has_room(inner: &Inner, shard: usize, owner: OwnerId) -> bool {
    inner.places.get(shard).inbox.has_room() || has_made_room(inner, shard, owner)
}

#[cold]
fn has_made_room(inner: &Inner, shard: usize, owner: OwnerId) -> bool {
    inner.visit(shard, owner);
    inner.places.get(shard).inbox.has_room()
}
