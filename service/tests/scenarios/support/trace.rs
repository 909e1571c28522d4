//! What was read, as messages.

use prost::Message;
use watershed_wire::protos;
use watershed_wire::protos::trace_packet::{Data, OptionalTrustedPacketSequenceId, OptionalTrustedUid};
use watershed_wire::protos::tracing_service_event::EventType;

#[derive(Debug)]
pub struct Trace {
    pub packets: Vec<protos::TracePacket>,
}

impl Trace {
    pub fn parse(bytes: &[u8]) -> Trace {
        Trace { packets: protos::Trace::decode(bytes).expect("a trace").packet }
    }

    /// What the producers' packets say, in order.
    pub fn texts(&self) -> Vec<&str> {
        self.packets.iter().filter_map(text).collect()
    }

    /// The packet that says this.
    pub fn saying(&self, wanted: &str) -> &protos::TracePacket {
        let mut found = self.packets.iter().filter(|packet| text(packet) == Some(wanted));
        let packet = found.next().unwrap_or_else(|| panic!("no packet says {wanted:?}: {:?}", self.texts()));
        assert!(found.next().is_none(), "several packets say {wanted:?}");
        packet
    }

    /// What each packet is, by the name of its field.
    pub fn kinds(&self) -> Vec<&'static str> {
        self.packets.iter().map(kind).collect()
    }

    pub fn stats(&self) -> Option<&protos::TraceStats> {
        self.packets.iter().find_map(|packet| match &packet.data {
            Some(Data::TraceStats(stats)) => Some(stats),
            _ => None,
        })
    }

    /// Service events with their times.
    pub fn events(&self) -> Vec<(u64, EventType)> {
        let events = self.packets.iter().filter_map(|packet| match &packet.data {
            Some(Data::ServiceEvent(event)) => Some((packet.timestamp(), event.event_type.clone()?)),
            _ => None,
        });
        events.collect()
    }

    pub fn clock_snapshots(&self) -> Vec<&protos::ClockSnapshot> {
        let snapshots = self.packets.iter().filter_map(|packet| match &packet.data {
            Some(Data::ClockSnapshot(snapshot)) => Some(snapshot),
            _ => None,
        });
        snapshots.collect()
    }
}

pub fn text(packet: &protos::TracePacket) -> Option<&str> {
    match &packet.data {
        Some(Data::ForTesting(event)) => event.str.as_deref(),
        _ => None,
    }
}

pub fn sequence_id(packet: &protos::TracePacket) -> Option<u32> {
    packet
        .optional_trusted_packet_sequence_id
        .map(|OptionalTrustedPacketSequenceId::TrustedPacketSequenceId(id)| id)
}

pub fn trusted_uid(packet: &protos::TracePacket) -> Option<i32> {
    packet.optional_trusted_uid.map(|OptionalTrustedUid::TrustedUid(uid)| uid)
}

fn kind(packet: &protos::TracePacket) -> &'static str {
    match packet.data.as_ref() {
        Some(Data::ClockSnapshot(_)) => "clock_snapshot",
        Some(Data::SynchronizationMarker(_)) => "synchronization_marker",
        Some(Data::TraceConfig(_)) => "trace_config",
        Some(Data::TraceUuid(_)) => "trace_uuid",
        Some(Data::TraceProvenance(_)) => "trace_provenance",
        Some(Data::SystemInfo(_)) => "system_info",
        Some(Data::TraceStats(_)) => "trace_stats",
        Some(Data::ForTesting(_)) => "for_testing",
        Some(Data::ConcurrentSessionEvent(_)) => "concurrent_session_event",
        Some(Data::Trigger(_)) => "trigger",
        Some(Data::CloneSnapshotTrigger(_)) => "clone_snapshot_trigger",
        Some(Data::ServiceEvent(event)) => match event.event_type {
            Some(EventType::TracingStarted(_)) => "tracing_started",
            Some(EventType::AllDataSourcesStarted(_)) => "all_data_sources_started",
            Some(EventType::AllDataSourcesFlushed(_)) => "all_data_sources_flushed",
            Some(EventType::FlushStarted(_)) => "flush_started",
            Some(EventType::TracingDisabled(_)) => "tracing_disabled",
            Some(EventType::CloneStarted(_)) => "clone_started",
            Some(EventType::BufferCloned(_)) => "buffer_cloned",
            Some(EventType::ReadTracingBuffersCompleted(_)) => "read_tracing_buffers_completed",
            Some(EventType::SlowStartingDataSources(_)) => "slow_starting_data_sources",
            Some(EventType::LastFlushSlowDataSources(_)) => "last_flush_slow_data_sources",
            _ => "other service_event",
        },
        Some(_) => "other",
        None => "nothing",
    }
}
