//! The suite's sessions, and what their traces have of the kernel's events.

use super::PERIOD_MS;
use crate::measure::WrongAnswer;
use prost::Message as _;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _};
use watershed_wire::protos::ftrace_config::CompactSchedConfig;
use watershed_wire::protos::trace_config::{BufferConfig, DataSource};
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{
    DataSourceConfig, FtraceConfig, FtraceCpuStats, FtraceEventBundle, FtraceStats, ProcessStatsConfig,
    Trace, TraceConfig,
};

/// The daemon's ring, which the file is written from.
const RING_KB: u32 = 64 << 10;
/// The kernel's, of each CPU.
const KERNEL_RING_KB: u32 = 2 << 10;
const FILE_PERIOD_MS: u32 = 500;

/// A session into a file, with these events and the descriptions of the threads that they name.
pub(super) fn config(events: &[&str], drain_percent: Option<u32>) -> TraceConfig {
    let ftrace = FtraceConfig {
        ftrace_events: events.iter().map(ToString::to_string).collect(),
        buffer_size_kb: Some(KERNEL_RING_KB),
        drain_period_ms: Some(PERIOD_MS),
        drain_buffer_percent: drain_percent,
        compact_sched: Some(CompactSchedConfig { enabled: Some(true) }),
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
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Found {
    /// Switches and wakings.
    pub(super) events: u64,
    /// Events that the kernel counts as lost.
    pub(super) overwritten: u64,
    /// Events that were read from the kernel and are not in the file.
    pub(super) missing: u64,
    /// Of the whole file.
    pub(super) bytes: u64,
}

impl Found {
    /// Reads a file, whoever has written it.
    pub(super) fn in_file(mut file: File) -> Result<Found, WrongAnswer> {
        let mut bytes = Vec::new();
        file.rewind().and_then(|()| file.read_to_end(&mut bytes)).map_err(|error| error.to_string())?;
        let trace = Trace::decode(&bytes[..]).map_err(|error| error.to_string())?;
        let mut found = Found { bytes: bytes.len() as u64, ..Found::default() };
        // Statistics, and how many events of each CPU came before them.
        let (mut of_cpu, mut counts) = (BTreeMap::<u64, u64>::new(), Vec::new());
        for packet in trace.packet {
            match packet.data {
                Some(Data::FtraceEvents(bundle)) => {
                    *of_cpu.entry(u64::from(bundle.cpu())).or_default() += events_of(&bundle)?;
                }
                Some(Data::FtraceStats(stats)) => counts.push((stats, of_cpu.clone())),
                _ => {}
            }
        }
        let [(start, _), .., (end, told)] = &counts[..] else {
            return Err("the trace has no statistics of the kernel's ring at start and end".to_owned());
        };
        found.events = of_cpu.values().sum();
        found.overwritten = sum(end, lost) - sum(start, lost);
        for cpu in &end.cpu_stats {
            let told = told.get(&cpu.cpu()).copied().unwrap_or(0);
            let at_start = start.cpu_stats.iter().find(|before| before.cpu() == cpu.cpu());
            let read = cpu.read_events() - at_start.map_or(0, FtraceCpuStats::read_events);
            let missing = read.checked_sub(told);
            found.missing +=
                missing.ok_or_else(|| format!("CPU {}: {told} events, {read} were read", cpu.cpu()))?;
        }
        Ok(found)
    }

    /// An error if the file lacks what the kernel handed out.
    pub(super) fn check_whole(&self) -> Result<(), WrongAnswer> {
        match self.missing {
            0 => Ok(()),
            missing => Err(format!("{missing} events that were read are not in the trace")),
        }
    }

    /// Events that happened and are not in the file.
    pub(super) fn lost(&self) -> u64 {
        self.overwritten + self.missing
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

fn sum(stats: &FtraceStats, of_cpu: impl Fn(&FtraceCpuStats) -> u64) -> u64 {
    stats.cpu_stats.iter().map(of_cpu).sum()
}

fn lost(cpu: &FtraceCpuStats) -> u64 {
    cpu.overrun() + cpu.commit_overrun() + cpu.dropped_events()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use watershed_wire::protos::TracePacket;
    use watershed_wire::protos::ftrace_event_bundle::CompactSched;

    /// Of a file with three events, of whose CPU seven others were read before the start.
    fn found(read_events: u64) -> Result<Found, WrongAnswer> {
        let compact =
            CompactSched { switch_timestamp: vec![1, 2], waking_timestamp: vec![3], ..Default::default() };
        let bundle = FtraceEventBundle { compact_sched: Some(compact), ..Default::default() };
        let stats = |read_events, overrun| {
            let cpu = FtraceCpuStats {
                read_events: Some(read_events),
                overrun: Some(overrun),
                dropped_events: Some(2),
                ..Default::default()
            };
            Data::FtraceStats(FtraceStats { cpu_stats: vec![cpu], ..Default::default() })
        };
        let data = [stats(7, 1), Data::FtraceEvents(bundle), stats(7 + read_events, 6)];
        let packet = data.map(|data| TracePacket { data: Some(data), ..Default::default() });
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&Trace { packet: packet.into() }.encode_to_vec()).unwrap();
        Found::in_file(file)
    }

    #[test]
    fn what_the_kernel_handed_out_must_be_there() {
        let whole = found(3).unwrap();
        assert_eq!((whole.events, whole.overwritten, whole.lost()), (3, 5, 5));
        whole.check_whole().unwrap();
        let holed = found(4).unwrap();
        assert_eq!((holed.events, holed.missing, holed.lost()), (3, 1, 6));
        assert!(holed.check_whole().is_err());
        assert_eq!(found(2).unwrap_err(), "CPU 0: 3 events, 2 were read");
        assert!(Found::in_file(tempfile::tempfile().unwrap()).is_err());
    }
}
