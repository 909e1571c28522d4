//! Owning a shard: taking its word, working through its queue, giving it back.

use std::time::{Duration, Instant};

use watershed_engine::Shard;

use crate::batch::{Op, Part, SharedBytes, Waiting};
use crate::directory::Key;
use crate::inner::{Inner, NO_TICKET, Place, State};
use crate::sync::Ordering;
use crate::word::OwnerId;

/// The most chunks, and the longest time, before the word is given back.
const MOST_CHUNKS: usize = 32;
const MOST_TIME: Duration = Duration::from_micros(50);

/// A shard that the holder owns. Dropping it gives the word back.
pub(crate) struct Owned<'a> {
    pub(crate) inner: &'a Inner,
    pub(crate) shard: usize,
    pub(crate) place: &'a Place,
    pub(crate) state: &'a mut State,
    owner: OwnerId,
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
    pub(crate) fn try_new(inner: &'a Inner, shard: usize, owner: OwnerId) -> Option<Owned<'a>> {
        let place = &inner.places[shard];
        if !place.word.try_take(owner) {
            return None;
        }
        // SAFETY: the word is ours until the drop, and this is the only reference made of it.
        let state = unsafe { place.state() };
        Some(Owned { inner, shard, place, state, owner })
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
            if let Some(holder) = inner.places[shard].word.owner() {
                is_waiting(shard, holder);
            }
            crate::sync::spin_hint();
            backoff.snooze();
        }
    }

    pub(crate) fn owner(&self) -> OwnerId {
        self.owner
    }

    pub(crate) fn engine(&mut self) -> &mut Shard {
        self.inner.engine(self.state)
    }

    /// Whether nothing waits here: then a chunk that comes now is the next.
    pub(crate) fn is_drained(&self) -> bool {
        self.state.current.is_none() && self.state.backlog.is_empty() && self.place.inbox.is_empty()
    }

    /// Works through the queue. With `limited` for one turn only.
    pub(crate) fn drain(&mut self, limited: bool) -> Drained {
        let mut chunks = 0;
        let mut started: Option<Instant> = None;
        loop {
            let Some(mut letter) = self.next_letter() else { return Drained::Everything };
            loop {
                let is_over = limited && chunks >= MOST_CHUNKS
                    || limited
                        && chunks % 8 == 7
                        && started.get_or_insert_with(Instant::now).elapsed() >= MOST_TIME;
                if is_over {
                    self.state.current = Some(letter);
                    return Drained::TurnIsOver;
                }
                match letter.with_item(|part| self.do_next(part)) {
                    Done::One => chunks += 1,
                    Done::Part => break,
                    Done::NoExtent => {
                        self.state.current = Some(letter);
                        return Drained::NoExtent;
                    }
                }
            }
            letter.with_item(Part::clear);
        }
    }

    fn next_letter(&mut self) -> Option<crate::inbox::Letter<Part>> {
        self.state.current.take().or_else(|| self.state.backlog.next()).or_else(|| {
            self.state.backlog = self.place.inbox.take_all();
            self.state.backlog.next()
        })
    }

    /// Does the next thing of a part.
    fn do_next(&mut self, part: &mut Part) -> Done {
        if part.is_done() {
            return Done::Part;
        }
        let Part { ops, done, bytes } = part;
        match &mut ops[*done] {
            Op::Chunk { info, ticket, bytes: waiting } => {
                let size_bytes = match waiting {
                    Waiting::Copied { len, .. } => *len,
                    Waiting::Shared(shared) => shared.as_ref().map_or(0, |(smb, _)| smb.page_size_bytes()),
                };
                if !self.has_extent_for(size_bytes) {
                    return Done::NoExtent;
                }
                let engine = self.inner.engine(self.state);
                // A refusal is the caller's mistake; it was told at the commit, which checks the same.
                let _ = match waiting {
                    Waiting::Copied { start, len } => {
                        engine.copy_chunk_untrusted(info, &bytes[*start..*start + *len], *ticket)
                    }
                    Waiting::Shared(shared) => match shared.take() {
                        None => Ok(()),
                        Some((smb, token)) => {
                            let chunk = smb.attach(token);
                            engine.copy_chunk_untrusted(info, &SharedBytes(chunk.payload()), *ticket)
                        }
                    },
                };
            }
            Op::Patch(set) => {
                let (producer, writer) = (set.producer_id_trusted, set.writer_id);
                let pending = set.other_patches_pending;
                self.engine().try_patch(producer, writer, set.chunk_id, &set.patches, pending);
            }
            Op::EndWriter(producer, writer) => self.engine().end_writer(*producer, *writer),
            Op::EndProducer(producer) => self.engine().end_producer(*producer),
        }
        *done += 1;
        Done::One
    }

    /// Serves requests, tells others what they need to know of this shard. To be called before the word is given back.
    fn publish(&mut self) {
        let wanted = self.place.wanted.swap(0, Ordering::Acquire);
        if wanted != 0 {
            self.hand_over_extents(wanted);
        }
        let Some(engine) = &mut self.state.engine else { return };
        if self.inner.has_extents() {
            let oldest = engine.oldest_ticket().unwrap_or(NO_TICKET);
            self.place.oldest.store(oldest, Ordering::Release);
        }
        let live = engine.num_live_sequences() as u32;
        let before = self.place.live.swap(live, Ordering::Relaxed);
        self.inner.live.fetch_add(live.wrapping_sub(before), Ordering::Relaxed);
        let dropped: Vec<Key> =
            engine.take_dropped().map(|(producer, writer)| Key::new(producer.0, writer.0)).collect();
        if !dropped.is_empty() || !self.state.leaving.is_empty() {
            self.let_go(dropped);
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

enum Done {
    One,
    /// The part has nothing left.
    Part,
    NoExtent,
}

impl Drop for Owned<'_> {
    fn drop(&mut self) {
        self.publish();
        if self.place.word.give() && self.place.wanted.load(Ordering::Relaxed) != 0 {
            // A request came in between: whoever is there next serves it, and that may as well be this thread.
            drop(Owned::try_new(self.inner, self.shard, self.owner));
        }
    }
}

impl Inner {
    /// Drains a shard turn by turn until its queue is empty or somebody else has taken it: the rule "queue, then try; give, then look
    /// again". Returns whether the queue was left because no extent was to be had.
    pub(crate) fn visit(&self, shard: usize, owner: OwnerId) -> bool {
        loop {
            let Some(mut owned) = Owned::try_new(self, shard, owner) else { return false };
            let drained = owned.drain(true);
            drop(owned);
            match drained {
                Drained::NoExtent => return true,
                Drained::TurnIsOver => {}
                Drained::Everything if self.places[shard].inbox.is_empty() => return false,
                Drained::Everything => {}
            }
        }
    }
}
