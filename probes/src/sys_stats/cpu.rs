//! CPUs: frequencies and idle states, from /sys.

use super::{Section, Setup};
use crate::cpus::cpu_dirs;
use crate::file::{KeptFile, read_number, read_path, text};
use procfs_core::{CpuInfo, FromBufRead};
use std::io;
use std::path::{Path, PathBuf};
use watershed_wire::protos::SysStats;
use watershed_wire::protos::sys_stats::{CpuIdleState, CpuIdleStateEntry};

/// One frequency for each CPU from 0 on; 0 for one that is offline.
struct SysfsFrequency {
    /// By CPU number; a number that does not exist has no path.
    paths: Vec<Option<PathBuf>>,
}

/// For machines without cpufreq (most virtual ones): what /proc/cpuinfo says.
struct CpuinfoFrequency(KeptFile);

pub(super) fn cpufreq(setup: &mut Setup<'_>) -> io::Result<Box<dyn Section>> {
    let mut paths = Vec::new();
    for (cpu, dir) in cpu_dirs(&setup.roots.sys)? {
        paths.resize((cpu as usize).max(paths.len()), None);
        paths.push(Some(dir.join("cpufreq/scaling_cur_freq")));
    }
    if paths.iter().flatten().any(|p| p.exists()) {
        return Ok(Box::new(SysfsFrequency { paths }));
    }
    let file = KeptFile::open(setup.roots.proc.join("cpuinfo"))?;
    if cpuinfo_khz(file.read(&mut setup.scratch)?)?.iter().all(|&khz| khz == 0) {
        return Err(io::Error::new(
            io::ErrorKind::NotFound,
            "neither cpufreq in /sys nor a frequency in /proc/cpuinfo",
        ));
    }
    setup.say("cpufreq_period_ms: no cpufreq in /sys, frequencies are those of /proc/cpuinfo");
    Ok(Box::new(CpuinfoFrequency(file)))
}

impl Section for SysfsFrequency {
    fn sample(&mut self, scratch: &mut Vec<u8>, into: &mut SysStats) -> io::Result<()> {
        into.cpufreq_khz.extend(self.paths.iter().map(|path| {
            let khz = path.as_ref().and_then(|p| read_number(p, scratch).ok());
            khz.and_then(|khz| u32::try_from(khz).ok()).unwrap_or(0)
        }));
        Ok(())
    }
}

impl Section for CpuinfoFrequency {
    fn sample(&mut self, scratch: &mut Vec<u8>, into: &mut SysStats) -> io::Result<()> {
        into.cpufreq_khz.extend(cpuinfo_khz(self.0.read(scratch)?)?);
        Ok(())
    }
}

fn cpuinfo_khz(content: &[u8]) -> io::Result<Vec<u32>> {
    let info = CpuInfo::from_buf_read(content).map_err(|e| io::Error::other(e.to_string()))?;
    let mut khz = Vec::new();
    for i in 0..info.num_cores() {
        // Offline CPUs are not listed, so the index in the list is not the CPU's number.
        let cpu = info.get_field(i, "processor").and_then(|n| n.parse().ok()).unwrap_or(i);
        let mhz: f64 = info.get_field(i, "cpu MHz").and_then(|f| f.parse().ok()).unwrap_or(0.0);
        if cpu < 1 << 16 {
            khz.resize(khz.len().max(cpu + 1), 0);
            khz[cpu] = (mhz * 1000.0).round() as u32;
        }
    }
    Ok(khz)
}

struct IdleCpu {
    cpu_id: u32,
    /// Name of each state and the file of the time spent in it.
    states: Vec<(String, PathBuf)>,
}

struct IdleSection(Vec<IdleCpu>);

pub(super) fn cpuidle(setup: &mut Setup<'_>) -> io::Result<Box<dyn Section>> {
    let mut cpus = Vec::new();
    for (cpu_id, dir) in cpu_dirs(&setup.roots.sys)? {
        let states = idle_states(&dir.join("cpuidle"), &mut setup.scratch);
        if !states.is_empty() {
            cpus.push(IdleCpu { cpu_id, states });
        }
    }
    if cpus.is_empty() {
        return Err(io::Error::new(io::ErrorKind::NotFound, "no cpuidle in /sys/devices/system/cpu"));
    }
    Ok(Box::new(IdleSection(cpus)))
}

fn idle_states(dir: &Path, scratch: &mut Vec<u8>) -> Vec<(String, PathBuf)> {
    let mut states = Vec::new();
    for n in 0.. {
        let state = dir.join(format!("state{n}"));
        let Ok(name) = read_path(&state.join("name"), scratch).and_then(text) else {
            break;
        };
        states.push((name.trim().to_owned(), state.join("time")));
    }
    states
}

impl Section for IdleSection {
    fn sample(&mut self, scratch: &mut Vec<u8>, into: &mut SysStats) -> io::Result<()> {
        for cpu in &self.0 {
            let entries = cpu.states.iter().filter_map(|(name, path)| {
                Some(CpuIdleStateEntry {
                    state: Some(name.clone()),
                    duration_us: u64::try_from(read_number(path, scratch).ok()?).ok(),
                })
            });
            into.cpuidle_state
                .push(CpuIdleState { cpu_id: Some(cpu.cpu_id), cpuidle_state_entry: entries.collect() });
        }
        Ok(())
    }
}
