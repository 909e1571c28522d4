//! Events that the kernel lost before a recorder of `linux.ftrace` read them, as the trace tells.
//!
//! A bundle says that some are missing before it, and not how many. The kernel's own counters, read
//! when the recording began and when it ended, say how many, and also of a CPU that had no bundle
//! afterwards. They are about the whole recording: where a ring has overwritten the beginning of
//! the recorder's sequence they may be about what is not in the trace, and do not count.

use std::collections::BTreeMap;

use serde::Serialize;
use watershed_wire::packet::Envelope;
use watershed_wire::protos::ftrace_stats::Phase;
use watershed_wire::protos::{FtraceCpuStats, FtraceStats};
use watershed_wire::raw::{Fields, Malformed};

use super::verdict::Loss;

/// CPUs of recorders that are told apart; a hostile trace has any number of both.
const CPUS_MAX: usize = 1 << 14;
/// Fields of `FtraceEventBundle`.
const CPU: u32 = 1;
const LOST_EVENTS: u32 = 3;

/// The kernel's counters of lost events: name in the format, and what was lost.
const COUNTERS: [(&str, &str); 3] = [
    ("overrun", "events of the kernel were overwritten before they were read"),
    ("commit_overrun", "events of the kernel were lost within interrupts: its buffer was full"),
    ("dropped_events", "events of the kernel were refused: its buffer was full"),
];

/// One CPU, as one recorder sees it.
#[derive(Debug, Default, Clone, Copy)]
struct Cpu {
    has_bundles: bool,
    /// Bundles before which events are missing.
    times: u64,
    at_start: Option<[u64; COUNTERS.len()]>,
    at_end: Option<[u64; COUNTERS.len()]>,
    /// Events in the kernel's memory then.
    unread: u64,
}

/// Machine, sequence and number of a CPU.
type Key = (Option<u32>, Option<u32>, u32);

/// What was told of lost events.
#[derive(Debug, Default)]
pub(super) struct KernelLosses {
    cpus: BTreeMap<Key, Cpu>,
    /// Bundles before which events are missing, of CPUs beyond those that are told apart.
    times_elsewhere: u64,
}

/// A part of a loss.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct LossOfCpu {
    /// Of another machine of the session.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) machine_id: Option<u32>,
    pub(super) cpu: u32,
    pub(super) count: u64,
}

impl KernelLosses {
    /// Takes a packet's `FtraceEventBundle`. `begins_here` says whether the trace has its sequence
    /// from the first packet on: if not, a CPU's first bundle tells of what was before the trace.
    ///
    /// # Errors
    /// If it is none.
    pub(super) fn take_bundle(
        &mut self,
        envelope: &Envelope<'_>,
        bundle: &[u8],
        begins_here: bool,
    ) -> Result<(), Malformed> {
        let (mut cpu, mut is_lossy) = (0, false);
        for field in Fields::new(bundle) {
            let field = field?;
            match field.number {
                CPU => cpu = field.value.varint().unwrap_or(0) as u32,
                LOST_EVENTS => is_lossy = field.value.varint().is_some_and(|value| value != 0),
                _ => {}
            }
        }
        let Some(cpu) = self.cpu(envelope, cpu) else {
            self.times_elsewhere += u64::from(is_lossy);
            return Ok(());
        };
        cpu.times += u64::from(is_lossy && (cpu.has_bundles || begins_here));
        cpu.has_bundles = true;
        Ok(())
    }

    /// Takes a packet's `FtraceStats`; `begins_here` as of [`Self::take_bundle`].
    pub(super) fn take_stats(&mut self, envelope: &Envelope<'_>, stats: &FtraceStats, begins_here: bool) {
        if !begins_here {
            return;
        }
        for of_cpu in &stats.cpu_stats {
            let number = u32::try_from(of_cpu.cpu()).ok();
            let Some(cpu) = number.and_then(|number| self.cpu(envelope, number)) else { continue };
            match stats.phase() {
                Phase::StartOfTrace => cpu.at_start = Some(counters(of_cpu)),
                Phase::EndOfTrace => {
                    (cpu.at_end, cpu.unread) = (Some(counters(of_cpu)), of_cpu.entries());
                }
                Phase::Unspecified => {}
            }
        }
    }

    fn cpu(&mut self, envelope: &Envelope<'_>, number: u32) -> Option<&mut Cpu> {
        let key = (envelope.machine_id, envelope.sequence_id, number);
        match self.cpus.len() < CPUS_MAX || self.cpus.contains_key(&key) {
            true => Some(self.cpus.entry(key).or_default()),
            false => None,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.cpus.len()
    }

    /// What was lost, by kind. What was in the kernel's memory at the last reading of its counters
    /// has come to nobody if the recorder did not answer the final flush.
    pub(super) fn losses(&self, final_flush_failed: bool) -> Vec<Loss> {
        let meaning = "times events of the kernel are missing: they were not read in time";
        let times = self.loss("lost_events", meaning, self.times_elsewhere, |cpu| cpu.times);
        let counted = COUNTERS.iter().enumerate().map(|(index, (cause, meaning))| {
            // Without the first reading nobody knows what is older than the recording.
            let lost = |cpu: &Cpu| match (cpu.at_start, cpu.at_end) {
                (Some(start), Some(end)) => end[index].saturating_sub(start[index]),
                _ => 0,
            };
            self.loss(cause, meaning, 0, lost)
        });
        let meaning = "events of the kernel were not read before the recording ended";
        let unread = |cpu: &Cpu| if final_flush_failed { cpu.unread } else { 0 };
        let unread = self.loss("unread_events", meaning, 0, unread);
        std::iter::once(times).chain(counted).chain([unread]).filter(|loss| loss.count > 0).collect()
    }

    fn loss(
        &self,
        cause: &'static str,
        meaning: &'static str,
        elsewhere: u64,
        of: impl Fn(&Cpu) -> u64,
    ) -> Loss {
        let mut by_cpu: BTreeMap<(Option<u32>, u32), u64> = BTreeMap::new();
        for (&(machine_id, _, cpu), state) in &self.cpus {
            let sum = by_cpu.entry((machine_id, cpu)).or_default();
            *sum = sum.saturating_add(of(state));
        }
        let lossy = by_cpu.into_iter().filter(|(_, count)| *count > 0);
        let cpus: Vec<_> =
            lossy.map(|((machine_id, cpu), count)| LossOfCpu { machine_id, cpu, count }).collect();
        let count = cpus.iter().fold(elsewhere, |sum, cpu| sum.saturating_add(cpu.count));
        Loss { cause, session: None, buffer: None, count, cpus, meaning: meaning.to_owned() }
    }
}

fn counters(stats: &FtraceCpuStats) -> [u64; COUNTERS.len()] {
    [stats.overrun(), stats.commit_overrun(), stats.dropped_events()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpus_are_bounded() {
        let mut losses = KernelLosses::default();
        let envelope = Envelope { sequence_id: Some(2), ..Default::default() };
        for cpu in 0..=CPUS_MAX {
            let mut bundle = vec![0x08];
            bundle.extend([(cpu as u8) | 0x80, (cpu >> 7) as u8 | 0x80, (cpu >> 14) as u8, 0x18, 1]);
            losses.take_bundle(&envelope, &bundle, true).unwrap();
        }
        assert_eq!(losses.len(), CPUS_MAX);
        let [loss] = &losses.losses(true)[..] else { panic!("one kind") };
        assert_eq!((loss.count, loss.cpus.len()), (CPUS_MAX as u64 + 1, CPUS_MAX));
    }
}
