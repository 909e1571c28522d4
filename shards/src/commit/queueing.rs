//! Queueing chunks of one writer, whose home somebody else has or drains: what every chunk of a busy shard goes through.
//!
//! ```text
//!   look at the home's word, at the batch ->  ticket  -> look at the queue, fill a letter ->  put  -> is the word free again?
//!                                         (one fetch_add)                      (one compare-exchange)
//! ```
//!
//! Those two read-modify-writes are most of it, and no load passes one. So what can be looked up before the first is: behind it, one load that
//! must wait for another is time in which nothing else is done.

use super::{Committer, HandedBack};
use crate::batch::Batch;
use crate::directory::Key;
use crate::inbox::Seen;
use crate::inner::{Inner, Place};
use crate::nodes::{Letter, NodePool};
use crate::part::Part;
use crate::ticket::Announced;
use crate::word::OwnerId;

impl Committer {
    /// Queues a batch of which one look tells that it is in order and to be queued: chunks of the last writer in shared memory and nothing else,
    /// where workers drain or the writer's home is taken. None, and nothing done, of another.
    #[inline]
    pub(super) fn queue_plain(&mut self, batch: &mut Batch<'_>) -> Option<Result<(), HandedBack>> {
        let Committer { keeper, seat, pool, recent, cpu_id, letters, inner, .. } = self;
        let inner: &Inner = inner;
        let (key, mut home) = recent.last()?;
        let mut place = inner.places.get(home.into());
        // Looked at before the batch is: other ways need more looks at that, and none twice.
        if !(inner.has_workers || place.word.is_taken()) || !batch.is_only_shared_of(key) {
            return None;
        }
        let mut announced = seat.announce(&inner.tickets);
        let first_ticket = announced.take(batch.chunks.len() as u64);
        if !recent.is_at_home(inner) {
            home = recent.home_of(inner, *cpu_id, key);
            place = inner.places.get(home.into());
        }
        let queueing = Queueing { inner, owner: keeper.owner(), pool, letters, announced, first_ticket };
        Some(queueing.put(batch, true, home.into(), place))
    }

    /// Queues chunks of one writer.
    #[inline(never)]
    pub(super) fn queue(
        &mut self,
        key: Key,
        batch: &mut Batch<'_>,
        is_owned: bool,
    ) -> Result<(), HandedBack> {
        let Committer { keeper, seat, pool, recent, cpu_id, letters, inner, .. } = self;
        let inner: &Inner = inner;
        let mut announced = seat.announce(&inner.tickets);
        let first_ticket = announced.take(batch.chunks.len() as u64);
        let home = recent.home_of(inner, *cpu_id, key).into();
        let queueing = Queueing { inner, owner: keeper.owner(), pool, letters, announced, first_ticket };
        queueing.put(batch, is_owned, home, inner.places.get(home))
    }
}

/// A batch that has its tickets.
struct Queueing<'a> {
    inner: &'a Inner,
    owner: OwnerId,
    pool: &'a mut Option<NodePool<Part>>,
    letters: &'a mut Vec<Letter<Part>>,
    announced: Announced<'a>,
    first_ticket: u64,
}

impl Queueing<'_> {
    #[inline(always)]
    fn put(
        self,
        batch: &mut Batch<'_>,
        is_owned: bool,
        home: usize,
        place: &Place,
    ) -> Result<(), HandedBack> {
        let Queueing { inner, owner, pool, letters, announced, first_ticket } = self;
        let mut seen = place.inbox.look();
        if !place.inbox.admits(seen) {
            seen = help_at(inner, place, home, owner);
        }
        let letter = match place.inbox.admits(seen) {
            true => pool.as_mut().and_then(NodePool::letter).or_else(|| letters.pop()),
            false => None,
        };
        let queued = match letter {
            Some(mut letter) => {
                letter.with_item(|part| part.take_chunks(batch, is_owned, first_ticket));
                place.inbox.put_behind(seen, letter);
                Ok(())
            }
            None => Err(HandedBack { shard: home }),
        };
        drop(announced);
        // Also if the batch is handed back: who queued there while this thread had the word relies on it.
        inner.after_put_at(place, home, owner);
        inner.attend(owner);
        queued
    }
}

/// Helps where a queue is full, if nobody has the shard, and looks again.
#[cold]
#[inline(never)]
fn help_at(inner: &Inner, place: &Place, shard: usize, owner: OwnerId) -> Seen<Part> {
    inner.visit(shard, owner);
    place.inbox.look()
}
