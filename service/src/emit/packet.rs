//! The envelope of the service's own packets.

use crate::clock::BOOTTIME_CLOCK_ID;
use crate::limits::SERVICE_SEQUENCE_ID;
use crate::proto_bytes::{put_bytes, put_int32, put_uint64};

pub(super) mod field {
    //! Fields of `TracePacket`.
    pub(in crate::emit) const TRUSTED_UID: u32 = 3;
    pub(in crate::emit) const CLOCK_SNAPSHOT: u32 = 6;
    pub(in crate::emit) const TIMESTAMP: u32 = 8;
    pub(in crate::emit) const TRUSTED_PACKET_SEQUENCE_ID: u32 = 10;
    pub(in crate::emit) const TRACE_CONFIG: u32 = 33;
    pub(in crate::emit) const TRACE_STATS: u32 = 35;
    pub(in crate::emit) const SYNCHRONIZATION_MARKER: u32 = 36;
    pub(in crate::emit) const SYSTEM_INFO: u32 = 45;
    pub(in crate::emit) const TIMESTAMP_CLOCK_ID: u32 = 58;
    pub(in crate::emit) const TRIGGER: u32 = 46;
    pub(in crate::emit) const SERVICE_EVENT: u32 = 69;
    pub(in crate::emit) const TRACE_UUID: u32 = 89;
    pub(in crate::emit) const TRACE_PROVENANCE: u32 = 124;
    pub(in crate::emit) const CLONE_SNAPSHOT_TRIGGER: u32 = 113;
    pub(in crate::emit) const CONCURRENT_SESSION_EVENT: u32 = 134;
}

/// Readers that cut a stream into traces look for these bytes.
pub const SYNC_MARKER: [u8; 16] =
    [0x82, 0x47, 0x7a, 0x76, 0xb2, 0x8d, 0x42, 0xba, 0x81, 0xdc, 0x33, 0x32, 0x6d, 0x57, 0xa0, 0x79];

/// What differs between the envelopes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stamp {
    pub(super) uid: i32,
    pub(super) timestamp_ns: Option<u64>,
}

/// A packet with one field of content. It says its clock even where it has no time: a reader would
/// otherwise take the trace's primary clock.
pub(super) fn service_packet(stamp: Stamp, number: u32, content: &[u8]) -> Vec<u8> {
    let mut packet = Vec::with_capacity(content.len() + 40);
    put_int32(&mut packet, field::TRUSTED_UID, stamp.uid);
    put_uint64(&mut packet, field::TRUSTED_PACKET_SEQUENCE_ID, u64::from(SERVICE_SEQUENCE_ID));
    put_uint64(&mut packet, field::TIMESTAMP_CLOCK_ID, u64::from(BOOTTIME_CLOCK_ID));
    if let Some(timestamp_ns) = stamp.timestamp_ns {
        put_uint64(&mut packet, field::TIMESTAMP, timestamp_ns);
    }
    put_bytes(&mut packet, number, content);
    packet
}

/// The marker is the last field, and there is nothing in the packet but who wrote it.
pub(super) fn sync_marker_packet(uid: i32) -> Vec<u8> {
    let mut packet = Vec::with_capacity(40);
    put_int32(&mut packet, field::TRUSTED_UID, uid);
    put_uint64(&mut packet, field::TRUSTED_PACKET_SEQUENCE_ID, u64::from(SERVICE_SEQUENCE_ID));
    put_bytes(&mut packet, field::SYNCHRONIZATION_MARKER, &SYNC_MARKER);
    packet
}
