//! One pass over what a session has, and the consumer's calls that make one.

use watershed_simd::fields;

use crate::buffers::BufferTable;
use crate::clock::ClockReadings;
use crate::ids::{ConsumerId, SessionId};
use crate::limits::{READ_FRAMED_BYTES, READ_PACKETS_BYTES};
use crate::output::ReadProgress;
use crate::read::{FramedSink, PacketBatch, RULES, Sink, Stamp};
use crate::service::Service;
use crate::session::Session;

/// Why a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassEnd {
    /// Enough bytes; there may be more to read.
    Threshold,
    /// Everything that can be read was.
    Drained,
    /// The sink had no room for the next packet, which is lost.
    NoRoom,
}

impl Service {
    /// Reads packets of the consumer's session: about 32 KiB of them, in `batch`, which is cleared first.
    ///
    /// Reading takes packets out of the buffers. It may be done while the session records, and as often as
    /// one likes.
    pub fn read_packets(
        &mut self,
        consumer_id: ConsumerId,
        batch: &mut PacketBatch,
        now: &ClockReadings,
    ) -> ReadProgress {
        batch.clear();
        self.read(consumer_id, batch, READ_PACKETS_BYTES, now)
    }

    /// Reads packets as they lie in a trace file: about 1 MiB of them, appended to `block`. What one gets by
    /// calling it until [`ReadProgress::Done`] is a whole trace.
    pub fn read_framed(
        &mut self,
        consumer_id: ConsumerId,
        block: &mut Vec<u8>,
        now: &ClockReadings,
    ) -> ReadProgress {
        self.read(consumer_id, &mut FramedSink::new(block, None), READ_FRAMED_BYTES, now)
    }

    fn read(
        &mut self,
        consumer_id: ConsumerId,
        sink: &mut impl Sink,
        threshold_bytes: usize,
        now: &ClockReadings,
    ) -> ReadProgress {
        let Some(session_id) = self.session_of(consumer_id) else { return ReadProgress::Nothing };
        if self.sessions.get(&session_id).is_none_or(Session::file_is_open) {
            return ReadProgress::Nothing;
        }
        match self.read_pass(session_id, sink, threshold_bytes, now) {
            PassEnd::Threshold => ReadProgress::More,
            PassEnd::Drained | PassEnd::NoRoom => ReadProgress::Done,
        }
    }

    pub(crate) fn read_pass(
        &mut self,
        session_id: SessionId,
        sink: &mut impl Sink,
        threshold_bytes: usize,
        now: &ClockReadings,
    ) -> PassEnd {
        if !self.emit_before_data(session_id, sink, now) {
            return PassEnd::NoRoom;
        }
        let Some(session) = self.sessions.get_mut(&session_id) else { return PassEnd::Drained };
        for buffer_index in 0..session.buffers.len() {
            if sink.bytes() >= threshold_bytes {
                return PassEnd::Threshold;
            }
            let end = read_buffer(&mut self.buffers, session, buffer_index, sink, threshold_bytes);
            if end != PassEnd::Drained {
                return end;
            }
        }
        if sink.bytes() >= threshold_bytes {
            return PassEnd::Threshold;
        }
        if self.emit_after_data(session_id, sink, now) { PassEnd::Drained } else { PassEnd::NoRoom }
    }
}

fn read_buffer(
    buffers: &mut BufferTable,
    session: &mut Session,
    buffer_index: usize,
    sink: &mut impl Sink,
    threshold_bytes: usize,
) -> PassEnd {
    let Some(buffer) = session.buffers.get(buffer_index).and_then(|id| buffers.get_mut(*id)) else {
        return PassEnd::Drained;
    };
    let mut with_loss = Stamp::EMPTY;
    buffer.trace.begin_read();
    while let Some(packet) = buffer.trace.read_next() {
        let sequence = session.sequences.get_or_add(packet.producer_id, packet.writer_id, packet.identity);
        let slices = packet.slices();
        if fields::scan(slices, &RULES).is_err() {
            session.counters.invalid_packets += 1;
            sequence.keep_loss(packet.loss);
            continue;
        }
        if !sink.packet(slices, sequence.stamp(packet.loss, &mut with_loss)) {
            return PassEnd::NoRoom;
        }
        if sink.bytes() >= threshold_bytes {
            return PassEnd::Threshold;
        }
    }
    PassEnd::Drained
}
