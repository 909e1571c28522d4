//! The short way of a batch: the committing thread writes it into the rings itself, shard by shard, where nobody is and nothing waits.
//!
//! The batch is announced meanwhile, or the shard was in hand before there were tickets, so no cut sees a part of it. What cannot be written now, because the shard is taken or has no extent, waits
//! in the shard's queue or as the work at hand of its next owner.

use watershed_engine::{ChunkInfo, Refused};

use crate::batch::{Batch, Source};
use crate::commit::MOST_PARTS;
use crate::directory::{Entry, Key};
use crate::inner::Inner;
use crate::keep::Keeper;
use crate::nodes::{Letter, NodePool};
use crate::own::Owned;
use crate::part::{Op, Part};
use crate::route::Route;
use crate::ticket::Seat;

/// Where the sequence of the last chunk lives: nearly always the next chunk's home as well, and known without a walk through the directory.
/// A hint, tested when the shard is in hand. Of the directory of its committer's buffer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Recent {
    key: Key,
    home: u16,
    entry: Option<Entry>,
}

impl Recent {
    pub(crate) fn none() -> Recent {
        // No sequence has this key.
        Recent { key: Key(0), home: 0, entry: None }
    }

    /// The home of a sequence, if it has one.
    #[inline]
    fn home(&mut self, inner: &Inner, key: Key) -> Option<u16> {
        if key != self.key {
            self.find(inner, key)?;
        }
        Some(self.home)
    }

    #[inline]
    fn find(&mut self, inner: &Inner, key: Key) -> Option<()> {
        let entry = inner.directory.entry_of(key)?;
        // SAFETY: the entry is of that directory.
        let home = unsafe { inner.directory.settled_at(entry) }?;
        *self = Recent { key, home, entry: Some(entry) };
        Some(())
    }

    /// Whether the home of the last sequence is what it was.
    #[inline]
    pub(crate) fn is_at_home(&self, inner: &Inner) -> bool {
        // SAFETY: this is the hint of a committer of `inner`.
        self.entry.is_some_and(|entry| unsafe { inner.directory.settled_at(entry) } == Some(self.home))
    }

    /// The last sequence, if there is one, and its home: a hint.
    #[inline]
    pub(crate) fn last(&self) -> Option<(Key, u16)> {
        self.entry.map(|_| (self.key, self.home))
    }

    /// The home of a sequence, chosen now if it has none: [`Inner::home_of`], without a walk if the sequence is the last one.
    #[inline]
    pub(crate) fn home_of(&mut self, inner: &Inner, cpu_id: Option<usize>, key: Key) -> u16 {
        if !(key == self.key && self.is_at_home(inner)) {
            self.find_or_choose(inner, cpu_id, key);
        }
        self.home
    }

    #[cold]
    #[inline(never)]
    fn find_or_choose(&mut self, inner: &Inner, cpu_id: Option<usize>, key: Key) {
        let entry = match self.entry {
            Some(entry) if key == self.key => entry,
            _ => inner.directory.entry_made(key),
        };
        // SAFETY: as above.
        let home = unsafe { inner.home_at(cpu_id, entry) };
        *self = Recent { key, home, entry: Some(entry) };
    }

    /// What all chunks of a batch have for a home, if that is one and the same.
    fn common_home(&mut self, inner: &Inner, batch: &Batch<'_>) -> Option<u16> {
        let common = self.home(inner, key_of(&batch.chunks.first()?.0))?;
        for (info, _) in &batch.chunks {
            if self.home(inner, key_of(info))? != common {
                return None;
            }
        }
        Some(common)
    }
}

/// Whether `home`, which is in hand, is that of all chunks of a batch.
fn is_home_of_all(inner: &Inner, home: u16, batch: &Batch<'_>) -> bool {
    // A batch is often of one writer.
    let mut last = Key(0);
    batch.chunks.iter().all(|(info, _)| {
        let key = key_of(info);
        key == std::mem::replace(&mut last, key) || inner.directory.settled(key) == Some(home)
    })
}

#[inline]
fn key_of(info: &ChunkInfo) -> Key {
    Key::new(info.producer_id_trusted.0, info.writer_id.0)
}

