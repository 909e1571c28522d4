//! Owning a shard: taking its word, working through its queue, giving it back.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use watershed_engine::{ChunkInfo, Shard};

use crate::batch::{Next, Op, Part, PatchSet, Source, Waiting};
use crate::directory::Key;
use crate::inbox::Returns;
use crate::inner::{Inner, NO_TICKET, Place, State};
use crate::sync::Ordering;
use crate::word::OwnerId;

/// The most chunks, and the longest time, before the word is given back. The clock is looked at after so many bytes.
const MOST_CHUNKS: usize = 32;
const MOST_TIME: Duration = Duration::from_micros(50);
const BYTES_A_LOOK: usize = 32 << 10;
/// How often who helps out looks whether somebody takes over: a few microseconds.
const LOOKS_FOR_OTHERS: usize = 64;

/// A shard that the holder owns. Dropping it gives the word back.
pub(crate) struct Owned<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) shard: usize,
    pub(crate) place: &'a Place,
    pub(crate) state: &'a mut State,
    owner: OwnerId,
    /// Whether the oldest record may be another one when the word is given back: not while chunks are only added.
    pub(crate) may_lose_oldest: bool,
}

/// Why draining stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Drained {
    /// Nothing is left in the queue.
    Everything,
    /// The turn is over; more is there.
    TurnIsOver,
    /// No extent was to be had without waiting for somebody.
    NoExtent,
}

