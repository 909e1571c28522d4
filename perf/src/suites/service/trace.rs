//! The suite's sessions, and what their traces have of the packets that were written.

use super::load::Written;
use super::packets::FIRST_TIMESTAMP;
use crate::measure::WrongAnswer;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use watershed_client::consumer::Consumer;
use watershed_wire::protos::trace_config::{BufferConfig, BuiltinDataSource, DataSource};
use watershed_wire::protos::{DataSourceConfig, TraceConfig, TraceStats};
use watershed_wire::raw::{Fields, Value};
use watershed_wire::reader::{Limits, TraceReader};

/// Fields of a packet.
const TIMESTAMP: u32 = 8;
const SEQUENCE_ID: u32 = 10;
const PREVIOUS_PACKET_DROPPED: u32 = 42;
/// The policy `drop`: writers never wait.
const DROP: i32 = 1;

/// A session of one data source and one ring. It has no timers.
pub(super) fn config(source: &str, buffer_kb: u32) -> TraceConfig {
    let source = DataSourceConfig {
        name: Some(source.to_owned()),
        buffer_exhausted_policy: Some(DROP),
        ..Default::default()
    };
    TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(buffer_kb), ..Default::default() }],
        data_sources: vec![DataSource { config: Some(source), ..Default::default() }],
        builtin_data_sources: Some(BuiltinDataSource {
            disable_clock_snapshotting: Some(true),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// As `config`, written into a file ten times a second.
pub(super) fn config_into_file(source: &str, buffer_kb: u32) -> TraceConfig {
    TraceConfig { write_into_file: Some(true), file_write_period_ms: Some(100), ..config(source, buffer_kb) }
}

/// Which packets of the suite's producers a trace has.
#[derive(Debug, Default)]
pub(super) struct Found {
    pub(super) packets: u64,
    /// Packets that are missing between others of their sequence.
    pub(super) missing: u64,
    /// Gaps behind which no packet says that something is missing.
    unexplained: u64,
    /// The place of each sequence's next packet.
    next: BTreeMap<u64, u64>,
}

impl Found {
    /// Takes note of a packet.
    pub(super) fn add(&mut self, packet: &[u8]) -> Result<(), WrongAnswer> {
        let (mut timestamp, mut sequence_id, mut says_loss) = (0, 0, false);
        for field in Fields::new(packet) {
            let field = field.map_err(|error| error.to_string())?;
            match (field.number, field.value) {
                (TIMESTAMP, Value::Varint(value)) => timestamp = value,
                (SEQUENCE_ID, Value::Varint(value)) => sequence_id = value,
                (PREVIOUS_PACKET_DROPPED, Value::Varint(value)) => says_loss |= value != 0,
                _ => {}
            }
        }
        // Others are the service's own.
        let Some(place) = timestamp.checked_sub(FIRST_TIMESTAMP) else { return Ok(()) };
        self.packets += 1;
        let next = self.next.insert(sequence_id, place + 1);
        let gap = place.checked_sub(next.unwrap_or(place)).ok_or("a packet came twice or too late")?;
        self.missing += gap;
        self.unexplained += u64::from(gap > 0 && !says_loss);
        Ok(())
    }

    /// Those in a file.
    pub(super) fn in_file(mut file: File) -> Result<Found, WrongAnswer> {
        let (mut found, mut reader) = (Found::default(), TraceReader::new(Limits::default()));
        loop {
            while let Some(packet) = reader.poll_packet().map_err(|damage| damage.to_string())? {
                found.add(packet.bytes)?;
            }
            match file.read(reader.spare()).map_err(|error| error.to_string())? {
                0 => break reader.end().map_err(|damage| damage.to_string())?,
                size_bytes => reader.received(size_bytes),
            }
        }
        Ok(found)
    }

    /// Those that can be read from a session.
    pub(super) fn in_buffers(consumer: &mut Consumer) -> Result<Found, WrongAnswer> {
        let (mut found, mut wrong) = (Found::default(), Ok(()));
        let read = consumer.read_packets(|packet| {
            if wrong.is_ok() {
                wrong = found.add(packet);
            }
            Ok(())
        });
        read.map_err(|error| error.to_string())?;
        wrong.map(|()| found)
    }

    /// Checks that each gap is told by the packet behind it.
    pub(super) fn check_gaps_are_told(&self) -> Result<(), WrongAnswer> {
        match self.unexplained {
            0 => Ok(()),
            unexplained => Err(format!("{unexplained} losses that no packet tells")),
        }
    }

    /// Counts as lost what the client library took and the trace has not.
    pub(super) fn count_lost(&self, written: &mut Written) -> Result<(), WrongAnswer> {
        let taken = written.packets - written.packets_dropped;
        let lost = taken.checked_sub(self.packets).ok_or("the trace has packets that were dropped")?;
        written.add_lost(lost);
        Ok(())
    }

    /// Checks that the ring was overwritten if that is lost, and that each gap is told.
    pub(super) fn check(&self, written: &Written, stats: &TraceStats) -> Result<(), WrongAnswer> {
        let taken = written.packets - written.packets_dropped;
        let overwritten: u64 = stats.buffer_stats.iter().map(|buffer| buffer.chunks_overwritten()).sum();
        if self.packets < taken && overwritten == 0 {
            return Err(format!("{} packets in the trace, {taken} were taken", self.packets));
        }
        self.check_gaps_are_told()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use prost::Message as _;

    fn packet(place: u64, says_loss: bool) -> Vec<u8> {
        let mut packet = watershed_wire::protos::TracePacket {
            timestamp: Some(FIRST_TIMESTAMP + place),
            ..Default::default()
        }
        .encode_to_vec();
        if says_loss {
            packet.extend([0xD0, 0x02, 1]);
        }
        packet
    }

    #[test]
    fn gaps_are_counted_and_have_to_be_told() {
        let found = |places: &[(u64, bool)]| {
            let mut found = Found::default();
            places.iter().try_for_each(|(place, says_loss)| found.add(&packet(*place, *says_loss)))?;
            Ok::<_, WrongAnswer>(found)
        };
        let told = found(&[(7, false), (8, false), (12, true)]).unwrap();
        assert_eq!((told.packets, told.missing), (3, 3));
        told.check_gaps_are_told().unwrap();
        let lost = |packets_dropped, chunks_overwritten| {
            let buffer = watershed_wire::protos::trace_stats::BufferStats {
                chunks_overwritten: Some(chunks_overwritten),
                ..Default::default()
            };
            let stats = TraceStats { buffer_stats: vec![buffer], ..Default::default() };
            let mut written = Written { packets: 6, bytes: 600, packets_dropped, ..Written::default() };
            told.check(&written, &stats)?;
            told.count_lost(&mut written).map(|()| (written.packets_dropped, written.bytes_dropped))
        };
        assert_eq!(lost(3, 0), Ok((3, 0)));
        assert_eq!(lost(2, 1), Ok((3, 100)));
        assert!(lost(2, 0).is_err() && lost(4, 0).is_err());
        assert!(found(&[(1, false), (3, false)]).unwrap().check_gaps_are_told().is_err());
        assert!(found(&[(1, false), (1, false)]).is_err());
    }
}