/// What was taken for a home is none any more.
#[cold]
#[inline(never)]
fn go_back(owned: Owned<'_>, recent: &mut Recent) {
    *recent = Recent::none();
    let (inner, place, shard, owner) = (owned.inner, owned.place, owned.shard, owned.owner());
    drop(owned);
    inner.look_again_at(place, shard, owner);
}

/// The shortest way of one chunk: its home is in hand before it gets its ticket, so that it need not be announced. None if it is not to be gone.
#[inline]
pub(crate) fn commit_chunk_now(
    inner: &Inner,
    (keeper, seat, recent): (&mut Keeper, &mut Seat, &mut Recent),
    info: &ChunkInfo,
    bytes: &[u8],
) -> Option<Result<(), Refused>> {
    let (key, owner) = (key_of(info), keeper.owner());
    let home = recent.home(inner, key)?;
    let mut owned = Owned::try_new_to_add(inner, home.into(), keeper)?;
    // Only the owner of a home takes it away: as long as it is in hand, it stays.
    if !recent.is_at_home(inner) {
        go_back(owned, recent);
        return None;
    }
    if !owned.has_extent_for(bytes.len()) {
        return None;
    }
    let ticket = seat.take_in_hand(&inner.tickets, 1);
    let done = owned.engine().copy_chunk_untrusted(info, bytes, ticket);
    let place = owned.place;
    owned.finish();
    inner.look_again_at(place, home.into(), owner);
    inner.attend(owner);
    Some(done)
}

/// How a batch's shortest way went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tried {
    Done,
    /// All chunks have one home, and somebody has it or something waits there.
    Taken,
    /// The way is not for this batch.
    Not,
}

/// The same of a batch whose chunks have one home. `only_writer` is the writer of all of it, if there is one.
#[inline]
pub(crate) fn commit_batch_now(
    inner: &Inner,
    (keeper, seat, recent): (&mut Keeper, &mut Seat, &mut Recent),
    batch: &mut Batch<'_>,
    only_writer: Option<Key>,
) -> Tried {
    let home = match only_writer {
        Some(key) => recent.home(inner, key),
        None if batch.has_only_chunks() => recent.common_home(inner, batch),
        None => None,
    };
    let Some(home) = home else { return Tried::Not };
    // Only looked at: a word that is taken belongs to a thread that is about to write it.
    if inner.places.get(home.into()).word.is_taken() {
        return Tried::Taken;
    }
    write_batch_now(inner, (keeper, seat, recent), batch, home, only_writer.is_some())
}

#[inline(never)]
fn write_batch_now(
    inner: &Inner,
    (keeper, seat, recent): (&mut Keeper, &mut Seat, &mut Recent),
    batch: &mut Batch<'_>,
    home: u16,
    is_of_one_writer: bool,
) -> Tried {
    let owner = keeper.owner();
    let Some(owned) = Owned::try_new_to_add(inner, home.into(), keeper) else { return Tried::Taken };
    let is_home = match is_of_one_writer {
        true => recent.is_at_home(inner),
        false => is_home_of_all(inner, home, batch),
    };
    if !is_home {
        go_back(owned, recent);
        return Tried::Not;
    }
    let (first_ticket, place) = (seat.take_in_hand(&inner.tickets, batch.chunks.len() as u64), owned.place);
    write(inner, owned, batch, first_ticket);
    inner.look_again_at(place, home.into(), owner);
    inner.attend(owner);
    Tried::Done
}

/// All chunks of an announced batch have one home, nobody has it and nothing waits there. False, and nothing done, if it is not to be gone.
pub(crate) fn commit_now(
    inner: &Inner,
    keeper: &mut Keeper,
    batch: &mut Batch<'_>,
    first_ticket: u64,
    home: usize,
) -> bool {
    let Some(owned) = Owned::try_new_to_add(inner, home, keeper) else { return false };
    write(inner, owned, batch, first_ticket);
    true
}

