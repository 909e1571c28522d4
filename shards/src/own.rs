//! Owning a shard: taking its word, telling others what has changed, giving it back. What the owner does with the queue is in `drain`.

use watershed_engine::Shard;

use crate::directory::Key;
use crate::inner::{Inner, NO_TICKET, Place, State};
use crate::keep::{Had, Keeper};
use crate::sync::Ordering;
use crate::word::OwnerId;

/// A shard that the holder owns. Dropping it gives the word back.
pub(crate) struct Owned<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) shard: usize,
    pub(crate) place: &'a Place,
    pub(crate) state: &'a mut State,
    owner: OwnerId,
    /// Who may keep the word instead of giving it back, and how it was had.
    keeper: Option<(&'a mut Keeper, Had)>,
    /// Whether the oldest record may be another one when the word is given back: not while chunks are only added.
    pub(crate) may_lose_oldest: bool,
}

impl<'a> Owned<'a> {
    /// Takes a shard if nobody has it.
    #[inline(always)]
    pub(crate) fn try_new(inner: &'a Inner, shard: usize, owner: OwnerId) -> Option<Owned<'a>> {
        let place = &inner.places.get(shard);
        if !place.word.try_take(owner) {
            return None;
        }
        // SAFETY: the word is ours until the drop, and this is the only reference made of it.
        let state = unsafe { place.state() };
        state.quiet.disturb();
        Some(Owned { inner, shard, place, state, owner, keeper: None, may_lose_oldest: true })
    }

    /// Takes a shard to add chunks to it right away: nobody has it and nothing waits there.
    #[inline(always)]
    pub(crate) fn try_new_to_add(
        inner: &'a Inner,
        shard: usize,
        keeper: &'a mut Keeper,
    ) -> Option<Owned<'a>> {
        let place = &inner.places.get(shard);
        let had = keeper.try_take(&place.word)?;
        // SAFETY: as in `try_new`.
        let state = unsafe { place.state() };
        let owner = keeper.owner();
        if had == Had::Taken {
            state.quiet.count(owner);
        }
        let owned =
            Owned { inner, shard, place, state, owner, keeper: Some((keeper, had)), may_lose_oldest: false };
        if owned.is_drained() {
            Some(owned)
        } else {
            owned.give_back();
            None
        }
    }

    /// Out of the way of what is common.
    #[cold]
    #[inline(never)]
    fn give_back(self) {}

    /// Takes a shard, waiting for its owner. For reads, clones and statistics only; committers never wait. `is_waiting` is told who is
    /// waited for, again and again.
    pub(crate) fn wait_for(
        inner: &'a Inner,
        shard: usize,
        owner: OwnerId,
        mut is_waiting: impl FnMut(usize, OwnerId),
    ) -> Owned<'a> {
        let backoff = crossbeam_utils::Backoff::new();
        loop {
            if let Some(owned) = Owned::try_new(inner, shard, owner) {
                return owned;
            }
            if let Some(holder) = inner.places.get(shard).word.owner() {
                is_waiting(shard, holder);
            }
            crate::sync::spin_hint();
            backoff.snooze();
        }
    }

    pub(crate) fn owner(&self) -> OwnerId {
        self.owner
    }

    #[inline]
    pub(crate) fn engine(&mut self) -> &mut Shard {
        self.inner.engine(self.state)
    }

    /// Whether nothing waits here: then a chunk that comes now is the next.
    #[inline]
    pub(crate) fn is_drained(&self) -> bool {
        self.state.current.is_none() && self.state.backlog.is_empty() && self.place.inbox.is_empty()
    }

    /// Whether there is anything to [`publish`](Self::publish): hardly ever where chunks were only added.
    #[inline]
    fn has_news(&self) -> bool {
        // Relaxed: a wish is not waited for. One that is seen too late is served by the next commit, or by who comes for it when this shard has
        // been idle for a while; where it was raised with a request by the word, that is looked at when the word is given back.
        let State { engine: Some(engine), leaving, shown, .. } = &*self.state else { return false };
        self.may_lose_oldest
            || shown.oldest == NO_TICKET
            || is_far_from(shown.live, engine.num_live_sequences() as u32)
            || engine.has_dropped()
            || !leaving.is_empty()
            || self.place.hints.wanted.is_there()
    }

    /// Serves requests, tells others what they need to know of this shard. To be called before the word is given back. Nothing is
    /// stored that has not changed: others look at these.
    #[cold]
    #[inline(never)]
    fn publish(&mut self) {
        let hints = &self.place.hints;
        if hints.wanted.take() {
            self.hand_over_extent();
        }
        let State { engine: Some(engine), leaving, shown, .. } = &mut *self.state else { return };
        let oldest = match self.inner.has_extents() {
            true => engine.oldest_ticket().unwrap_or(NO_TICKET),
            false => 0,
        };
        if oldest != shown.oldest {
            self.inner.oldest[self.shard].store(oldest, Ordering::Relaxed);
            shown.oldest = oldest;
        }
        let live = engine.num_live_sequences() as u32;
        if live != shown.live {
            hints.live.store(live, Ordering::Relaxed);
            self.inner.live.fetch_add(live.wrapping_sub(shown.live), Ordering::Relaxed);
            shown.live = live;
        }
        if engine.has_dropped() || !leaving.is_empty() {
            let dropped = engine.take_dropped().map(|(producer, writer)| Key::new(producer.0, writer.0));
            let dropped = dropped.collect();
            self.let_go(dropped);
        }
    }

    /// Serves a request that came in between, when the word has been given back: whoever is there next does it, and that may as well be this
    /// thread.
    #[cold]
    #[inline(never)]
    fn serve(&self) {
        if self.place.hints.wanted.is_there() {
            drop(Owned::try_new(self.inner, self.shard, self.owner));
        }
    }

    /// Takes the homes away of sequences that have gone, when no committer can be on its way to them any more.
    #[cold]
    fn let_go(&mut self, dropped: Vec<Key>) {
        for &key in &dropped {
            self.inner.directory.start_leaving(key);
        }
        if !dropped.is_empty() {
            let moment = self.inner.tickets.now();
            self.state.leaving.retain(|(key, _)| !dropped.contains(key));
            self.state.leaving.extend(dropped.into_iter().map(|key| (key, moment)));
        }
        let cut = self.inner.tickets.cut();
        // What the cut covers is queued; it must be drained as well, or a chunk of the sequence may still wait here.
        if self.is_drained() {
            let directory = &self.inner.directory;
            self.state.leaving.retain(|&(key, moment)| {
                let is_safe = moment <= cut;
                if is_safe {
                    directory.finish_leaving(key);
                }
                !is_safe
            });
        }
    }
}

