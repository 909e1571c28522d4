//! One pass over a trace: every packet is looked at once and counted; only what the report needs is
//! kept.

use watershed_wire::config::TraceConfig;
use watershed_wire::packet::{Envelope, Payload, payload_is_message};
use watershed_wire::protos::{
    BuiltinClock, ClockSnapshot, FtraceStats, ProcessTree, SystemInfo, TracePacketDefaults, TraceProvenance,
    TraceStats, TraceUuid, TracingServiceEvent, TrackDescriptor,
};
use watershed_wire::raw::{Fields, Malformed};
use watershed_wire::reader::RawPacket;
use watershed_wire::{Decode as _, Encode as _};

use super::clocks::Clocks;
use super::commands::Commands;
use super::kernel::KernelLosses;
use super::processes::Processes;
use super::sequences::Sequences;
use super::session::Session;
use super::tally::{Kind, Kinds, Span, Tally};
use super::timeline::Timeline;
use super::top::Top;

/// Fields of `TracePacket`'s oneof `data` that are read.
pub(super) mod number {
    pub(in crate::inspect) const FTRACE_EVENTS: u32 = 1;
    pub(in crate::inspect) const PROCESS_TREE: u32 = 2;
    pub(in crate::inspect) const CLOCK_SNAPSHOT: u32 = 6;
    pub(in crate::inspect) const TRACK_EVENT: u32 = 11;
    pub(in crate::inspect) const TRACE_CONFIG: u32 = 33;
    pub(in crate::inspect) const TRIGGER: u32 = 46;
    pub(in crate::inspect) const CLONE_SNAPSHOT_TRIGGER: u32 = 113;
    pub(in crate::inspect) const EXTENSION_DESCRIPTOR: u32 = 72;
    pub(in crate::inspect) const FTRACE_STATS: u32 = 34;
    pub(in crate::inspect) const TRACE_STATS: u32 = 35;
    pub(in crate::inspect) const SYNCHRONIZATION_MARKER: u32 = 36;
    pub(in crate::inspect) const SYSTEM_INFO: u32 = 45;
    pub(in crate::inspect) const TRACK_DESCRIPTOR: u32 = 60;
    pub(in crate::inspect) const SERVICE_EVENT: u32 = 69;
    pub(in crate::inspect) const TRACE_UUID: u32 = 89;
    pub(in crate::inspect) const TRACE_PROVENANCE: u32 = 124;
}

/// What is known after some packets.
#[derive(Debug, Default)]
pub(crate) struct Survey {
    pub(super) all: Tally,
    pub(super) kinds: Kinds,
    pub(super) sequences: Sequences,
    pub(super) processes: Processes,
    pub(super) commands: Commands,
    pub(super) kernel: KernelLosses,
    pub(super) session: Session,
    /// Where scheduling is wanted.
    pub(super) top: Option<Box<Top>>,
    /// Where a picture is wanted.
    pub(super) timeline: Option<Box<Timeline>>,
    pub(super) clocks: Clocks,
    pub(super) span: Span,
    /// Packets with a timestamp of a clock that no snapshot has connected to the primary one.
    pub(super) unplaced: u64,
    /// Packets that should have been readable and were not, and the place of the first.
    pub(super) undecodable: u64,
    pub(super) undecodable_offset_bytes: Option<u64>,
    /// Packets that held others, and the place of the last.
    pub(super) compressed: u64,
    compressed_offset_bytes: Option<u64>,
}

impl Survey {
    pub(super) fn new(wants_scheduling: bool) -> Self {
        Survey { top: wants_scheduling.then(Box::default), ..Survey::default() }
    }

    /// Takes the next packet of the session, whose envelope this is.
    pub(super) fn take(&mut self, packet: RawPacket<'_>, envelope: &Envelope<'_>) {
        self.all.add(packet.bytes);
        self.kinds.add(Kind::of(packet.bytes, envelope), packet.bytes);
        if packet.offset_inflated_bytes.is_some() && self.compressed_offset_bytes != Some(packet.offset_bytes)
        {
            self.compressed += 1;
            self.compressed_offset_bytes = Some(packet.offset_bytes);
        }
        if let Some(top) = &mut self.top {
            top.take_envelope(envelope);
        }
        if let Some(timeline) = &mut self.timeline {
            timeline.take_packet(packet.bytes, envelope);
        }
        let placed = self.take_time(packet.bytes, envelope);
        let at_ns = placed.as_ref().ok().copied().flatten();
        let taken = envelope.payload.map_or(Ok(()), |payload| self.take_payload(envelope, payload, at_ns));
        if placed.and(taken).is_err() {
            self.undecodable += 1;
            self.undecodable_offset_bytes.get_or_insert(packet.offset_bytes);
        }
    }

    /// About what the report of this session will take.
    pub(super) fn kept_size_bytes(&self) -> usize {
        let session = &self.session;
        // As text, and as bytes.
        let config = session.config.as_ref().map_or(0, |config| 4 * config.bytes().len());
        let info = session.system_info.as_ref().map_or(0, SystemInfo::encoded_len);
        let buffers = session.stats.as_ref().map_or(0, |stats| stats.buffer_stats.len());
        let commands = self.commands.list().iter().map(|command| command.command_line.len()).sum::<usize>();
        config
            + info
            + commands
            + 512 * (self.sequences.len() + self.kernel.len() + buffers + self.kinds.len() + 16)
    }

