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
use crate::packet::{Bodies, Packet, RawPacket};
use crate::records::{NONE, Slot};
use crate::sizes;
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
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reader {
    /// The record of the outer walk; [`NONE`] when there is no more, or no pass.
    slot: Slot,
    /// The sequence that is being read up to that record; [`NONE`] between two.
    sequence: u32,
    /// The place in the front of the sequence; nowhere between two.
    at: At,
    /// Whose packets these are.
    producer_id: ProducerId,
    writer_id: WriterId,
    identity: ClientIdentity,
    /// In a shard: the record of the outer walk, which stands before `slot` in the order of tickets; and its ticket.
    target: (Slot, u64),
}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            slot: NONE,
            sequence: NONE,
            at: At::NOWHERE,
            producer_id: ProducerId(0),
            writer_id: WriterId(0),
            identity: ClientIdentity::default(),
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
        if self.tickets.is_some() {
            self.reader.pause();
        } else {
            self.reader.stop();
        }
    }

    /// Starts a read pass at the oldest data. Sequences that stalled are tried again.
    pub fn begin_read(&mut self) {
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
        self.arena.reset();
        let packet = self.read_raw()?;
        // SAFETY: ring and arena do not change while the buffer is borrowed by the packet.
        Some(unsafe { packet.for_lifetime() })
    }

    /// Starts a read pass whose packets may be held together.
    pub fn read_pass(&mut self) -> ReadPass<'_> {
        self.begin_read();
        ReadPass { buffer: self }
    }

    /// As [`read_next`](Self::read_next), of records with tickets below `cut`; with the ticket of the record at whose turn the packet comes.
    #[inline]
    pub(crate) fn read_next_below(&mut self, cut: u64) -> Option<(u64, Packet<'_>)> {
        self.arena.reset();
        let packet = match self.next_plain() {
            None => self.read_on_below(cut)?,
            Some(packet) => packet,
        };
        // SAFETY: ring and arena do not change while the buffer is borrowed by the packet.
        Some((self.reader.target.1, unsafe { packet.for_lifetime() }))
    }

    #[inline(never)]
    fn read_on_below(&mut self, cut: u64) -> Option<RawPacket> {
        while self.reader.slot != NONE {
            if self.reader.sequence == NONE {
                let next = self.next_to_read(self.reader.slot, cut)?;
                if !next.is_late {
                    self.reader.slot = next.slot;
                }
                self.reader.target = (next.slot, next.ticket);
                self.stand_at(next.slot);
            }
            if let Some(packet) = self.step(self.reader.target.0) {
                return Some(packet);
            }
        }
        None
    }

    /// Stands at the front of the sequence of a record.
    #[inline]
    fn stand_at(&mut self, slot: Slot) {
        let sequence = self.records.get(slot).sequence;
        self.reader.sequence = sequence;
        self.arrive_at_front(sequence);
        self.reader.at = self.open_front(sequence);
        if let Some(offset) = self.records.offset_ahead(slot, PREFETCH_RECORDS) {
            self.ring.prefetch_header(offset);
        }
    }

    /// The next packet of the sequence at hand up to `target`; none when it has been reached, and then the reader stands between two
    /// sequences.
    #[inline]
    fn step(&mut self, target: Slot) -> Option<RawPacket> {
        let sequence = self.reader.sequence;
        let mut at = self.reader.at;
        let packet = self.walk_sequence(sequence, target, &mut at);
        self.reader.at = at;
        let Some(mut packet) = packet else {
            self.sequences.release(sequence);
            self.reader.pause();
            return None;
        };
        let pending = &mut self.sequences.get_mut(sequence).pending_loss;
        packet.loss = LossReasons(std::mem::take(pending).into());
        let RawPacket { producer_id, writer_id, identity, .. } = packet;
        self.reader = Reader { producer_id, writer_id, identity, ..self.reader };
        Some(packet)
    }

    #[inline]
    fn read_raw(&mut self) -> Option<RawPacket> {
        match self.next_plain() {
            None => self.read_on(),
            packet => packet,
        }
    }

    /// The next fragment, if it is a packet by itself, not empty, of an ordinary size, and its size is kept: nearly every one.
    #[inline]
    fn next_plain(&mut self) -> Option<RawPacket> {
        let at = &mut self.reader.at;
        let extent = sizes::first_narrow(self.records.block_sizes(at.slot, at.sizes_at))?;
        let total = extent.total_bytes as usize;
        let left_bytes = at.left_bytes.checked_sub(total)?;
        if at.continues || extent.header_bytes == extent.total_bytes || (at.goes_on && left_bytes == 0) {
            return None;
        }
        let start = at.offset + extent.header_bytes as usize;
        let body =
            std::ptr::slice_from_raw_parts(self.ring.pointer(start), total - extent.header_bytes as usize);
        at.left_bytes = left_bytes;
        at.offset += total;
        at.sizes_at += 1;
        let slot = at.slot;
        self.set_unread(slot, left_bytes as u16, Mode::Read);
        let pending = &mut self.sequences.get_mut(self.reader.sequence).pending_loss;
        let loss = LossReasons(std::mem::take(pending).into());
        let Reader { producer_id, writer_id, identity, .. } = self.reader;
        Some(RawPacket { bodies: Bodies::One(body), producer_id, writer_id, identity, loss })
    }

    /// The next packet, whatever it takes.
    #[inline(never)]
    fn read_on(&mut self) -> Option<RawPacket> {
        loop {
            let slot = self.reader.slot;
            if slot == NONE {
                return None;
            }
            if self.reader.sequence == NONE {
                let record = *self.records.get(slot);
                if record.is_padding() {
                    self.reader.slot = self.records.next(slot).unwrap_or(NONE);
                    continue;
                }
                self.stand_at(slot);
            }
            if let Some(packet) = self.step(slot) {
                return Some(packet);
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
        let packet = self.buffer.read_raw()?;
        // SAFETY: the buffer is borrowed for 'a by this pass, whose methods write headers and sequences only and keep all
        // lists in the arena.
        Some(unsafe { packet.for_lifetime() })
    }
}
