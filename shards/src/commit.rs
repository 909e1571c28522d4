//! Committing: any thread, with a [`Committer`] of its own.
//!
//! ```text
//!   announce -> take tickets -> find homes -> one shard, free, nothing waiting?  yes: do it now
//!                                                |
//!                                                no: reserve a place at every shard -> full? help, else hand back
//!                                                    put the parts -> visit shards that are free, or ring for the workers
//! ```

use std::sync::Arc;

use watershed_engine::{ChunkInfo, ProducerId, Refused, WriterId};

use crate::batch::{Batch, Op, Part, SharedBytes, Source};
use crate::directory::Key;
use crate::inbox::{Letter, NodePool};
use crate::inner::Inner;
use crate::own::{Drained, Owned};
use crate::sync::Ordering;
use crate::ticket::Seat;
use crate::word::OwnerId;

/// How many parts of one committer can be on their way.
const MOST_PARTS: usize = 1024;

/// One thread's way into a buffer. Cheap to keep, a few allocations to make.
#[derive(Debug)]
pub struct Committer {
    // The seat and the pool point into `inner`: see `Drop`.
    seat: Seat,
    pool: Option<NodePool<Part>>,
    owner: OwnerId,
    /// The CPU whose shard new sequences go to, if it is not the one at hand.
    cpu_id: Option<usize>,
    /// The parts of the batch at hand: shard and letter. Empty between two commits.
    parts: Vec<(u16, Letter<Part>)>,
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
        Committer { seat, pool: Some(pool), owner, cpu_id: None, parts: Vec::new(), inner }
    }

    /// The number by which reports name this committer when it owns a shard.
    pub fn owner(&self) -> OwnerId {
        self.owner
    }

    /// From now on, sequences that come for the first time go to the shard of this CPU, as if this thread ran there: for who commits on behalf
    /// of threads elsewhere. `None`: the CPU at hand.
    pub fn set_cpu(&mut self, cpu_id: Option<usize>) {
        self.cpu_id = cpu_id;
    }

    /// Commits a batch: afterwards it is empty, and every later cut covers it. Never waits.
    ///
    /// # Errors
    /// [`CommitError`]; then the batch is as it was.
    pub fn commit(&mut self, batch: &mut Batch<'_>) -> Result<(), CommitError> {
        for (info, source) in &batch.chunks {
            check(info, source)?;
        }
        if batch.is_empty() {
            return Ok(());
        }
        let committed = match self.commit_now(batch) {
            Some(committed) => committed,
            None => self.commit_queued(batch),
        };
        self.inner.attend(self.owner);
        committed.map_err(CommitError::from)
    }

    /// Commits one chunk of the caller's bytes. See [`commit`](Self::commit).
    ///
    /// # Errors
    /// As there.
    #[inline]
    pub fn commit_chunk(&mut self, info: &ChunkInfo, bytes: &[u8]) -> Result<(), CommitError> {
        check(info, &Source::Borrowed(bytes))?;
        if !self.inner.has_workers {
            let announced = self.seat.announce(&self.inner.tickets);
            let ticket = announced.take(1);
            let home = home_of(&self.inner, self.cpu_id, key_of(info.producer_id_trusted, info.writer_id));
            if let Some(mut owned) = Owned::try_new(&self.inner, usize::from(home), self.owner)
                && owned.is_drained()
                && owned.has_extent_for(bytes.len())
            {
                let done = owned.engine().copy_chunk_untrusted(info, bytes, ticket);
                drop(owned);
                drop(announced);
                self.look_again(usize::from(home));
                return done.map_err(CommitError::from);
            }
        }
        self.commit(&mut Batch::of_chunk(*info, bytes))
    }

    /// After a word was given back: whoever queued meanwhile relies on us.
    #[inline]
    fn look_again(&self, shard: usize) {
        if !self.inner.places[shard].inbox.is_empty() {
            self.inner.visit(shard, self.owner);
        }
        self.inner.attend(self.owner);
    }

    /// The short way: all chunks have one home, nobody has it and nothing waits there. None if it is not to be gone.
    fn commit_now(&mut self, batch: &mut Batch<'_>) -> Option<Result<(), HandedBack>> {
        let has_others =
            !(batch.patches.is_empty() && batch.ended_writers.is_empty() && batch.ended_producers.is_empty());
        if self.inner.has_workers || has_others {
            return None;
        }
        let announced = self.seat.announce(&self.inner.tickets);
        let first_ticket = announced.take(batch.chunks.len() as u64);
        let mut homes = batch.chunks.iter().map(|(info, _)| {
            home_of(&self.inner, self.cpu_id, key_of(info.producer_id_trusted, info.writer_id))
        });
        let home = homes.next()?;
        if !homes.all(|other| other == home) {
            return None;
        }
        let mut owned = Owned::try_new(&self.inner, usize::from(home), self.owner)?;
        if !owned.is_drained() {
            return None;
        }
        let num_chunks = batch.chunks.len();
        let mut done = 0;
        for (ticket, (info, source)) in (first_ticket..).zip(&mut batch.chunks) {
            if !owned.has_extent_for(size_bytes(source)) {
                break;
            }
            // `check` has been through this.
            let _ = match std::mem::replace(source, Source::Borrowed(&[])) {
                Source::Borrowed(bytes) => owned.engine().copy_chunk_untrusted(info, bytes, ticket),
                Source::Shared(smb, token) => {
                    let chunk = smb.attach(token);
                    owned.engine().copy_chunk_untrusted(info, &SharedBytes(chunk.payload()), ticket)
                }
                Source::Scraped(payload) => {
                    owned.engine().copy_chunk_untrusted(info, &SharedBytes(payload), ticket)
                }
            };
            done += 1;
        }
        batch.chunks.drain(..done);
        if done < num_chunks {
            // No extent without waiting: the rest goes behind what is queued, with the tickets it has, under the same announcement.
            queue_rest(&self.inner, batch, first_ticket + done as u64, owned);
        } else {
            drop(owned);
        }
        drop(announced);
        self.look_again(usize::from(home));
        Some(Ok(()))
    }

    fn commit_queued(&mut self, batch: &mut Batch<'_>) -> Result<(), HandedBack> {
        let inner = &*self.inner;
        let announced = self.seat.announce(&inner.tickets);
        let first_ticket = announced.take(batch.chunks.len() as u64);
        let shards = shards_of(inner, self.cpu_id, batch);
        for (index, &shard) in shards.iter().enumerate() {
            if !reserve(inner, usize::from(shard), self.owner) {
                shards[..index].iter().for_each(|&shard| inner.places[usize::from(shard)].inbox.cancel());
                return Err(HandedBack { shard: shard.into() });
            }
        }
        let pool = self.pool.as_mut().expect("taken only by the drop");
        debug_assert!(self.parts.is_empty());
        for &shard in &shards {
            let Some(mut letter) = pool.letter() else {
                self.parts.clear();
                shards.iter().for_each(|&shard| inner.places[usize::from(shard)].inbox.cancel());
                return Err(HandedBack { shard: shard.into() });
            };
            letter.with_item(Part::clear);
            self.parts.push((shard, letter));
        }
        fill(inner, self.cpu_id, &mut self.parts, batch, first_ticket);
        for (shard, letter) in self.parts.drain(..) {
            inner.places[usize::from(shard)].inbox.put(letter);
        }
        drop(announced);
        for &shard in &shards {
            if inner.has_workers {
                inner.places[usize::from(shard)].bell.ring();
            } else {
                inner.visit(usize::from(shard), self.owner);
            }
        }
        Ok(())
    }
}

