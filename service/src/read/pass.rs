//! Reads for shells that may wait: each call is steps that are begun, done and ended at once.

use std::io::IoSlice;
use std::sync::Arc;

use crate::clock::ClockReadings;
use crate::ids::{ConsumerId, SessionId};
use crate::limits::{READ_FRAMED_BYTES, WRITE_TRACE_BYTES};
use crate::output::ReadProgress;
use crate::read::step::{ReadBegun, StepEnd};
use crate::read::{PassSource, Sink, TraceSink, Unread, WriteTrace};
use crate::service::Service;

/// Why a pass over the buffers ended.
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
    /// Reads packets as they lie in a trace file: about 1 MiB of them, appended to `block`. What
    /// one gets by calling it until [`ReadProgress::Done`] is a whole trace.
    ///
    /// Reading takes packets out of the buffers. It may be done while the session records, and as
    /// often as one likes.
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

    /// Steps until the sink has enough, each done at once.
    fn read(
        &mut self,
        consumer_id: ConsumerId,
        sink: &mut impl Sink,
        threshold_bytes: usize,
        now: &ClockReadings,
    ) -> ReadProgress {
        self.handle_read_buffers(consumer_id);
        loop {
            let ReadBegun::Step(step) = self.begin_read(consumer_id, now) else {
                return ReadProgress::Nothing;
            };
            let (session_id, ran) = (step.session_id, step.run_into(sink, threshold_bytes));
            let progress = self.end_read_step(session_id, ran, now);
            if ran.end != StepEnd::Pass(PassEnd::Drained) {
                return progress;
            }
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
