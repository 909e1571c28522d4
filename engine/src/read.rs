//! Reading, outside: in the order of the buffer.
//!
//! ```text
//!   write cursor                                                                    write cursor
//!   v oldest                                                                 newest v
//!   | A0 | B0 | padding | A1 | C0 | ...                                             |
//!     ^ for each record: all packets of its sequence, from the sequence's front up to this record (module `walk`)
//! ```
//!
//! Reading is destructive: what was read is erased, and what stalls stays for the next pass. Slices point into the ring; reads write
//! headers only, so they stay valid until something else is done with the buffer.

use std::ptr::NonNull;

use crate::buffer::TraceBuffer;
use crate::ids::{ClientIdentity, LossReasons, ProducerId, WriterId};
use crate::packet::{Origin, Packet, Pieces, Unbound};
use crate::records::{NONE, Slot};
use crate::run::Run;
use crate::sequence::Sequence;
use crate::stretch::FIRST_LOOK;
use crate::walk::At;

/// Who consumes: a reader, or a writer that needs the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Evict,
}

/// What became of a packet that begins in one record and goes on in others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reassembly {
    Success,
    NotEnoughData,
    Loss(LossReasons),
}

/// A packet in one piece, or a list.
enum Found {
    Whole(*const [u8]),
    Pieces(Pieces),
}

/// Where a read pass is.
pub(crate) struct Reader {
    /// The record of the outer walk; [`NONE`] when there is no more, or no pass.
    pub(crate) slot: Slot,
    /// The sequence that is being read up to that record; [`NONE`] between two.
    pub(crate) sequence: u32,
    /// The place in the front of the sequence; nowhere between two.
    pub(crate) at: At,
    /// What comes next from there.
    pub(crate) run: Run,
    /// The list of the packet that was handed out last, if it is in one piece and no other may be asked for while it is held.
    one: [*const [u8]; 1],
    /// Whose packets these are, and what was lost before the next one.
    pub(crate) origin: Origin,
    /// Records that are looked at together next time ([`crate::stretch`]).
    pub(crate) look: usize,
    /// In a shard: the record of the outer walk, which stands before `slot` in the order of tickets; and its ticket.
    pub(crate) target: (Slot, u64),
}

// SAFETY: `one` is looked at only through packets, whose lifetimes borrow the buffer.
unsafe impl Send for Reader {}
// SAFETY: nothing is done with a shared reader's `one`.
unsafe impl Sync for Reader {}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            slot: NONE,
            sequence: NONE,
            at: At::NOWHERE,
            run: Run::default(),
            one: [std::ptr::slice_from_raw_parts(std::ptr::null(), 0)],
            origin: Origin {
                producer_id: ProducerId(0),
                writer_id: WriterId(0),
                identity: ClientIdentity::default(),
                loss: LossReasons::NONE,
            },
            look: FIRST_LOOK,
            target: (NONE, 0),
        }
    }
}

impl Reader {
    /// Forgets the place in a sequence: it is looked for again.
    #[inline]
    pub(crate) fn pause(&mut self) {
        self.sequence = NONE;
        self.at = At::NOWHERE;
        self.look = FIRST_LOOK;
    }

    /// Whether no record that goes away matters to the pass.
    #[inline]
    pub(crate) fn stands_nowhere(&self) -> bool {
        self.slot & self.target.0 == NONE
    }

    /// Whether the pass must know when a record goes away.
    #[inline]
    pub(crate) fn stands_on(&self, slot: Slot) -> bool {
        self.slot == slot || self.target.0 == slot
    }

    /// The record at `gone` goes away.
    #[cold]
    pub(crate) fn skip(&mut self, gone: Slot, next: Option<Slot>) {
        if self.slot == gone {
            self.slot = next.unwrap_or(NONE);
        }
        if self.target.0 == gone {
            self.pause();
        }
    }

    /// Whose the next packet is, and what was lost before it: that is told once.
    #[inline(always)]
    fn take_origin(&mut self) -> Origin {
        let origin = self.origin;
        self.origin.loss = LossReasons::NONE;
        origin
    }

    /// What was lost before the next packet, which is of the sequence at hand, will be told with it.
    #[inline(always)]
    pub(crate) fn take_loss(&mut self, sequence: &mut Sequence) {
        self.origin.loss = LossReasons(u32::from(std::mem::take(&mut sequence.pending_loss)));
    }

    /// Ends the pass.
    #[inline]
    pub(crate) fn stop(&mut self) {
        self.slot = NONE;
        self.sequence = NONE;
        (self.at.left_bytes, self.at.stretch) = (0, 0);
    }
}

impl TraceBuffer {
    /// To be called before anything is written: a read pass ends, or, in a shard, looks again where it is.
    #[inline]
    pub(crate) fn end_read_pass(&mut self) {
        self.settle();
        if self.tickets.is_some() {
            // Nearly always it stands in no sequence, and is as a pause leaves it.
            if self.reader.sequence != NONE {
                self.reader.pause();
            }
        } else {
            self.reader.stop();
        }
    }

    /// Starts a read pass at the oldest data. Sequences that stalled are tried again.
    pub fn begin_read(&mut self) {
        self.settle();
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.arena.reset();
        self.reader = Reader { slot: self.records.front().unwrap_or(NONE), ..Reader::default() };
    }

