//! Traces made by hand, packet by packet.

use prost::Message as _;
use watershed_wire::framing::append_packet;
use watershed_wire::protos::clock_snapshot::Clock;
use watershed_wire::protos::trace_config::{BufferConfig, DataSource};
use watershed_wire::protos::trace_packet::{Data, OptionalTrustedPacketSequenceId, OptionalTrustedUid};
use watershed_wire::protos::trace_stats::{BufferStats, WriterStats};
use watershed_wire::protos::tracing_service_event::EventType;
use watershed_wire::protos::{
    ClockSnapshot, DataSourceConfig, ProcessTree, SysStats, SystemInfo, TraceConfig, TracePacket,
    TraceProvenance, TraceStats, TraceUuid, TracingServiceEvent, Utsname, process_tree, trace_provenance,
};

pub(crate) const SECOND_NS: u64 = 1_000_000_000;

/// 2026-01-02 03:04:05 UTC.
pub(crate) const WALL_NS: u64 = 1_767_323_045 * SECOND_NS;

#[derive(Default, Clone)]
pub(crate) struct TraceBuilder {
    pub(crate) bytes: Vec<u8>,
    /// Where each packet begins.
    pub(crate) offsets: Vec<usize>,
}

impl TraceBuilder {
    pub(crate) fn packet(mut self, packet: TracePacket) -> Self {
        self.offsets.push(self.bytes.len());
        append_packet(&mut self.bytes, &[&packet.encode_to_vec()]);
        self
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.offsets.push(self.bytes.len());
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Another trace behind this one, as `cat` puts them.
    pub(crate) fn append(mut self, other: &TraceBuilder) -> Self {
        self.offsets.extend(other.offsets.iter().map(|offset| self.bytes.len() + offset));
        self.bytes.extend_from_slice(&other.bytes);
        self
    }

    pub(crate) fn service(self, data: Data) -> Self {
        self.packet(service(data))
    }

    pub(crate) fn event(self, at_ns: u64, event: EventType) -> Self {
        let event = TracingServiceEvent { event_type: Some(event) };
        self.packet(TracePacket { timestamp: Some(at_ns), ..service(Data::ServiceEvent(event)) })
    }

    /// What a service writes when a session begins: one 64 KiB ring named "main" for
    /// `linux.sys_stats`.
    pub(crate) fn beginning(self) -> Self {
        self.service(Data::ClockSnapshot(ClockSnapshot {
            clocks: vec![clock(6, 100 * SECOND_NS), clock(1, WALL_NS), clock(3, 90 * SECOND_NS)],
            primary_trace_clock: Some(6),
        }))
        .service(Data::TraceConfig(TraceConfig {
            buffers: vec![BufferConfig {
                size_kb: Some(64),
                name: Some("main".to_owned()),
                ..Default::default()
            }],
            data_sources: vec![DataSource {
                config: Some(DataSourceConfig {
                    name: Some("linux.sys_stats".to_owned()),
                    ..Default::default()
                }),
                ..Default::default()
            }],
            duration_ms: Some(3000),
            ..Default::default()
        }))
        .service(Data::TraceUuid(TraceUuid { msb: Some(-1), lsb: Some(0x1234) }))
        .service(Data::TraceProvenance(TraceProvenance {
            buffers: vec![trace_provenance::Buffer {
                sequences: vec![trace_provenance::Sequence { id: Some(2), producer_id: Some(7) }],
            }],
        }))
        .service(Data::SystemInfo(SystemInfo {
            utsname: Some(Utsname {
                sysname: Some("Linux".to_owned()),
                release: Some("6.1.0".to_owned()),
                machine: Some("x86_64".to_owned()),
                ..Default::default()
            }),
            tracing_service_version: Some("Perfetto v58.0-watershed".to_owned()),
            num_cpus: Some(2),
            ..Default::default()
        }))
        .event(100 * SECOND_NS, EventType::TracingStarted(true))
        .event(100 * SECOND_NS, EventType::AllDataSourcesStarted(true))
    }

    /// Packets of one producer, the first names its process.
    pub(crate) fn data(mut self) -> Self {
        self = self.packet(TracePacket {
            first_packet_on_sequence: Some(true),
            ..producer(
                2,
                100 * SECOND_NS,
                Data::ProcessTree(ProcessTree {
                    processes: vec![process_tree::Process {
                        pid: Some(4321),
                        cmdline: vec!["/usr/bin/probes".to_owned(), "-v".to_owned()],
                        ..Default::default()
                    }],
                    ..Default::default()
                }),
            )
        });
        for second in 1..=3 {
            let stats = SysStats { num_forks: Some(second), ..Default::default() };
            self = self.packet(producer(2, (100 + second) * SECOND_NS, Data::SysStats(stats)));
        }
        self
    }

    /// What a service writes when a session ends.
    pub(crate) fn end(self, stats: TraceStats) -> Self {
        self.service(Data::SynchronizationMarker(SYNC_MARKER.to_vec()))
            .event(103 * SECOND_NS, EventType::FlushStarted(true))
            .event(103 * SECOND_NS, EventType::AllDataSourcesFlushed(true))
            .event(103 * SECOND_NS, EventType::TracingDisabled(true))
            .event(103 * SECOND_NS, EventType::ReadTracingBuffersCompleted(true))
            .service(Data::TraceStats(stats))
    }

    pub(crate) fn complete() -> Self {
        Self::default().beginning().data().end(stats())
    }
}

const SYNC_MARKER: [u8; 16] =
    [0x82, 0x47, 0x7a, 0x76, 0xb2, 0x8d, 0x42, 0xba, 0x81, 0xdc, 0x33, 0x32, 0x6d, 0x57, 0xa0, 0x79];

pub(crate) fn clock(clock_id: u32, timestamp: u64) -> Clock {
    Clock { clock_id: Some(clock_id), timestamp: Some(timestamp), ..Default::default() }
}

pub(crate) fn service(data: Data) -> TracePacket {
    TracePacket {
        optional_trusted_uid: Some(OptionalTrustedUid::TrustedUid(0)),
        optional_trusted_packet_sequence_id: Some(OptionalTrustedPacketSequenceId::TrustedPacketSequenceId(
            1,
        )),
        timestamp_clock_id: Some(6),
        data: Some(data),
        ..Default::default()
    }
}

pub(crate) fn producer(sequence_id: u32, timestamp: u64, data: Data) -> TracePacket {
    TracePacket {
        timestamp: Some(timestamp),
        optional_trusted_uid: Some(OptionalTrustedUid::TrustedUid(1000)),
        trusted_pid: Some(4321),
        optional_trusted_packet_sequence_id: Some(OptionalTrustedPacketSequenceId::TrustedPacketSequenceId(
            sequence_id,
        )),
        data: Some(data),
        ..Default::default()
    }
}

/// Statistics of a session that lost nothing.
pub(crate) fn stats() -> TraceStats {
    TraceStats {
        buffer_stats: vec![BufferStats {
            buffer_size: Some(65536),
            bytes_written: Some(16384),
            bytes_read: Some(16384),
            chunks_written: Some(4),
            chunks_read: Some(4),
            ..Default::default()
        }],
        writer_stats: vec![WriterStats { sequence_id: Some(2), buffer: Some(0), ..Default::default() }],
        flushes_requested: Some(1),
        flushes_succeeded: Some(1),
        final_flush_outcome: Some(1),
        ..Default::default()
    }
}
