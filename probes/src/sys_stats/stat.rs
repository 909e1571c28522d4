//! /proc/stat: times of each CPU, interrupts, forks.
//!
//! Parsed here and not by the `procfs-core` crate: its `KernelStats` keeps CPU times as a list
//! without the CPU numbers, which shifts them when a CPU is offline, and leaves out the interrupt
//! lines.

use super::{Section, Setup};
use crate::file::{KeptFile, text};
use std::io;
use std::str::SplitAsciiWhitespace;
use watershed_wire::protos::SysStats;
use watershed_wire::protos::sys_stats::{CpuTimes, InterruptCount};
use watershed_wire::protos::sys_stats_config::StatCounters;

struct StatSection {
    file: KeptFile,
    ns_per_tick: u64,
    wanted: Wanted,
}

struct Wanted {
    cpu_times: bool,
    irq_counts: bool,
    softirq_counts: bool,
    fork_count: bool,
}

pub(super) fn stat(setup: &mut Setup<'_>) -> io::Result<Box<dyn Section>> {
    let list = &setup.config.stat_counters;
    let wants = |c: StatCounters| list.is_empty() || list.contains(&(c as i32));
    Ok(Box::new(StatSection {
        file: KeptFile::open(setup.roots.proc.join("stat"))?,
        ns_per_tick: 1_000_000_000 / rustix::param::clock_ticks_per_second().max(1),
        wanted: Wanted {
            cpu_times: wants(StatCounters::StatCpuTimes),
            irq_counts: wants(StatCounters::StatIrqCounts),
            softirq_counts: wants(StatCounters::StatSoftirqCounts),
            fork_count: wants(StatCounters::StatForkCount),
        },
    }))
}

impl Section for StatSection {
    fn sample(&mut self, scratch: &mut Vec<u8>, into: &mut SysStats) -> io::Result<()> {
        let content = text(self.file.read(scratch)?)?;
        let wanted = &self.wanted;
        for line in content.lines() {
            let mut words = line.split_ascii_whitespace();
            match words.next() {
                Some("intr") if wanted.irq_counts => {
                    into.num_irq_total = next_number(&mut words);
                    // Most lines of a machine never fire; they would be most of the packet.
                    into.num_irq.extend(counts(words).filter(|c| c.count != Some(0)));
                }
                Some("softirq") if wanted.softirq_counts => {
                    into.num_softirq_total = next_number(&mut words);
                    into.num_softirq.extend(counts(words));
                }
                Some("processes") if wanted.fork_count => into.num_forks = next_number(&mut words),
                Some(name) if wanted.cpu_times => {
                    // `cpu` without a number is the sum of the others.
                    if let Some(cpu_id) = name.strip_prefix("cpu").and_then(|id| id.parse().ok()) {
                        into.cpu_stat.push(cpu_times(cpu_id, words, self.ns_per_tick));
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn next_number(words: &mut SplitAsciiWhitespace<'_>) -> Option<u64> {
    words.next()?.parse().ok()
}

fn counts<'a>(words: SplitAsciiWhitespace<'a>) -> impl Iterator<Item = InterruptCount> + 'a {
    words
        .map_while(|w| w.parse().ok())
        .zip(0..)
        .map(|(count, irq)| InterruptCount { irq: Some(irq), count: Some(count) })
}

/// Columns that an older kernel lacks stay absent.
fn cpu_times(cpu_id: u32, mut words: SplitAsciiWhitespace<'_>, ns_per_tick: u64) -> CpuTimes {
    let mut next_ns = || next_number(&mut words).map(|ticks| ticks.saturating_mul(ns_per_tick));
    CpuTimes {
        cpu_id: Some(cpu_id),
        user_ns: next_ns(),
        user_nice_ns: next_ns(),
        system_mode_ns: next_ns(),
        idle_ns: next_ns(),
        io_wait_ns: next_ns(),
        irq_ns: next_ns(),
        softirq_ns: next_ns(),
        steal_ns: next_ns(),
    }
}
