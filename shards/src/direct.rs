//! The short way of a batch: the committing thread writes it into the rings itself, shard by shard, where nobody is and nothing waits.
//!
//! The batch is announced meanwhile, so no cut sees a part of it. What cannot be written now, because the shard is taken or has no extent, waits
//! in the shard's queue or as the work at hand of its next owner.

use crate::batch::{Batch, Op, Part, Source};
use crate::commit::MOST_PARTS;
use crate::inbox::{Letter, NodePool};
use crate::inner::Inner;
use crate::own::{Drained, Owned};
use crate::route::Route;
use crate::word::OwnerId;

/// All chunks have one home, nobody has it and nothing waits there. False, and nothing done, if it is not to be gone.
pub(crate) fn commit_now(
    inner: &Inner,
    owner: OwnerId,
    batch: &mut Batch<'_>,
    first_ticket: u64,
    home: usize,
) -> bool {
    let Some(mut owned) = Owned::try_new_to_add(inner, home, owner) else { return false };
    let num_chunks = batch.chunks.len();
    let mut done = 0;
    for (ticket, (info, source)) in (first_ticket..).zip(&mut batch.chunks) {
        if !owned.has_extent_for(source.most_bytes()) {
            break;
        }
        source.commit_to(owned.engine(), info, ticket);
        done += 1;
    }
    batch.chunks.drain(..done);
    if done < num_chunks {
        // No extent without waiting: the rest goes behind what is queued, with the tickets it has, under the same announcement.
        queue_rest(inner, batch, first_ticket + done as u64, owned);
    }
    true
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

/// Chunks and patches for a few shards, one after the other. There is a letter for each, for what cannot be written now; those that were not
/// needed are left in `letters`. Every queue had room: a few that come at once may exceed it by one each.
pub(crate) fn commit_by_shard(
    inner: &Inner,
    owner: OwnerId,
    route: &Route,
    letters: &mut Vec<Letter<Part>>,
    batch: &mut Batch<'_>,
    first_ticket: u64,
) {
    for &shard in &route.shards {
        let share = Share { route, shard, first_ticket };
        let Some(mut owned) = Owned::try_new_to_add(inner, shard.into(), owner) else {
            let letter = share.rest_of(batch, 0, letters);
            inner.places.get(shard.into()).inbox.put(letter);
            continue;
        };
        if let Some(done) = share.write(&mut owned, batch) {
            owned.state.current = Some(share.rest_of(batch, done, letters));
        }
    }
    batch.chunks.clear();
    batch.patches.clear();
}

/// What a batch has for one shard.
struct Share<'a> {
    route: &'a Route,
    shard: u16,
    first_ticket: u64,
}

impl Share<'_> {
    /// Writes it; if there is no extent without waiting, tells at which of the batch's chunks.
    fn write(&self, owned: &mut Owned<'_>, batch: &mut Batch<'_>) -> Option<usize> {
        let (homes, homes_of_patches) = self.route.homes.split_at(batch.chunks.len());
        for (at, (info, source)) in batch.chunks.iter_mut().enumerate() {
            if homes[at] != self.shard {
                continue;
            }
            if !owned.has_extent_for(source.most_bytes()) {
                return Some(at);
            }
            source.commit_to(owned.engine(), info, self.first_ticket + at as u64);
        }
        for (_, set) in homes_of_patches.iter().zip(&batch.patches).filter(|(home, _)| **home == self.shard) {
            owned.patch(set);
        }
        None
    }

    /// What is left of it from chunk number `from` on, in a letter.
    #[cold]
    fn rest_of(&self, batch: &mut Batch<'_>, from: usize, letters: &mut Vec<Letter<Part>>) -> Letter<Part> {
        let mut letter = letters.pop().expect("a letter for each shard");
        let (homes, homes_of_patches) = self.route.homes.split_at(batch.chunks.len());
        letter.with_item(|part| {
            part.clear();
            for (at, (info, source)) in batch.chunks.iter_mut().enumerate().skip(from) {
                if homes[at] == self.shard {
                    let source = std::mem::replace(source, Source::Borrowed(&[]));
                    part.push_chunk(*info, self.first_ticket + at as u64, source);
                }
            }
            let sets = homes_of_patches.iter().zip(&batch.patches).filter(|(home, _)| **home == self.shard);
            part.ops.extend(sets.map(|(_, set)| Op::Patch(set.clone())));
        });
        letter
    }
}