impl Drop for Committer {
    fn drop(&mut self) {
        if let Some(pool) = self.pool.take() {
            self.inner.pools.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).push(pool);
        }
    }
}

/// The rest of a batch of which the first chunks are in the ring: as the work at hand of the shard's next owner. Not through the
/// queue, which may be full.
#[cold]
fn queue_rest(inner: &Inner, batch: &mut Batch<'_>, first_ticket: u64, mut owned: Owned<'_>) {
    let mut pools = inner.pools.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
    // SAFETY: the pool goes to `Inner::pools`, which is dropped behind all letters.
    let mut pool = pools.pop().unwrap_or_else(|| unsafe { NodePool::new(MOST_PARTS) });
    let letter = pool.letter();
    pools.push(pool);
    drop(pools);
    let Some(mut letter) = letter else {
        // A thousand such rests wait: there is memory for them but no progress anywhere. Wait for an extent after all.
        while owned.drain(false) == Drained::NoExtent {
            crate::sync::spin_hint();
        }
        return;
    };
    letter.with_item(|part| {
        part.clear();
        for (ticket, (info, source)) in (first_ticket..).zip(batch.chunks.drain(..)) {
            part.push_chunk(info, ticket, source);
        }
    });
    owned.state.current = Some(letter);
}

fn key_of(producer: ProducerId, writer: WriterId) -> Key {
    Key::new(producer.0, writer.0)
}