impl<'a> Owned<'a> {
    /// Takes a shard if nobody has it.
    #[inline]
    pub(crate) fn try_new(inner: &'a Inner, shard: usize, owner: OwnerId) -> Option<Owned<'a>> {
        let place = &inner.places.get(shard);
        if !place.word.try_take(owner) {
            return None;
        }
        // SAFETY: the word is ours until the drop, and this is the only reference made of it.
        let state = unsafe { place.state() };
        Some(Owned { inner, shard, place, state, owner, may_lose_oldest: true })
    }

    /// Takes a shard to add chunks to it right away: nobody has it and nothing waits there.
    #[inline]
    pub(crate) fn try_new_to_add(inner: &'a Inner, shard: usize, owner: OwnerId) -> Option<Owned<'a>> {
        let mut owned = Owned::try_new(inner, shard, owner)?;
        owned.may_lose_oldest = false;
        owned.is_drained().then_some(owned)
    }

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

    /// Works through the queue. With `limited` for one turn only.
    pub(crate) fn drain(&mut self, limited: bool) -> Drained {
        let mut turn = Turn { limited, chunks: 0, bytes: 0, started: None };
        let mut returns = Returns::none();
        loop {
            let Some(mut letter) = self.next_letter() else { return Drained::Everything };
            // Copying a source is the one thing here that is not ours and may panic. The thread dies of it; the rest of the part does not.
            let done =
                catch_unwind(AssertUnwindSafe(|| letter.with_item(|part| self.do_part(part, &mut turn))));
            match done {
                Ok(None) => returns.add(letter),
                Ok(Some(stopped)) => {
                    self.state.current = Some(letter);
                    return stopped;
                }
                Err(panic) => {
                    letter.with_item(|part| part.done += 1);
                    self.state.current = Some(letter);
                    resume_unwind(panic);
                }
            }
        }
    }

    /// Does what is left of a part. None if all of it is done.
    fn do_part(&mut self, part: &mut Part, turn: &mut Turn) -> Option<Drained> {
        while let Some(next) = part.next() {
            if turn.is_over() {
                return Some(Drained::TurnIsOver);
            }
            let Some(bytes) = self.do_next(next) else { return Some(Drained::NoExtent) };
            part.done += 1;
            turn.chunks += 1;
            turn.bytes += bytes;
        }
        part.clear();
        None
    }

    fn next_letter(&mut self) -> Option<crate::inbox::Letter<Part>> {
        self.state.current.take().or_else(|| self.state.backlog.next()).or_else(|| {
            self.state.backlog = self.place.inbox.take_all();
            self.state.backlog.next()
        })
    }

    /// Does one thing, and tells how many bytes that was about. None if it needs an extent and there is none.
    fn do_next(&mut self, next: Next<'_>) -> Option<usize> {
        match next {
            Next::Chunk(info, source, ticket) => return self.do_chunk(info, source, ticket),
            Next::Op(Op::Chunk { info, ticket, bytes: Waiting::Whole(source) }, _) => {
                return self.do_chunk(info, source, *ticket);
            }
            Next::Op(Op::Chunk { info, ticket, bytes: Waiting::Copied { start, len } }, bytes) => {
                return self.do_chunk(info, &mut Source::Borrowed(&bytes[*start..*start + *len]), *ticket);
            }
            Next::Op(Op::Patch(set), _) => self.patch(set),
            Next::Op(Op::EndWriter(producer, writer), _) => self.engine().end_writer(*producer, *writer),
            Next::Op(Op::EndProducer(producer), _) => self.engine().end_producer(*producer),
        }
        Some(0)
    }

    pub(crate) fn patch(&mut self, set: &PatchSet) {
        let (producer, writer) = (set.producer_id_trusted, set.writer_id);
        let pending = set.other_patches_pending;
        self.engine().try_patch(producer, writer, set.chunk_id, &set.patches, pending);
    }

    #[inline]
    fn do_chunk(&mut self, info: &ChunkInfo, source: &mut Source<'_>, ticket: u64) -> Option<usize> {
        let bytes = source.most_bytes();
        if !self.has_extent_for(bytes) {
            return None;
        }
        source.commit_to(self.engine(), info, ticket);
        Some(bytes)
    }

    /// Whether there is anything to [`publish`](Self::publish): hardly ever where chunks were only added.
    #[inline]
    fn has_news(&self) -> bool {
        // Relaxed: a wish is not waited for. One that is seen too late is served by the next commit, or by who comes for it when this shard has
        // been idle for a while; where it was raised with a request by the word, that is looked at when the word is given back.
        let State { engine: Some(engine), leaving, shown, .. } = &*self.state else { return false };
        self.may_lose_oldest
            || shown.oldest == NO_TICKET
            || shown.live != engine.num_live_sequences() as u32
            || engine.has_dropped()
            || !leaving.is_empty()
            || self.place.hints.wanted.load(Ordering::Relaxed)
    }

    /// Serves requests, tells others what they need to know of this shard. To be called before the word is given back. Nothing is
    /// stored that has not changed: others look at these.
    #[cold]
    #[inline(never)]
    fn publish(&mut self) {
        let hints = &self.place.hints;
        if hints.wanted.load(Ordering::Relaxed) && hints.wanted.swap(false, Ordering::Acquire) {
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
        if self.place.hints.wanted.load(Ordering::Relaxed) {
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

/// How much of an owner's turn is over.
struct Turn {
    limited: bool,
    chunks: usize,
    bytes: usize,
    started: Option<Instant>,
}

impl Turn {
    #[inline]
    fn is_over(&mut self) -> bool {
        self.limited && (self.chunks >= MOST_CHUNKS || self.bytes >= BYTES_A_LOOK && self.is_late())
    }

    fn is_late(&mut self) -> bool {
        self.bytes = 0;
        self.started.get_or_insert_with(Instant::now).elapsed() >= MOST_TIME
    }
}

impl Drop for Owned<'_> {
    #[inline(always)]
    fn drop(&mut self) {
        if self.has_news() {
            self.publish();
        }
        if self.place.word.give() {
            self.serve();
        }
    }
}

impl Inner {
    /// To be called after a shard was given back: whoever queued meanwhile relies on it. See the word's rule.
    #[inline]
    pub(crate) fn look_again(&self, shard: usize, owner: OwnerId) {
        self.look_again_at(self.places.get(shard), shard, owner);
    }

    /// The same of a place that has been found.
    #[inline]
    pub(crate) fn look_again_at(&self, place: &Place, shard: usize, owner: OwnerId) {
        if !place.inbox.is_empty() {
            self.visit(shard, owner);
        }
    }

    /// Drains a shard turn by turn until its queue is empty or somebody else has taken it: the rule "queue, then try; give, then look
    /// again". Returns whether the queue was left because no extent was to be had.
    #[cold]
    pub(crate) fn visit(&self, shard: usize, owner: OwnerId) -> bool {
        loop {
            // Looked at before it is tried, so that those who queue do not take the word's cache line from its owner.
            if self.places.get(shard).word.is_taken() {
                return false;
            }
            let Some(mut owned) = Owned::try_new(self, shard, owner) else { return false };
            let drained = owned.drain(true);
            drop(owned);
            match drained {
                Drained::NoExtent => return true,
                Drained::TurnIsOver => {}
                Drained::Everything if self.places.get(shard).inbox.is_empty() => return false,
                Drained::Everything => {}
            }
        }
    }

    /// Drains a shard on behalf of others, who could not while this thread evicted there. Between two turns it is left for a moment to who
    /// commits there: else these would go on queueing because this thread has the word, and this thread draining because they queue.
    pub(crate) fn help_out(&self, shard: usize, owner: OwnerId) {
        let place = self.places.get(shard);
        loop {
            let Some(mut owned) = Owned::try_new(self, shard, owner) else { return };
            let drained = owned.drain(true);
            drop(owned);
            if drained == Drained::NoExtent || place.inbox.is_empty() && drained == Drained::Everything {
                return;
            }
            for _ in 0..LOOKS_FOR_OTHERS {
                if place.word.is_taken() {
                    return;
                }
                crate::sync::spin_hint();
            }
        }
    }
}
