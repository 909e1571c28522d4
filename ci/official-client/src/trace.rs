//! A trace, as far as the scenarios look at it.

use std::collections::BTreeMap;

use prost::Message as _;
use watershed_wire::protos::debug_annotation::Value;
use watershed_wire::protos::trace_packet::{Data, OptionalTrustedPacketSequenceId, OptionalTrustedUid};
use watershed_wire::protos::{TestEvent, TracePacket, TraceStats, TrackEvent};
use watershed_wire::reader::packets;

use crate::producer::strings;

/// A numbered packet or track event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Event {
    pub(crate) thread: u64,
    pub(crate) number: u32,
    /// What `previous_packet_dropped` says of the losses before it on its sequence, behind the
    /// event that was last read: 0, or bits of which 1 is always set.
    pub(crate) loss_bits: u32,
}

/// Which writer a packet comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Writer {
    pub(crate) sequence_id: u32,
    pub(crate) pid: i32,
    pub(crate) uid: i32,
}

#[derive(Debug, Default)]
pub(crate) struct Trace {
    /// In the order of the trace.
    pub(crate) numbered: BTreeMap<Writer, Vec<Event>>,
    pub(crate) track_events: BTreeMap<Writer, Vec<Event>>,
    /// Packets of producers that say that one before them was lost.
    pub(crate) loss_flags: usize,
    pub(crate) stats: TraceStats,
    /// Names of the triggers that the session has received, in order.
    pub(crate) triggers: Vec<String>,
    /// Of a clone: the one for which it was made.
    pub(crate) cloned_for: Vec<String>,
}

impl Trace {
    /// Decodes a trace; it must be whole.
    pub(crate) fn decode(bytes: &[u8]) -> Trace {
        let mut trace = Trace::default();
        let mut pending_loss = BTreeMap::new();
        for packet in packets(bytes) {
            let packet = packet.expect("the trace is not damaged");
            let packet = TracePacket::decode(&packet[..]).expect("packets are whole");
            trace.add(&packet, &mut pending_loss);
        }
        trace
    }

    fn add(&mut self, packet: &TracePacket, pending_loss: &mut BTreeMap<Writer, u32>) {
        let Some(OptionalTrustedPacketSequenceId::TrustedPacketSequenceId(sequence_id)) =
            packet.optional_trusted_packet_sequence_id
        else {
            panic!("a packet without sequence");
        };
        if let Some(Data::TraceStats(stats)) = &packet.data {
            self.stats = stats.clone();
        }
        match &packet.data {
            Some(Data::Trigger(trigger)) => self.triggers.push(trigger.trigger_name().to_owned()),
            Some(Data::CloneSnapshotTrigger(trigger)) => {
                self.cloned_for.push(trigger.trigger_name().to_owned());
            }
            _ => {}
        }
        // The service's own packets.
        let Some(pid) = packet.trusted_pid else { return };
        let Some(OptionalTrustedUid::TrustedUid(uid)) = packet.optional_trusted_uid else {
            panic!("a packet without user");
        };
        let writer = Writer { sequence_id, pid, uid };
        // The first packet of a writer may say so too: nothing of it was read before.
        let is_first = packet.first_packet_on_sequence();
        let loss_bits = if is_first { 0 } else { packet.previous_packet_dropped() };
        self.loss_flags += usize::from(loss_bits != 0);
        let pending = pending_loss.entry(writer).or_default();
        *pending |= loss_bits;
        let (events, (thread, number)) = match &packet.data {
            Some(Data::ForTesting(event)) => (&mut self.numbered, numbered(event)),
            Some(Data::TrackEvent(event)) => (&mut self.track_events, track_event(event)),
            _ => return,
        };
        let loss_bits = std::mem::take(pending);
        events.entry(writer).or_default().push(Event { thread, number, loss_bits });
    }

    /// Every writer's events have one thread and the numbers from 0 to `count`, in order; returns
    /// the threads.
    pub(crate) fn assert_complete(events: &BTreeMap<Writer, Vec<Event>>, threads: u64, count: u32) {
        let mut seen = Vec::new();
        for (writer, events) in events {
            assert_eq!(writer.pid, std::process::id().cast_signed(), "{writer:?}");
            assert_eq!(writer.uid, own_uid(), "{writer:?}");
            let numbers: Vec<u32> = events.iter().map(|event| event.number).collect();
            assert!(numbers.iter().copied().eq(0..count), "{writer:?} has the events {numbers:?}");
            let thread = events[0].thread;
            assert!(events.iter().all(|event| event.thread == thread), "{writer:?}: {events:?}");
            seen.push(thread);
        }
        seen.sort_unstable();
        assert!(seen.iter().copied().eq(0..threads), "the threads {seen:?} were recorded");
    }

    /// Neither a packet nor the statistics tell of a loss or of an error.
    ///
    /// `readaheads_failed` is neither: a read that finds a sequence whose last packet waits for a
    /// patch or its next chunk counts one, and a session that writes a file reads in between.
    pub(crate) fn assert_lossless(&self) {
        assert_eq!(self.loss_flags, 0);
        let stats = &self.stats;
        assert!(!stats.buffer_stats.is_empty(), "the trace has statistics: {stats:?}");
        let none = [stats.chunks_discarded(), stats.patches_discarded(), stats.invalid_packets()];
        assert_eq!(none, [0; 3], "{stats:?}");
        for buffer in &stats.buffer_stats {
            let none = [
                buffer.trace_writer_packet_loss(),
                buffer.chunks_discarded(),
                buffer.chunks_overwritten(),
                buffer.patches_failed(),
                buffer.abi_violations(),
            ];
            assert_eq!(none, [0; 5], "{buffer:?}");
        }
    }

    /// Losses of writers that the statistics of all buffers tell of.
    pub(crate) fn writer_losses(&self) -> u64 {
        self.stats.buffer_stats.iter().map(|buffer| buffer.trace_writer_packet_loss()).sum()
    }
}

pub(crate) fn own_uid() -> i32 {
    watershed_shell::machine::identity().uid
}

/// Thread and number of a numbered packet, whose strings must be whole.
fn numbered(event: &TestEvent) -> (u64, u32) {
    let (thread, number) = (event.counter(), event.seq_value());
    let found = event.payload.as_ref().and_then(|payload| payload.nested.first());
    let found = found.map_or(&[][..], |inner| &inner.str);
    assert!(found == strings(thread, number), "thread {thread}: packet {number} has other strings");
    (thread, number)
}

fn track_event(event: &TrackEvent) -> (u64, u32) {
    let argument = |index: usize| match event.debug_annotations.get(index).map(|arg| &arg.value) {
        Some(Some(Value::UintValue(value))) => *value,
        other => panic!("argument {index} is {other:?}"),
    };
    (argument(0), argument(1) as u32)
}