    /// The next packet of the pass; none when there is no more, or since something was written. The packet is consumed.
    ///
    /// Packets of one sequence come in the order of writing. Packets of different sequences come in the order of their chunks; a
    /// packet that goes on in later chunks comes at the place of its first.
    // Always inlined, here and below: returned through memory a packet costs more than everything else that is done for it (`Pieces`).
    #[inline(always)]
    pub fn read_next(&mut self) -> Option<Packet<'_>> {
        let found = self.next_found(|buffer| {
            buffer.arena.reset();
            buffer.look_on()
        })?;
        // SAFETY: the borrow ends before the next packet is asked for.
        Some(unsafe { self.hand_out(found) })
    }

    /// Starts a read pass whose packets may be held together.
    pub fn read_pass(&mut self) -> ReadPass<'_> {
        self.begin_read();
        ReadPass { buffer: self }
    }

    /// As [`read_next`](Self::read_next), of records with tickets below `cut`; with the ticket of the record at whose turn the packet comes.
    #[inline(always)]
    pub(crate) fn read_next_below(&mut self, cut: u64) -> Option<(u64, Packet<'_>)> {
        if self.reader.run.is_ahead() && !self.turn_to_run(cut) {
            self.settle();
        }
        let found = self.next_found(|buffer| {
            buffer.arena.reset();
            buffer.look_on_below(cut)
        })?;
        let ticket = self.reader.target.1;
        // SAFETY: as in `read_next`.
        Some((ticket, unsafe { self.hand_out(found) }))
    }

    /// The next packet of the run at hand, or else what `look_on` finds.
    #[inline(always)]
    fn next_found(&mut self, mut look_on: impl FnMut(&mut Self) -> Option<Pieces>) -> Option<Found> {
        loop {
            if let Some(body) = self.reader.run.take() {
                if self.reader.run.is_at_end() {
                    self.reader.run.close();
                }
                return Some(Found::Whole(body));
            }
            let pieces = look_on(self)?;
            if !pieces.is_empty() {
                return Some(Found::Pieces(pieces));
            }
        }
    }

    /// The packet that was just found.
    ///
    /// # Safety
    /// It may be held until the next packet is asked for: bodies lie in the ring, of which reads write headers only, lists in the arena or
    /// in `reader.one`.
    #[inline(always)]
    unsafe fn hand_out(&mut self, found: Found) -> Unbound {
        let origin = self.reader.take_origin();
        let pieces = match found {
            Found::Pieces(pieces) => pieces,
            Found::Whole(body) => {
                self.reader.one = [body];
                NonNull::from_mut(&mut self.reader.one)
            }
        };
        // SAFETY: the caller's promise.
        unsafe { Unbound::pieces(pieces, origin) }
    }

    /// Looks for the next packet of records with tickets below `cut`, whatever it takes.
    #[inline(never)]
    fn look_on_below(&mut self, cut: u64) -> Option<Pieces> {
        let found = self.look_on_ordinary(Some(cut));
        if found.is_some() {
            return found;
        }
        while self.reader.slot != NONE {
            if self.reader.sequence == NONE {
                let next = self.next_to_read(self.reader.slot, cut)?;
                if !next.is_late {
                    self.reader.slot = next.slot;
                }
                self.reader.target = (next.slot, next.ticket);
                self.stand_at(next.slot);
            }
            let found = self.step(self.reader.target.0);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Stands at the front of the sequence of a record.
    #[inline]
    fn stand_at(&mut self, slot: Slot) {
        let sequence = self.records.get(slot).sequence;
        self.arrive_at_front(sequence);
        self.open_front(sequence);
        self.prefetch_ahead_of(slot);
    }

    /// Looks for the next packet of the sequence at hand up to `target`; none when it has been read, and then the reader stands
    /// between two sequences.
    #[inline]
    fn step(&mut self, target: Slot) -> Option<Pieces> {
        let sequence = self.reader.sequence;
        let found = self.walk_sequence(sequence, target);
        if found.is_none() {
            self.sequences.release(sequence);
            self.reader.pause();
        }
        found
    }

    /// Looks for the next packet, whatever it takes.
    #[inline(never)]
    fn look_on(&mut self) -> Option<Pieces> {
        let found = self.look_on_ordinary(None);
        if found.is_some() {
            return found;
        }
        loop {
            let slot = self.reader.slot;
            if slot == NONE {
                return None;
            }
            if self.reader.sequence == NONE && !self.records.get(slot).is_padding() {
                self.stand_at(slot);
            }
            if self.reader.sequence != NONE {
                let found = self.step(slot);
                if found.is_some() {
                    return found;
                }
            }
            self.reader.slot = self.records.next(slot).unwrap_or(NONE);
        }
    }
}

/// A read pass whose packets stay valid as long as it does. Dropping it keeps what was not read for the next pass.
pub struct ReadPass<'a> {
    buffer: &'a mut TraceBuffer,
}

impl<'a> ReadPass<'a> {
    /// As [`TraceBuffer::return_loss`].
    pub fn return_loss(&mut self, producer: ProducerId, writer: WriterId, loss: LossReasons) {
        self.buffer.return_loss(producer, writer, loss);
    }
}

impl<'a> Iterator for ReadPass<'a> {
    type Item = Packet<'a>;
    #[inline(always)]
    fn next(&mut self) -> Option<Packet<'a>> {
        let buffer = &mut *self.buffer;
        let pieces = match buffer.next_found(TraceBuffer::look_on)? {
            Found::Pieces(pieces) => pieces,
            Found::Whole(body) => buffer.arena.keep(&[body]),
        };
        // SAFETY: bodies lie in the ring, of which the pass writes headers only, and all lists in the arena, which it does not reset.
        Some(unsafe { Unbound::pieces(pieces, buffer.reader.take_origin()) })
    }
}