/// Writes all chunks of a batch into the shard in hand.
fn write(inner: &Inner, mut owned: Owned<'_>, batch: &mut Batch<'_>, first_ticket: u64) {
    let mut done = owned.write_shared(batch, first_ticket);
    let Batch { chunks, memory, .. } = &mut *batch;
    let num_chunks = chunks.len();
    for (info, source) in &mut chunks[done..] {
        if !owned.has_extent_for(source.most_bytes()) {
            break;
        }
        source.commit_to(memory.as_ref(), owned.engine(), info, first_ticket + done as u64);
        done += 1;
    }
    if done == num_chunks {
        batch.chunks.clear();
    } else {
        batch.chunks.drain(..done);
        // No extent without waiting: the rest goes behind what is queued, with the tickets it has, before anybody else has the shard.
        queue_rest(inner, batch, first_ticket + done as u64, owned);
    }
}

/// The rest of a batch of which the first chunks are in the ring: as the work at hand of the shard's next owner. Not through the
/// queue, which may be full.
#[cold]
fn queue_rest(inner: &Inner, batch: &mut Batch<'_>, first_ticket: u64, owned: Owned<'_>) {
    // SAFETY: these pools are dropped behind all letters.
    let mut letter =
        unsafe { spare_letter(&mut inner.pools.lock().unwrap_or_else(|poisoned| poisoned.into_inner())) };
    letter.with_item(|part| {
        part.clear();
        part.memory.clone_from(&batch.memory);
        for (ticket, (info, source)) in (first_ticket..).zip(batch.chunks.drain(..)) {
            part.push_chunk(info, ticket, source);
        }
    });
    owned.state.current = Some(letter);
}

/// A letter of one of these pools, or of a new one. There are never more such rests than shards: a shard that has one is not drained, and only what is
/// drained is written to.
///
/// # Safety
/// The letter must be dropped before the pools are: as [`NodePool::new`] says.
unsafe fn spare_letter(pools: &mut Vec<NodePool<Part>>) -> Letter<Part> {
    if let Some(letter) = pools.iter_mut().find_map(NodePool::letter) {
        return letter;
    }
    // SAFETY: the caller's promise.
    let mut pool = unsafe { NodePool::new(MOST_PARTS) };
    let letter = pool.letter().expect("a new pool has letters");
    pools.push(pool);
    letter
}

/// Chunks and patches for a few shards, one after the other. There is a letter for each, for what cannot be written now; those that were not
/// needed are left in `letters`. Every queue had room: a few that come at once may exceed it by one each.
pub(crate) fn commit_by_shard(
    inner: &Inner,
    keeper: &mut Keeper,
    route: &Route,
    letters: &mut Vec<Letter<Part>>,
    batch: &mut Batch<'_>,
    first_ticket: u64,
) {
    for &shard in &route.shards {
        let share = Share { route, shard, first_ticket };
        let Some(mut owned) = Owned::try_new_to_add(inner, shard.into(), keeper) else {
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
        let Batch { chunks, memory, patches, .. } = batch;
        for (at, (info, source)) in chunks.iter_mut().enumerate() {
            if homes[at] != self.shard {
                continue;
            }
            if !owned.has_extent_for(source.most_bytes()) {
                return Some(at);
            }
            source.commit_to(memory.as_ref(), owned.engine(), info, self.first_ticket + at as u64);
        }
        for (_, set) in homes_of_patches.iter().zip(&*patches).filter(|(home, _)| **home == self.shard) {
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
            part.memory.clone_from(&batch.memory);
            for (at, (info, source)) in batch.chunks.iter_mut().enumerate().skip(from) {
                if homes[at] == self.shard {
                    let source = std::mem::replace(source, Source::Borrowed(&[]));
                    part.push_chunk(*info, self.first_ticket + at as u64, source);
                }
            }
            let sets = homes_of_patches.iter().zip(&batch.patches).filter(|(home, _)| **home == self.shard);
            sets.for_each(|(_, set)| part.push_op(Op::Patch(set.clone())));
        });
        letter
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_a_letter_for_a_rest_however_many_are_on_their_way() {
        let mut pools = Vec::new();
        for _ in 0..2 {
            // SAFETY: the letters are dropped before the pools.
            let letters: Vec<_> =
                (0..2 * MOST_PARTS + 1).map(|_| unsafe { spare_letter(&mut pools) }).collect();
            assert_eq!((letters.len(), pools.len()), (2 * MOST_PARTS + 1, 3), "pools are used again");
        }
    }
}