    /// Places the packet in time, of the primary clock, if it has one; a snapshot or default in the
    /// packet itself counts for it already.
    fn take_time(&mut self, packet: &[u8], envelope: &Envelope<'_>) -> Result<Option<u64>, Undecodable> {
        let mut sequence = self.sequences.of(packet, envelope);
        if let Some(payload) = envelope.payload
            && payload.number == number::CLOCK_SNAPSHOT
            && let Ok(snapshot) = ClockSnapshot::decode(payload.bytes)
        {
            let clocks = sequence.as_mut().map(|sequence| &mut sequence.clocks);
            self.clocks.take(&snapshot, clocks);
        }
        let defaults = envelope.defaults.map(TracePacketDefaults::decode).transpose();
        if let Some(sequence) = &mut sequence
            && let Ok(Some(defaults)) = &defaults
        {
            sequence.default_clock_id = defaults.timestamp_clock_id;
        }
        let Some(timestamp) = envelope.timestamp else {
            return Ok(defaults.map(|_| None)?);
        };
        let default_clock_id = sequence.as_ref().and_then(|sequence| sequence.default_clock_id);
        let clock_id_is_default = envelope.timestamp_clock_id.is_none();
        let clock_id = envelope.timestamp_clock_id.or(default_clock_id).unwrap_or(self.clocks.primary());
        let placed = match &mut sequence {
            Some(sequence) if clock_id_is_default && sequence.lacks_state(envelope) => None,
            Some(sequence) => sequence.clocks.place(&self.clocks, clock_id, timestamp),
            None => self.clocks.place(clock_id, timestamp),
        };
        match placed {
            Some(ns) => {
                self.span.add(ns);
                if let Some(sequence) = sequence {
                    sequence.span.add(ns);
                }
            }
            None => self.unplaced += 1,
        }
        Ok(defaults.map(|_| placed)?)
    }

    fn take_payload(
        &mut self,
        envelope: &Envelope<'_>,
        payload: Payload<'_>,
        at_ns: Option<u64>,
    ) -> Result<(), Undecodable> {
        let bytes = payload.bytes;
        let is_boottime = self.clocks.primary() == BuiltinClock::Boottime as u32;
        let boottime_ns = at_ns.filter(|_| is_boottime);
        match payload.number {
            number::SYNCHRONIZATION_MARKER => self.session.sync_markers += 1,
            number::TRACE_CONFIG => self.session.config = Some(TraceConfig::from_binary(bytes.to_vec())?),
            number::TRACE_STATS => self.session.take_stats(TraceStats::decode(bytes)?),
            number::SYSTEM_INFO => {
                let info = SystemInfo::decode(bytes)?;
                // Other machines of the session send theirs too.
                if envelope.machine_id.is_none() {
                    self.session.system_info = Some(info);
                }
            }
            number::SERVICE_EVENT => self.session.take_event(TracingServiceEvent::decode(bytes)?),
            number::TRACE_UUID => self.session.uuid = Some(TraceUuid::decode(bytes)?),
            number::TRACE_PROVENANCE => self.session.take_provenance(&TraceProvenance::decode(bytes)?),
            number::PROCESS_TREE => {
                let tree = ProcessTree::decode(bytes)?;
                if let Some(top) = &mut self.top {
                    top.take_tree(envelope.machine_id, boottime_ns, &tree);
                }
                if let Some(timeline) = &mut self.timeline {
                    timeline.take_tree(envelope, &tree);
                }
                self.processes.take_tree(envelope.machine_id, &tree);
            }
            number::TRACK_DESCRIPTOR => {
                let track = TrackDescriptor::decode(bytes)?;
                if let Some(top) = &mut self.top {
                    top.take_track(envelope.machine_id, boottime_ns, &track);
                }
                if let Some(timeline) = &mut self.timeline {
                    timeline.take_track(envelope, &track);
                }
                self.processes.take_track(envelope.machine_id, &track);
            }
            number::FTRACE_EVENTS => {
                let begins_here = self.sequences.begins_here(envelope.sequence_id);
                self.kernel.take_bundle(envelope, bytes, begins_here)?;
                if let Some(top) = &mut self.top {
                    top.take_bundle(envelope, bytes)?;
                }
                if let Some(timeline) = self.timeline.as_mut().filter(|_| is_boottime) {
                    timeline.take_bundle(envelope, bytes)?;
                }
            }
            number::FTRACE_STATS => {
                let begins_here = self.sequences.begins_here(envelope.sequence_id);
                self.kernel.take_stats(envelope, &FtraceStats::decode(bytes)?, begins_here);
            }
            number::TRACK_EVENT if Fields::new(bytes).all(|field| field.is_ok()) => {
                self.commands.take(bytes, at_ns);
                if let Some(timeline) = &mut self.timeline {
                    timeline.take_event(envelope, bytes, at_ns);
                }
            }
            // Taken with the time; here only to be counted if it cannot be decoded.
            number::CLOCK_SNAPSHOT => drop(ClockSnapshot::decode(bytes)?),
            // Nothing in it is needed here; whether there are fields at all is soon seen.
            _ if payload_is_message(payload.number) && !Fields::new(bytes).all(|field| field.is_ok()) => {
                return Err(Undecodable);
            }
            _ => {}
        }
        Ok(())
    }
}

/// The contents of a packet are not what its kind promises.
struct Undecodable;

impl From<watershed_wire::DecodeError> for Undecodable {
    fn from(_: watershed_wire::DecodeError) -> Self {
        Undecodable
    }
}

impl From<Malformed> for Undecodable {
    fn from(_: Malformed) -> Self {
        Undecodable
    }
}

impl From<watershed_wire::config::ConfigError> for Undecodable {
    fn from(_: watershed_wire::config::ConfigError) -> Self {
        Undecodable
    }
}