fn home_of(inner: &Inner, cpu_id: Option<usize>, key: Key) -> u16 {
    inner.directory.home_or(key, || inner.choose_home(cpu_id)).0
}

fn size_bytes(source: &Source<'_>) -> usize {
    match source {
        Source::Borrowed(bytes) => bytes.len(),
        Source::Shared(smb, _) => smb.page_size_bytes(),
        Source::Scraped(payload) => payload.size_bytes(),
    }
}

fn check(info: &ChunkInfo, source: &Source<'_>) -> Result<(), Refused> {
    if key_of(info.producer_id_trusted, info.writer_id).0 == 0 {
        return Err(Refused::ReservedKey);
    }
    match size_bytes(source) {
        size_bytes if size_bytes > ChunkInfo::MAX_SIZE_BYTES => Err(Refused::ChunkTooLarge { size_bytes }),
        _ => Ok(()),
    }
}

/// Reserves a place in a shard's queue; if it is full and nobody has the shard, helps first.
fn reserve(inner: &Inner, shard: usize, owner: OwnerId) -> bool {
    let inbox = &inner.places[shard].inbox;
    if inbox.reserve() {
        return true;
    }
    inner.visit(shard, owner);
    inbox.reserve()
}

/// The shards that a batch has something for, each once.
fn shards_of(inner: &Inner, cpu_id: Option<usize>, batch: &Batch<'_>) -> Vec<u16> {
    let mut shards = Vec::with_capacity(4);
    let mut add = |shard: u16| {
        if !shards.contains(&shard) {
            shards.push(shard);
        }
    };
    for (info, _) in &batch.chunks {
        add(home_of(inner, cpu_id, key_of(info.producer_id_trusted, info.writer_id)));
    }
    for set in &batch.patches {
        // What has no home has no chunks: the patch fails wherever it goes, and is counted there.
        add(inner.directory.home(key_of(set.producer_id_trusted, set.writer_id)).unwrap_or(0));
    }
    for &(producer, writer) in &batch.ended_writers {
        inner.directory.home(key_of(producer, writer)).into_iter().for_each(&mut add);
    }
    for producer in &batch.ended_producers {
        inner.directory.homes_of(producer.0).into_iter().for_each(|(_, home)| add(home));
    }
    shards
}

/// Moves a batch into the parts for its shards.
fn fill(
    inner: &Inner,
    cpu_id: Option<usize>,
    parts: &mut [(u16, Letter<Part>)],
    batch: &mut Batch<'_>,
    first_ticket: u64,
) {
    let mut push = |home: u16, op: &mut dyn FnMut(&mut Part)| {
        // A home does not change between the announcement and the put.
        if let Some((_, letter)) = parts.iter_mut().find(|(shard, _)| *shard == home) {
            letter.with_item(|part| op(part));
        }
    };
    for (ticket, (info, source)) in (first_ticket..).zip(batch.chunks.drain(..)) {
        let home = home_of(inner, cpu_id, key_of(info.producer_id_trusted, info.writer_id));
        let mut source = Some(source);
        push(home, &mut |part| {
            if let Some(source) = source.take() {
                part.push_chunk(info, ticket, source);
            }
        });
    }
    for set in batch.patches.drain(..) {
        let home = inner.directory.home(key_of(set.producer_id_trusted, set.writer_id)).unwrap_or(0);
        push(home, &mut |part| part.ops.push(Op::Patch(set.clone())));
    }
    for (producer, writer) in batch.ended_writers.drain(..) {
        if let Some(home) = inner.directory.home(key_of(producer, writer)) {
            push(home, &mut |part| part.ops.push(Op::EndWriter(producer, writer)));
        }
    }
    for producer in batch.ended_producers.drain(..) {
        let mut homes: Vec<u16> =
            inner.directory.homes_of(producer.0).into_iter().map(|(_, home)| home).collect();
        homes.sort_unstable();
        homes.dedup();
        for home in homes {
            push(home, &mut |part| part.ops.push(Op::EndProducer(producer)));
        }
    }
}