/// Whether a number that others were told is off by more than a sixteenth. To tell costs a read-modify-write on a line that all shards share, and with
/// more writers than the ring has records every commit makes a sequence live; the choice of homes compares with twice a mean.
#[inline]
fn is_far_from(shown: u32, live: u32) -> bool {
    shown.abs_diff(live) > shown / 16
}

impl Drop for Owned<'_> {
    #[inline(never)]
    fn drop(&mut self) {
        self.end();
    }
}

impl Owned<'_> {
    /// What the drop does, without a call: for who does it once a commit.
    #[inline(always)]
    pub(crate) fn finish(self) {
        std::mem::ManuallyDrop::new(self).end();
    }

    /// To be called once, as the last.
    #[inline(always)]
    fn end(&mut self) {
        if self.has_news() {
            self.publish();
        }
        let word = &self.place.word;
        let is_asked = match &mut self.keeper {
            Some((keeper, Had::Kept)) => keeper.end(word),
            Some((keeper, Had::Taken)) if self.state.quiet.is_over() => {
                keep_or_give(keeper, self.place, self.state)
            }
            _ => word.give(),
        };
        if is_asked {
            self.serve();
        }
    }
}

#[cold]
#[inline(never)]
fn keep_or_give(keeper: &mut Keeper, place: &Place, state: &mut State) -> bool {
    let is_kept = state.quiet.next_time().is_some_and(|times| keeper.keep(&place.word, times));
    !is_kept && place.word.give()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Batch, ShardedBuffer, ShardedConfig};
    use watershed_engine::{ChunkInfo, Packet, ProducerId, WriterId};

    /// A home is given up when no committer can be on the way there that took its ticket before the sequence left.
    #[test]
    fn a_home_stays_as_long_as_somebody_may_be_on_the_way() {
        let config = ShardedConfig { num_shards: Some(2), ..ShardedConfig::ring(4 << 20) };
        let buffer = ShardedBuffer::create(config).unwrap();
        let mut committers = [(); 3].map(|()| buffer.committer().unwrap());
        let [committer, before, after] = &mut committers;
        let has_home = || {
            // Who looks at a shard lets go of what has left it.
            buffer.ledger();
            buffer.inner.directory.home(Key::new(1, 1)).is_some()
        };
        let info = ChunkInfo {
            producer_id_trusted: ProducerId(1),
            writer_id: WriterId(1),
            num_fragments: 1,
            complete: true,
            ..ChunkInfo::default()
        };
        committer.commit_chunk(&info, b"\x01.").unwrap();
        let ticket_before = before.stop_with_ticket();
        committer.commit(&mut Batch { ended_producers: vec![ProducerId(1)], ..Batch::default() }).unwrap();
        let mut pass = buffer.read_pass(|_: &Packet<'_>, _: &mut Vec<u8>| true);
        while pass.next_pieces(1).is_some() {}
        drop(pass);
        assert!(has_home(), "one is on the way");
        let ticket_after = after.stop_with_ticket();
        assert!(has_home(), "still");
        before.go_on_with_ticket(ticket_before, &mut Batch::default()).unwrap();
        assert!(!has_home(), "who is on the way now has seen that the sequence left");
        after.go_on_with_ticket(ticket_after, &mut Batch::default()).unwrap();
    }
}
