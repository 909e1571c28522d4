//! One pass over what a session has, and the consumer's calls that make one.

use std::io::IoSlice;
use std::sync::Arc;

use crate::clock::ClockReadings;
use crate::ids::{ConsumerId, SessionId};
use crate::limits::{READ_FRAMED_BYTES, READ_PACKETS_BYTES, WRITE_TRACE_BYTES};
use crate::output::ReadProgress;
use crate::read::{PacketBatch, PassSource, Sink, TraceSink, Unread, WriteTrace};
use crate::service::Service;
use crate::session::Session;

/// Why a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PassEnd {
    /// Enough bytes; there may be more to read.
    Threshold,
    /// Everything that can be read was.
    Drained,
    /// The sink had no room for the next packet, or failed. A packet for which there is no room
    /// stays in its buffer, one of the service's own is lost.
    NoRoom,
}

impl Service {
    /// Reads packets of the consumer's session: about 32 KiB of them, in `batch`, which is cleared
    /// first.
    ///
    /// Reading takes packets out of the buffers. It may be done while the session records, and as
    /// often as one likes.
    pub fn read_packets(
        &mut self,
        consumer_id: ConsumerId,
        batch: &mut PacketBatch,
        now: &ClockReadings,
    ) -> ReadProgress {
        batch.clear();
        self.read(consumer_id, batch, READ_PACKETS_BYTES, now)
    }

    /// Reads packets as they lie in a trace file: about 1 MiB of them, appended to `block`. What
    /// one gets by calling it until [`ReadProgress::Done`] is a whole trace.
    pub fn read_framed(
        &mut self,
        consumer_id: ConsumerId,
        block: &mut Vec<u8>,
        now: &ClockReadings,
    ) -> ReadProgress {
        let mut append = |slices: &[IoSlice<'_>]| {
            slices.iter().for_each(|slice| block.extend_from_slice(slice));
            Ok(())
        };
        let mut sink = TraceSink::new(&mut append, None);
        let progress = self.read(consumer_id, &mut sink, READ_FRAMED_BYTES, now);
        sink.finish().map_or(ReadProgress::Done, |_| progress)
    }

    /// Writes packets as they lie in a trace file: about 32 MiB of them, to `out`, which gets at
    /// most about 1 MiB in one slice unless a packet is larger. What is written until
    /// [`ReadProgress::Done`] is a whole trace. While `out` writes, threads of the shell's pool
    /// extract what comes next.
    ///
    /// # Errors
    /// The first of `out`. What it was given then is gone, what comes behind it stays in the
    /// buffers.
    pub fn write_trace(
        &mut self,
        consumer_id: ConsumerId,
        out: &mut WriteTrace<'_>,
        now: &ClockReadings,
    ) -> Result<ReadProgress, String> {
        let mut sink = TraceSink::new(out, None);
        let progress = self.read(consumer_id, &mut sink, WRITE_TRACE_BYTES, now);
        sink.finish().map(|_| progress)
    }

    /// Takes what is left out of the session's buffers and counts it: for who wants to know what a
    /// file had no room for.
    pub fn take_unread(&mut self, consumer_id: ConsumerId, now: &ClockReadings) -> Unread {
        let mut all = Unread::default();
        loop {
            let mut some = Unread::default();
            let progress = self.read(consumer_id, &mut some, WRITE_TRACE_BYTES, now);
            all.packets += some.packets;
            all.bytes += some.bytes;
            if progress != ReadProgress::More {
                return all;
            }
        }
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

    fn read_pass(
        &mut self,
        session_id: SessionId,
        sink: &mut impl Sink,
        threshold_bytes: usize,
        now: &ClockReadings,
    ) -> PassEnd {
        self.settle(session_id);
        let looked = if self.tells_of_sequences(session_id) { self.look_now(session_id) } else { Vec::new() };
        if !self.emit_before_data(session_id, sink, &looked, now) {
            return PassEnd::NoRoom;
        }
        let Some(source) = self.pass_source(session_id) else { return PassEnd::Drained };
        let passed = source.read(sink, threshold_bytes);
        self.note_invalid(session_id, passed.num_invalid);
        if passed.end != PassEnd::Drained {
            return passed.end;
        }
        let looked = self.tells_statistics(session_id).then(|| self.look_now(session_id));
        match self.emit_after_data(session_id, sink, looked, now) {
            true => PassEnd::Drained,
            false => PassEnd::NoRoom,
        }
    }

    /// Whether the next pass begins with what is told once.
    pub(crate) fn tells_of_sequences(&self, session_id: SessionId) -> bool {
        let session = self.sessions.get(&session_id);
        session.is_some_and(|session| !session.pending.once_done && !session.waits_for_trigger())
    }

    /// Whether the next pass that has read everything ends with statistics.
    pub(crate) fn tells_statistics(&self, session_id: SessionId) -> bool {
        let session = self.sessions.get(&session_id);
        session.is_some_and(|session| session.pending.stats && !session.waits_for_trigger())
    }

    /// Everything that the session's buffers have now; `None` if it waits for a trigger. Commits
    /// that wait for room must have been [settled](Self::settle).
    pub(crate) fn pass_source(&self, session_id: SessionId) -> Option<PassSource> {
        let session = self.sessions.get(&session_id).filter(|session| !session.waits_for_trigger())?;
        let buffers = session.buffers.iter().filter_map(|id| self.buffers.get(*id));
        Some(PassSource {
            buffers: buffers.map(|buffer| (Arc::clone(&buffer.trace), buffer.trace.cut())).collect(),
            // Behind the cuts: a sequence is noted before its first chunk has a ticket.
            sequences: session.sequences.table(),
            filtering: Arc::clone(&session.filtering),
            pool: Arc::clone(&self.read_pool),
        })
    }

    pub(crate) fn note_invalid(&mut self, session_id: SessionId, num_packets: u64) {
        if let Some(session) = self.sessions.get_mut(&session_id) {
            session.counters.invalid_packets += num_packets;
        }
    }
}
