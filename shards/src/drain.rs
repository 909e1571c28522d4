//! Working through a shard's queue, turn by turn, and the rule by which nothing is left behind in it.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::time::{Duration, Instant};

use watershed_engine::ChunkInfo;
use watershed_smb::{Reads, Smb};

use crate::batch::{PatchSet, Source};
use crate::inner::{Inner, Place};
use crate::nodes::{Letter, Returns};
use crate::own::Owned;
use crate::part::{Chunk, Op, Part, ToDo, Waiting};
use crate::shared::Halt;
use crate::word::OwnerId;

/// The most chunks, and the longest time, before the word is given back. The clock is looked at after so many bytes.
const MOST_CHUNKS: usize = 32;
const MOST_TIME: Duration = Duration::from_micros(50);
const BYTES_A_LOOK: isize = 32 << 10;
/// How often who helps out looks whether somebody takes over: a few microseconds.
const LOOKS_FOR_OTHERS: usize = 64;

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

impl Owned<'_> {
    /// Works through the queue. With `limited` for one turn only.
    pub(crate) fn drain(&mut self, limited: bool) -> Drained {
        let mut at_work = None;
        let mut returns = Returns::none();
        // Copying a source is the one thing here that is not ours and may panic. The thread dies of it; the rest of the part does not.
        let done = catch_unwind(AssertUnwindSafe(|| self.do_letters(limited, &mut at_work, &mut returns)));
        match done {
            Ok(drained) => {
                self.state.current = at_work;
                drained
            }
            Err(panic) => {
                if let Some(letter) = &mut at_work {
                    letter.with_item(|part| part.done += 1);
                }
                self.state.current = at_work;
                resume_unwind(panic);
            }
        }
    }

    /// Works through the queue. What is left in `at_work` is not done.
    fn do_letters(
        &mut self,
        limited: bool,
        at_work: &mut Option<Letter<Part>>,
        returns: &mut Returns<Part>,
    ) -> Drained {
        let mut turn = Turn::new(limited);
        *at_work = self.state.current.take();
        loop {
            match self.do_shared_letters(at_work, &mut turn, returns) {
                None => return Drained::Everything,
                Some(Halt::Paused) => return Drained::TurnIsOver,
                Some(Halt::NoRoom) if self.get_extent() => continue,
                Some(Halt::NoRoom) => return Drained::NoExtent,
                Some(Halt::NotShared) => {}
            }
            let Some(letter) = at_work else { return Drained::Everything };
            if let Some(stopped) = letter.with_item(|part| self.do_part(part, &mut turn)) {
                return stopped;
            }
            at_work.take().into_iter().for_each(|letter| returns.add(letter));
        }
    }

    /// Does what is left of any part. None if all of it is done.
    #[inline(never)]
    fn do_part(&mut self, part: &mut Part, turn: &mut Turn) -> Option<Drained> {
        let ToDo { chunks, mut ticket, done, memory } = part.undone();
        for chunk in chunks {
            if let Some(stopped) = self.do_next(chunk, memory, ticket, turn) {
                return Some(stopped);
            }
            *done += 1;
            ticket += 1;
        }
        if part.has_ops
            && let Some(stopped) = self.do_ops(part, turn)
        {
            return Some(stopped);
        }
        if let Some(memory) = part.finish() {
            turn.reads.take_up(memory);
        }
        None
    }

    /// Does a chunk that waits as it came, unless the turn is over.
    fn do_next(
        &mut self,
        (info, source): &mut Chunk,
        memory: Option<&Smb>,
        ticket: u64,
        turn: &mut Turn,
    ) -> Option<Drained> {
        if turn.rest.is_over() {
            return Some(Drained::TurnIsOver);
        }
        let Some(bytes) = self.do_chunk(info, source, memory, ticket) else { return Some(Drained::NoExtent) };
        turn.rest.note(bytes);
        None
    }

    #[inline(never)]
    fn do_ops(&mut self, part: &mut Part, turn: &mut Turn) -> Option<Drained> {
        while let Some((op, bytes, memory)) = part.next_op() {
            if turn.rest.is_over() {
                return Some(Drained::TurnIsOver);
            }
            let Some(bytes) = self.do_op(op, bytes, memory) else { return Some(Drained::NoExtent) };
            part.done += 1;
            turn.rest.note(bytes);
        }
        None
    }

    /// Does one thing, and tells how many bytes that was about. None if it needs an extent and there is none.
    #[inline(never)]
    fn do_op(&mut self, op: &mut Op, bytes: &[u8], memory: Option<&Smb>) -> Option<usize> {
        match op {
            Op::Chunk { info, ticket, bytes: Waiting::Whole(source) } => {
                return self.do_chunk(info, source, memory, *ticket);
            }
            Op::Chunk { info, ticket, bytes: Waiting::Copied { start, len } } => {
                let mut source = Source::Borrowed(&bytes[*start..*start + *len]);
                return self.do_chunk(info, &mut source, None, *ticket);
            }
            Op::Patch(set) => self.patch(set),
            Op::EndWriter(producer, writer) => self.engine().end_writer(*producer, *writer),
            Op::EndProducer(producer) => self.engine().end_producer(*producer),
        }
        Some(0)
    }

    pub(crate) fn patch(&mut self, set: &PatchSet) {
        let (producer, writer) = (set.producer_id_trusted, set.writer_id);
        let pending = set.other_patches_pending;
        self.engine().try_patch(producer, writer, set.chunk_id, &set.patches, pending);
    }

    #[inline(never)]
    fn do_chunk(
        &mut self,
        info: &ChunkInfo,
        source: &mut Source<'_>,
        memory: Option<&Smb>,
        ticket: u64,
    ) -> Option<usize> {
        let bytes = source.most_bytes();
        if !self.has_extent_for(bytes) {
            return None;
        }
        source.give_up_to(memory, self.engine(), info, ticket);
        Some(bytes)
    }
}

