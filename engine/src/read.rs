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

use crate::buffer::TraceBuffer;
use crate::ids::{ClientIdentity, LossReasons, ProducerId, WriterId};
use crate::packet::{Origin, Packet, Unbound};
use crate::records::{NONE, Slot, bit};
use crate::run::Run;
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

/// Where a read pass is.
pub(crate) struct Reader {
    /// The record of the outer walk; [`NONE`] when there is no more, or no pass.
    slot: Slot,
    /// The sequence that is being read up to that record; [`NONE`] between two.
    pub(crate) sequence: u32,
    /// The place in the front of the sequence; nowhere between two.
    pub(crate) at: At,
    /// What comes next from there.
    pub(crate) run: Run,
    /// A packet on its way to who asked for one.
    ///
    /// Packets out of a run, which are in registers, and packets that calls return would meet in memory, where they would be written
    /// in pieces and read back in larger ones, which processors wait for. So calls leave their packet here, and it is taken in the same pieces.
    pub(crate) found: Option<Unbound>,
    /// Whose packets these are, without losses.
    pub(crate) origin: Origin,
    /// In a shard: the record of the outer walk, which stands before `slot` in the order of tickets; and its ticket.
    target: (Slot, u64),
}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            slot: NONE,
            sequence: NONE,
            at: At::NOWHERE,
            run: Run::default(),
            found: None,
            origin: Origin {
                producer_id: ProducerId(0),
                writer_id: WriterId(0),
                identity: ClientIdentity::default(),
                loss: LossReasons::NONE,
            },
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
    }

    /// The record at `gone` goes away.
    pub(crate) fn skip(&mut self, gone: Slot, next: Option<Slot>) {
        if self.slot == gone {
            self.slot = next.unwrap_or(NONE);
        }
        if self.target.0 == gone {
            self.pause();
        }
    }

    /// Ends the pass.
    #[inline]
    pub(crate) fn stop(&mut self) {
        self.slot = NONE;
        self.sequence = NONE;
        self.at.left_bytes = 0;
    }
}

/// Headers are asked for this many records before they are cleared: about the time that memory takes.
const PREFETCH_RECORDS: u32 = 6;

impl TraceBuffer {
    /// To be called before anything is written: a read pass ends, or, in a shard, looks again where it is.
    #[inline]
    pub(crate) fn end_read_pass(&mut self) {
        self.settle();
        if self.tickets.is_some() {
            self.reader.pause();
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
    #[inline]
    pub fn read_next(&mut self) -> Option<Packet<'_>> {
        match self.next_of_run() {
            None => {
                self.arena.reset();
                self.look_on();
                self.found()
            }
            packet => packet,
        }
    }

    /// Starts a read pass whose packets may be held together.
    pub fn read_pass(&mut self) -> ReadPass<'_> {
        self.begin_read();
        ReadPass { buffer: self }
    }

    /// As [`read_next`](Self::read_next), of records with tickets below `cut`; with the ticket of the record at whose turn the packet comes.
    #[inline]
    pub(crate) fn read_next_below(&mut self, cut: u64) -> Option<(u64, Packet<'_>)> {
        let packet = match self.next_of_run() {
            None => {
                self.arena.reset();
                self.look_on_below(cut);
                self.found()?
            }
            Some(packet) => packet,
        };
        Some((self.reader.target.1, packet))
    }

    /// The next packet of the run at hand.
    #[inline(always)]
    fn next_of_run(&mut self) -> Option<Unbound> {
        let body = self.reader.run.take()?;
        // SAFETY: a run's bodies lie in the ring, of which reads write headers only.
        Some(unsafe { Unbound::whole(body, self.reader.origin) })
    }

    /// The packet that was just looked for.
    #[inline(always)]
    fn found(&mut self) -> Option<Unbound> {
        self.reader.found.take().map(Unbound::apart)
    }

    /// Looks for the next packet of records with tickets below `cut`.
    #[inline(never)]
    fn look_on_below(&mut self, cut: u64) {
        if self.last_of_run() {
            return;
        }
        while self.reader.slot != NONE {
            if self.reader.sequence == NONE {
                let Some(next) = self.next_to_read(self.reader.slot, cut) else { return };
                if !next.is_late {
                    self.reader.slot = next.slot;
                }
                self.reader.target = (next.slot, next.ticket);
                self.stand_at(next.slot);
                if self.first_of_run() {
                    return;
                }
            }
            if self.step(self.reader.target.0) {
                return;
            }
        }
    }

    /// Stands at the front of the sequence of a record.
    #[inline]
    fn stand_at(&mut self, slot: Slot) {
        let sequence = self.records.get(slot).sequence;
        self.arrive_at_front(sequence);
        self.open_front(sequence);
        if let Some(offset) = self.records.offset_ahead(slot, PREFETCH_RECORDS) {
            self.ring.prefetch_header(offset);
        }
    }

    /// Begins a run where the reader has just come to stand, and finds its first packet. False if there is no run.
    #[inline]
    fn first_of_run(&mut self) -> bool {
        let listed = self.sequences.get(self.reader.sequence);
        if listed.pending_loss != 0 || listed.stalled_in == self.generation {
            return false;
        }
        self.start_run();
        let Some(body) = self.reader.run.take() else {
            self.settle();
            return false;
        };
        // SAFETY: as in `next_of_run`.
        self.reader.found = Some(unsafe { Unbound::whole(body, self.reader.origin) });
        true
    }

    /// Ends a run, and finds the record's last fragment if it is a packet as those of the run were.
    #[inline]
    fn last_of_run(&mut self) -> bool {
        let size = self.reader.run.last_size();
        self.settle();
        let at = &mut self.reader.at;
        let Some(extent) = size else { return false };
        if at.goes_on {
            return false;
        }
        let body = self.ring.pointer(at.offset + extent.header_bytes as usize);
        let body = std::ptr::slice_from_raw_parts(body, (extent.total_bytes - extent.header_bytes) as usize);
        let slot = at.slot;
        at.left_bytes = 0;
        self.set_unread(slot, 0, bit::STARTED, Mode::Read);
        // SAFETY: as in `next_of_run`.
        self.reader.found = Some(unsafe { Unbound::whole(body, self.reader.origin) });
        true
    }

    /// Looks for the next packet of the sequence at hand up to `target`; false when it has been reached, and then the reader stands
    /// between two sequences.
    #[inline]
    fn step(&mut self, target: Slot) -> bool {
        let sequence = self.reader.sequence;
        if self.walk_sequence(sequence, target) {
            self.sequences.get_mut(sequence).pending_loss = 0;
            self.start_run();
            return true;
        }
        self.sequences.release(sequence);
        self.reader.pause();
        false
    }

    /// Looks for the next packet, whatever it takes.
    #[inline(never)]
    fn look_on(&mut self) {
        if self.last_of_run() {
            return;
        }
        loop {
            let slot = self.reader.slot;
            if slot == NONE {
                return;
            }
            if self.reader.sequence == NONE {
                if self.records.get(slot).is_padding() {
                    self.reader.slot = self.records.next(slot).unwrap_or(NONE);
                    continue;
                }
                self.stand_at(slot);
                if self.first_of_run() {
                    return;
                }
            }
            if self.step(slot) {
                return;
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

    fn next(&mut self) -> Option<Packet<'a>> {
        // The buffer is borrowed for 'a by this pass, whose methods write headers and sequences only and keep all lists in the arena.
        match self.buffer.next_of_run() {
            None => {
                self.buffer.look_on();
                self.buffer.found()
            }
            packet => packet,
        }
    }
}
