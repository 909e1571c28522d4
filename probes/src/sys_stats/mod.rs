//! `linux.sys_stats`: counters of the whole machine.
//!
//! ```text
//!   SysStatsConfig        one Section for each *_period_ms > 0      one packet a wake-up
//!   meminfo_period_ms --> meminfo   due 250, 500, ... ms  --.
//!   stat_period_ms    --> stat      due 250, 500, ... ms  ---+--> SysStats { meminfo, ... }
//!   psi_period_ms     --> pressure  due 1000, 2000 ... ms --'
//! ```
//!
//! Each section has its own period and they need not be multiples of each other. What the machine
//! lacks is said once, as a [`Notice`](crate::Notice), when the source is set up, and the other
//! sections go on.

mod cpu;
mod devices;
mod meminfo_keys;
mod memory;
mod stat;

use crate::clock::boottime_now_ns;
use crate::probe::Probe;
use crate::schedule::clamp_period_ms;
use crate::{Notices, Roots, Schedule};
use std::io;
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{SysStats, SysStatsConfig, TracePacket};

/// The name under which configs ask for this source.
pub const SYS_STATS_NAME: &str = "linux.sys_stats";

/// Shorter periods are raised to this, as Perfetto's probes do.
pub const SYS_STATS_PERIOD_MS_MIN: u32 = 10;

/// A part of `SysStats` that is read with its own period.
trait Section: Send {
    /// Reads the machine and adds to `into`. `scratch` is a buffer whose content is of no meaning.
    fn sample(&mut self, scratch: &mut Vec<u8>, into: &mut SysStats) -> io::Result<()>;
}

/// What a section needs to come into being.
struct Setup<'a> {
    roots: &'a Roots,
    config: &'a SysStatsConfig,
    notices: &'a Notices,
    scratch: Vec<u8>,
}

impl Setup<'_> {
    fn say(&self, text: impl Into<String>) {
        self.notices.add(SYS_STATS_NAME, text);
    }
}

type MakeSection = fn(&mut Setup<'_>) -> io::Result<Box<dyn Section>>;
type PeriodOf = fn(&SysStatsConfig) -> u32;

/// Every section: the config field that turns it on, its period, how it is made.
const SECTIONS: [(&str, PeriodOf, MakeSection); 12] = [
    ("meminfo_period_ms", |c| c.meminfo_period_ms(), memory::meminfo),
    ("vmstat_period_ms", |c| c.vmstat_period_ms(), memory::vmstat),
    ("stat_period_ms", |c| c.stat_period_ms(), stat::stat),
    ("devfreq_period_ms", |c| c.devfreq_period_ms(), devices::devfreq),
    ("cpufreq_period_ms", |c| c.cpufreq_period_ms(), cpu::cpufreq),
    ("buddyinfo_period_ms", |c| c.buddyinfo_period_ms(), memory::buddyinfo),
    ("diskstat_period_ms", |c| c.diskstat_period_ms(), devices::diskstat),
    ("psi_period_ms", |c| c.psi_period_ms(), devices::pressure),
    ("thermal_period_ms", |c| c.thermal_period_ms(), devices::thermal),
    ("cpuidle_period_ms", |c| c.cpuidle_period_ms(), cpu::cpuidle),
    ("gpufreq_period_ms", |c| c.gpufreq_period_ms(), devices::gpufreq),
    ("slab_period_ms", |c| c.slab_period_ms(), memory::slabinfo),
];

struct Scheduled {
    field: &'static str,
    schedule: Schedule,
    section: Box<dyn Section>,
    failed: bool,
}

/// The probe behind `linux.sys_stats`.
pub struct SysStatsProbe {
    sections: Vec<Scheduled>,
    notices: Notices,
    scratch: Vec<u8>,
    packet: TracePacket,
}

impl SysStatsProbe {
    /// Sets up the sections that `config` turns on. What this machine cannot serve goes to
    /// `notices`.
    pub fn new(roots: &Roots, config: &SysStatsConfig, notices: &Notices) -> Self {
        let mut setup = Setup { roots, config, notices, scratch: Vec::new() };
        let mut sections = Vec::new();
        let mut asked = 0;
        for (field, period_of, make) in SECTIONS {
            let (period_ms, raised) = clamp_period_ms(period_of(config), SYS_STATS_PERIOD_MS_MIN);
            if period_ms == 0 {
                continue;
            }
            asked += 1;
            if raised {
                setup.say(format!("{field} raised to {SYS_STATS_PERIOD_MS_MIN}"));
            }
            match make(&mut setup) {
                Ok(section) => sections.push(Scheduled {
                    field,
                    schedule: Schedule::new(period_ms),
                    section,
                    failed: false,
                }),
                Err(e) => setup.say(format!("{field}: not on this machine, nothing is recorded ({e})")),
            }
        }
        if asked == 0 {
            setup.say("no period is set in sys_stats_config, nothing is recorded");
        }
        Self { sections, notices: notices.clone(), scratch: setup.scratch, packet: TracePacket::default() }
    }

    fn sample_due(&mut self, now_ns: u64, into: &mut SysStats) -> bool {
        let mut sampled = false;
        for s in &mut self.sections {
            if !s.schedule.take_due(now_ns) {
                continue;
            }
            match s.section.sample(&mut self.scratch, into) {
                Ok(()) => sampled = true,
                Err(e) if !s.failed => {
                    s.failed = true;
                    self.notices.add(SYS_STATS_NAME, format!("{}: a reading failed ({e})", s.field));
                }
                Err(_) => {}
            }
        }
        sampled
    }
}

impl Probe for SysStatsProbe {
    fn due_ns(&self) -> Option<u64> {
        self.sections.iter().map(|s| s.schedule.due_ns()).min()
    }

    fn poll(&mut self, now_ns: u64, emit: &mut dyn FnMut(&TracePacket)) {
        let mut stats = match self.packet.data.take() {
            Some(Data::SysStats(stats)) => stats,
            _ => SysStats::default(),
        };
        clear(&mut stats);
        let sampled = self.sample_due(now_ns, &mut stats);
        stats.collection_end_timestamp = Some(boottime_now_ns());
        self.packet.timestamp = Some(now_ns);
        self.packet.data = Some(Data::SysStats(stats));
        if sampled {
            emit(&self.packet);
        }
    }

    fn hurry(&mut self) {
        for s in &mut self.sections {
            s.schedule.hurry();
        }
    }
}

/// Empties a `SysStats` and keeps the memory of its lists.
fn clear(stats: &mut SysStats) {
    macro_rules! keep {
        ($($list:ident),*) => {{
            $(let mut $list = std::mem::take(&mut stats.$list); $list.clear();)*
            *stats = SysStats { $($list,)* ..SysStats::default() };
        }};
    }
    keep!(meminfo, vmstat, cpu_stat, num_irq, num_softirq, cpufreq_khz, disk_stat, psi);
}

#[cfg(test)]
mod tests;
