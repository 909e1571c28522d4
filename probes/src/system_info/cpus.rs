//! What each CPU is: from /proc/cpuinfo, and from its directory in /sys.

use std::collections::BTreeSet;
use std::io;
use std::path::Path;

use procfs_core::{CpuInfo as ProcCpuInfo, FromBufRead as _};
use watershed_wire::protos::CpuInfo;
use watershed_wire::protos::cpu_info::cpu::Identifier;
use watershed_wire::protos::cpu_info::{ArmCpuIdentifier, Cpu};

use crate::Roots;
use crate::cpus::cpu_dirs;
use crate::file::{read_number, read_path, text};

/// Larger numbers no kernel gives: they would only cost memory.
const CPUS_MAX: usize = 1 << 16;

/// Words of /proc/cpuinfo and their bits in `Cpu.features`: the format has no others.
const FEATURES: [&str; 2] = ["mte", "mte3"];

/// All CPUs by number. Readers of the format count the entries, so one that is offline has its own.
pub(super) fn read(roots: &Roots) -> io::Result<CpuInfo> {
    let mut scratch = Vec::new();
    let content = read_path(&roots.proc.join("cpuinfo"), &mut scratch)?;
    let info = ProcCpuInfo::from_buf_read(content).map_err(|error| io::Error::other(error.to_string()))?;
    let mut cpus = Vec::new();
    for index in 0..info.num_cores() {
        // Offline CPUs are not listed, so the index in the list is not the CPU's number.
        let number = info.get_field(index, "processor").and_then(|number| number.parse().ok());
        if let Some(cpu) = number.and_then(|number| entry(&mut cpus, number)) {
            describe(cpu, |field| info.get_field(index, field));
        }
    }
    // Without /sys there is what /proc says.
    for (number, dir) in cpu_dirs(&roots.sys).unwrap_or_default() {
        if let Some(cpu) = entry(&mut cpus, number as usize) {
            cpu.capacity = number_in(&dir.join("cpu_capacity"), &mut scratch);
            cpu.frequencies = frequencies_khz(&dir.join("cpufreq"), &mut scratch);
        }
    }
    Ok(CpuInfo { cpus })
}

/// The entry of that number, made with all before it.
fn entry(cpus: &mut Vec<Cpu>, number: usize) -> Option<&mut Cpu> {
    if number < CPUS_MAX && number >= cpus.len() {
        cpus.resize(number + 1, Cpu::default());
    }
    cpus.get_mut(number)
}

fn describe<'a>(cpu: &mut Cpu, field: impl Fn(&str) -> Option<&'a str>) {
    cpu.processor = field("Processor").or_else(|| field("model name")).map(str::to_owned);
    cpu.identifier = arm_identifier(&field).map(Identifier::ArmIdentifier);
    let words = field("Features").unwrap_or_default();
    let has = |feature: &str| words.split_whitespace().any(|word| word == feature);
    let bits = (0..).zip(FEATURES).filter(|(_, feature)| has(feature)).map(|(bit, _)| 1 << bit).sum();
    cpu.features = Some(bits).filter(|&bits: &u64| bits != 0);
}

/// What tells the kinds of Arm cores apart, if all of it is there.
fn arm_identifier<'a>(field: &impl Fn(&str) -> Option<&'a str>) -> Option<ArmCpuIdentifier> {
    let hexadecimal = |name: &str| u32::from_str_radix(field(name)?.trim_start_matches("0x"), 16).ok();
    let decimal = |name: &str| field(name)?.parse().ok();
    Some(ArmCpuIdentifier {
        implementer: Some(hexadecimal("CPU implementer")?),
        architecture: Some(decimal("CPU architecture")?),
        variant: Some(hexadecimal("CPU variant")?),
        part: Some(hexadecimal("CPU part")?),
        revision: Some(decimal("CPU revision")?),
    })
}

fn number_in(path: &Path, scratch: &mut Vec<u8>) -> Option<u32> {
    read_number(path, scratch).ok().and_then(|number| number.try_into().ok())
}

/// The frequencies that can be chosen, ascending. Not every driver has such a list.
fn frequencies_khz(dir: &Path, scratch: &mut Vec<u8>) -> Vec<u32> {
    let mut all = BTreeSet::new();
    for file in ["scaling_available_frequencies", "scaling_boost_frequencies"] {
        let list = read_path(&dir.join(file), scratch).and_then(text).unwrap_or_default();
        all.extend(list.split_whitespace().filter_map(|khz| khz.parse::<u32>().ok()));
    }
    all.into_iter().collect()
}
