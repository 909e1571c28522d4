//! The suite's sessions, and what their traces have of the kernel's events.

use super::PERIOD_MS;
use crate::measure::WrongAnswer;
use prost::Message as _;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use watershed_wire::protos::trace_config::{BufferConfig, DataSource};
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{
    DataSourceConfig, FtraceConfig, FtraceEventBundle, FtraceStats, ProcessStatsConfig, Trace, TraceConfig,
};

/// The daemon's ring, which the file is written from.
const RING_KB: u32 = 64 << 10;
/// The kernel's, of each CPU.
const KERNEL_RING_KB: u32 = 2 << 10;
const FILE_PERIOD_MS: u32 = 500;

/// A session into a file, with these events and the descriptions of the threads that they name.
pub(super) fn config(events: &[&str]) -> TraceConfig {
    let ftrace = FtraceConfig {
        ftrace_events: events.iter().map(ToString::to_string).collect(),
        buffer_size_kb: Some(KERNEL_RING_KB),
        drain_period_ms: Some(PERIOD_MS),
        ..Default::default()
    };
    let ftrace = DataSourceConfig {
        name: Some("linux.ftrace".to_owned()),
        ftrace_config: Some(ftrace),
        ..Default::default()
    };
    let processes = DataSourceConfig {
        name: Some("linux.process_stats".to_owned()),
        process_stats_config: Some(ProcessStatsConfig::default()),
        ..Default::default()
    };
    let source = |config| DataSource { config: Some(config), ..Default::default() };
    TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(RING_KB), ..Default::default() }],
        data_sources: vec![source(ftrace), source(processes)],
        write_into_file: Some(true),
        file_write_period_ms: Some(FILE_PERIOD_MS),
        ..Default::default()
    }
}

/// What a trace has.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Found {
    /// Switches and wakings.
    pub(super) events: u64,
    /// Events that the kernel counts as lost.
    pub(super) lost: u64,
    /// Of the whole file.
    pub(super) bytes: u64,
}

impl Found {
    /// Reads a file. An error if it lacks something that the kernel handed out.
    pub(super) fn in_file(mut file: File) -> Result<Found, WrongAnswer> {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).map_err(|error| error.to_string())?;
        let trace = Trace::decode(&bytes[..]).map_err(|error| error.to_string())?;
        let (mut found, mut stats) = (Found { bytes: bytes.len() as u64, ..Found::default() }, None);
        let mut events: BTreeMap<u64, u64> = BTreeMap::new();
        let mut told = BTreeMap::new();
        for packet in trace.packet {
            match packet.data {
                Some(Data::FtraceEvents(bundle)) => {
                    *events.entry(u64::from(bundle.cpu())).or_default() += events_of(&bundle)?;
                }
                Some(Data::FtraceStats(of_now)) => {
                    told.clone_from(&events);
                    stats = Some(of_now);
                }
                _ => {}
            }
        }
        let stats = stats.ok_or("the trace has no statistics of the kernel's ring")?;
        found.events = events.values().sum();
        found.lost = lost(&stats);
        for cpu in &stats.cpu_stats {
            let (told, handed_out) = (told.get(&cpu.cpu()).copied().unwrap_or(0), cpu.read_events());
            if told != handed_out {
                return Err(format!("CPU {}: {told} of {handed_out} events that were read", cpu.cpu()));
            }
        }
        Ok(found)
    }
}

fn events_of(bundle: &FtraceEventBundle) -> Result<u64, WrongAnswer> {
    if let Some(error) = bundle.error.first() {
        return Err(format!("a page was not understood: {error:?}"));
    }
    let compact = bundle.compact_sched.as_ref();
    let count = compact.map_or(0, |c| c.switch_timestamp.len() + c.waking_timestamp.len());
    Ok(count as u64)
}

fn lost(stats: &FtraceStats) -> u64 {
    let of_cpu = stats.cpu_stats.iter().map(|s| s.overrun() + s.commit_overrun() + s.dropped_events());
    of_cpu.sum()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use watershed_wire::protos::ftrace_event_bundle::CompactSched;
    use watershed_wire::protos::{FtraceCpuStats, TracePacket};

    fn found(read_events: u64) -> Result<Found, WrongAnswer> {
        let compact =
            CompactSched { switch_timestamp: vec![1, 2], waking_timestamp: vec![3], ..Default::default() };
        let bundle = FtraceEventBundle { compact_sched: Some(compact), ..Default::default() };
        let cpu = FtraceCpuStats {
            read_events: Some(read_events),
            overrun: Some(5),
            dropped_events: Some(2),
            ..Default::default()
        };
        let stats = FtraceStats { cpu_stats: vec![cpu], ..Default::default() };
        let packet = |data| TracePacket { data: Some(data), ..Default::default() };
        let trace =
            Trace { packet: vec![packet(Data::FtraceEvents(bundle)), packet(Data::FtraceStats(stats))] };
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&trace.encode_to_vec()).unwrap();
        Found::in_file(file)
    }

    #[test]
    fn what_the_kernel_handed_out_must_be_there() {
        let found_of_three = found(3).unwrap();
        assert_eq!((found_of_three.events, found_of_three.lost), (3, 7));
        assert_eq!(found(4).unwrap_err(), "CPU 0: 3 of 4 events that were read");
        assert!(Found::in_file(tempfile::tempfile().unwrap()).is_err());
    }
}
