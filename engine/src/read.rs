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
use crate::ids::{LossReasons, ProducerId, WriterId};
use crate::packet::{Packet, RawPacket};
use crate::records::{NONE, Slot};
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
#[derive(Clone, Debug)]
pub(crate) struct Reader {
    /// The record of the outer walk; [`NONE`] when there is no more, or no pass.
    slot: Slot,
    /// The sequence that is being read up to that record; [`NONE`] between two.
    sequence: u32,
    /// The place in the front of the sequence.
    at: At,
}

impl Default for Reader {
    fn default() -> Reader {
        Reader { slot: NONE, sequence: NONE, at: At::default() }
    }
}

impl Reader {
    /// Ends the pass.
    #[inline]
    pub(crate) fn stop(&mut self) {
        self.slot = NONE;
        self.sequence = NONE;
    }
}

impl TraceBuffer {
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

    fn read_raw(&mut self) -> Option<RawPacket> {
        loop {
            let slot = self.reader.slot;
            if slot == NONE {
                return None;
            }
            if self.reader.sequence == NONE {
                let record = self.records.get(slot);
                if record.is_padding() {
                    self.reader.slot = self.records.next(slot).unwrap_or(NONE);
                    continue;
                }
                let sequence = record.sequence;
                self.reader.sequence = sequence;
                self.arrive_at_front(sequence);
                self.reader.at = self.open_front(sequence);
            }
            let sequence = self.reader.sequence;
            let mut at = self.reader.at;
            if let Some(mut packet) = self.walk_sequence(sequence, slot, &mut at) {
                self.reader.at = at;
                let pending = &mut self.sequences.get_mut(sequence).pending_loss;
                packet.loss = LossReasons(std::mem::take(pending).into());
                return Some(packet);
            }
            self.sequences.release(sequence);
            self.reader.sequence = NONE;
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