/// An owner's turn.
pub(crate) struct Turn {
    pub(crate) rest: Rest,
    /// The memory at hand. What has been read is given back at the latest when the turn is over.
    pub(crate) reads: Reads,
}

/// What is left of a turn.
pub(crate) struct Rest {
    limited: bool,
    chunks_left: usize,
    bytes_to_look: isize,
    started: Option<Instant>,
}

impl Turn {
    fn new(limited: bool) -> Turn {
        let chunks_left = if limited { MOST_CHUNKS } else { usize::MAX };
        let rest = Rest { limited, chunks_left, bytes_to_look: BYTES_A_LOOK, started: None };
        Turn { rest, reads: Reads::new() }
    }
}

impl Rest {
    #[inline]
    pub(crate) fn note(&mut self, bytes: usize) {
        self.chunks_left -= 1;
        // No chunk has more than 64 KiB.
        self.bytes_to_look -= bytes as isize;
    }

    #[inline]
    pub(crate) fn is_over(&mut self) -> bool {
        self.chunks_left == 0 || self.bytes_to_look <= 0 && self.is_late()
    }

    #[cold]
    #[inline(never)]
    fn is_late(&mut self) -> bool {
        self.bytes_to_look = BYTES_A_LOOK;
        self.limited && self.started.get_or_insert_with(Instant::now).elapsed() >= MOST_TIME
    }
}

impl Inner {
    /// To be called after something was put into a shard's queue, or its word was given back: "queue, then try; give, then look again".
    #[inline]
    pub(crate) fn after_put(&self, shard: usize, owner: OwnerId) {
        self.after_put_at(self.places.get(shard), shard, owner);
    }

    /// The same of a place that has been found.
    #[inline]
    pub(crate) fn after_put_at(&self, place: &Place, shard: usize, owner: OwnerId) {
        if self.has_workers {
            if !place.inbox.is_empty() {
                place.bell.ring();
            }
        } else if !place.word.is_taken() && !place.inbox.is_empty() {
            self.visit(shard, owner);
        }
    }

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
