//! Disks, pressure, temperatures, frequencies of devices other than CPUs.

use super::{Section, Setup};
use crate::file::{KeptFile, read_number, read_path, text};
use procfs_core::{DiskStats, FromBufRead};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use watershed_wire::protos::SysStats;
use watershed_wire::protos::sys_stats::psi_sample::PsiResource;
use watershed_wire::protos::sys_stats::{DevfreqValue, DiskStat, PsiSample, ThermalZone};

fn not_found(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, what)
}

/// Entries of a directory whose names start with `prefix`, by name.
fn entries(dir: &Path, prefix: &str) -> io::Result<Vec<(String, PathBuf)>> {
    let mut found: Vec<(String, PathBuf)> = fs::read_dir(dir)?
        .filter_map(Result::ok)
        .filter_map(|e| Some((e.file_name().to_str()?.to_owned(), e.path())))
        .filter(|(name, _)| name.starts_with(prefix))
        .collect();
    found.sort_unstable();
    Ok(found)
}

struct DiskSection {
    file: KeptFile,
    first: bool,
}

pub(super) fn diskstat(setup: &mut Setup<'_>) -> io::Result<Box<dyn Section>> {
    Ok(Box::new(DiskSection { file: KeptFile::open(setup.roots.proc.join("diskstats"))?, first: true }))
}

impl Section for DiskSection {
    fn sample(&mut self, scratch: &mut Vec<u8>, into: &mut SysStats) -> io::Result<()> {
        let disks = DiskStats::from_buf_read(self.file.read(scratch)?)
            .map_err(|e| io::Error::other(e.to_string()))?;
        for d in disks.0 {
            // A device that was never used (loop, ram) is reported once, so that a later reading
            // has a value to compare with.
            let used = d.reads + d.writes + d.discards.unwrap_or(0) + d.flushes.unwrap_or(0) > 0;
            if used || self.first {
                into.disk_stat.push(DiskStat {
                    device_name: Some(d.name),
                    read_sectors: Some(d.sectors_read),
                    read_time_ms: Some(d.time_reading),
                    write_sectors: Some(d.sectors_written),
                    write_time_ms: Some(d.time_writing),
                    discard_sectors: d.sectors_discarded,
                    discard_time_ms: d.time_discarding,
                    flush_count: d.flushes,
                    flush_time_ms: d.time_flushing,
                });
            }
        }
        self.first = false;
        Ok(())
    }
}

struct PressureSection(Vec<(KeptFile, PsiResource, PsiResource)>);

pub(super) fn pressure(setup: &mut Setup<'_>) -> io::Result<Box<dyn Section>> {
    let dir = setup.roots.proc.join("pressure");
    let resources = [
        ("cpu", PsiResource::CpuSome, PsiResource::CpuFull),
        ("io", PsiResource::IoSome, PsiResource::IoFull),
        ("memory", PsiResource::MemorySome, PsiResource::MemoryFull),
    ];
    let mut files = Vec::new();
    for (name, some, full) in resources {
        // With psi=0 on the kernel's command line the files are there and reading them fails.
        let file = KeptFile::open(dir.join(name))?;
        file.read(&mut setup.scratch)?;
        files.push((file, some, full));
    }
    Ok(Box::new(PressureSection(files)))
}

impl Section for PressureSection {
    fn sample(&mut self, scratch: &mut Vec<u8>, into: &mut SysStats) -> io::Result<()> {
        for (file, some, full) in &self.0 {
            // Line by line, not the crate's record of a whole file: that one wants `full`, which
            // cpu had not before 5.13.
            for line in text(file.read(scratch)?)?.lines() {
                let resource = if line.starts_with("some") { some } else { full };
                if let Ok(record) = procfs_core::parse_pressure_record(line) {
                    into.psi.push(PsiSample {
                        resource: Some(*resource as i32),
                        total_ns: Some(record.total.saturating_mul(1000)),
                    });
                }
            }
        }
        Ok(())
    }
}

struct Zone {
    name: String,
    kind: Option<String>,
    temp: PathBuf,
}

struct ThermalSection(Vec<Zone>);

pub(super) fn thermal(setup: &mut Setup<'_>) -> io::Result<Box<dyn Section>> {
    let mut zones = Vec::new();
    for (name, dir) in entries(&setup.roots.sys.join("class/thermal"), "thermal_zone")? {
        let kind = read_path(&dir.join("type"), &mut setup.scratch).and_then(text).ok();
        zones.push(Zone { name, kind: kind.map(|k| k.trim().to_owned()), temp: dir.join("temp") });
    }
    if zones.is_empty() {
        return Err(not_found("no thermal zones in /sys/class/thermal"));
    }
    Ok(Box::new(ThermalSection(zones)))
}

impl Section for ThermalSection {
    fn sample(&mut self, scratch: &mut Vec<u8>, into: &mut SysStats) -> io::Result<()> {
        for zone in &self.0 {
            // Thousandths of a degree in the file, degrees in the format, which has no negative
            // ones.
            let temp = read_number(&zone.temp, scratch).ok().map(|t| t / 1000);
            if let Some(temp) = temp.and_then(|t| u64::try_from(t).ok()) {
                into.thermal_zone.push(ThermalZone {
                    name: Some(zone.name.clone()),
                    temp: Some(temp),
                    r#type: zone.kind.clone(),
                });
            }
        }
        Ok(())
    }
}

struct DevfreqSection(Vec<(String, PathBuf)>);

pub(super) fn devfreq(setup: &mut Setup<'_>) -> io::Result<Box<dyn Section>> {
    let devices = entries(&setup.roots.sys.join("class/devfreq"), "")?;
    if devices.is_empty() {
        return Err(not_found("no devices in /sys/class/devfreq"));
    }
    let files = devices.into_iter().map(|(name, dir)| (name, dir.join("cur_freq")));
    Ok(Box::new(DevfreqSection(files.collect())))
}

impl Section for DevfreqSection {
    fn sample(&mut self, scratch: &mut Vec<u8>, into: &mut SysStats) -> io::Result<()> {
        for (name, path) in &self.0 {
            if let Some(value) = read_number(path, scratch).ok().and_then(|v| u64::try_from(v).ok()) {
                into.devfreq.push(DevfreqValue { key: Some(name.clone()), value: Some(value) });
            }
        }
        Ok(())
    }
}

/// Where each vendor's driver shows the frequency.
enum Gpu {
    /// Adreno, in Hz.
    Kgsl(PathBuf),
    /// Intel i915, in MHz.
    Intel(PathBuf),
    /// amdgpu: a table whose present row is marked with `*`.
    Amd(PathBuf),
}

struct GpuSection(Vec<Gpu>);

pub(super) fn gpufreq(setup: &mut Setup<'_>) -> io::Result<Box<dyn Section>> {
    let class = setup.roots.sys.join("class");
    let mut gpus = vec![Gpu::Kgsl(class.join("kgsl/kgsl-3d0/devfreq/cur_freq"))];
    for (_, card) in entries(&class.join("drm"), "card").unwrap_or_default() {
        gpus.push(Gpu::Intel(card.join("gt_act_freq_mhz")));
        gpus.push(Gpu::Amd(card.join("device/pp_dpm_sclk")));
    }
    gpus.retain(|g| gpu_mhz(g, &mut setup.scratch).is_some());
    if gpus.is_empty() {
        return Err(not_found("no GPU frequency in /sys/class"));
    }
    Ok(Box::new(GpuSection(gpus)))
}

fn gpu_mhz(gpu: &Gpu, scratch: &mut Vec<u8>) -> Option<u64> {
    let number = |path, scratch| u64::try_from(read_number(path, scratch).ok()?).ok();
    match gpu {
        Gpu::Kgsl(path) => Some(number(path, scratch)? / 1_000_000),
        Gpu::Intel(path) => number(path, scratch),
        Gpu::Amd(path) => {
            let table = text(read_path(path, scratch).ok()?).ok()?;
            let row = table.lines().find_map(|l| l.trim_end().strip_suffix('*'))?;
            row.split_ascii_whitespace().find_map(|w| {
                let (number, unit) = w.split_at_checked(w.len().checked_sub(3)?)?;
                unit.eq_ignore_ascii_case("mhz").then(|| number.parse().ok())?
            })
        }
    }
}

impl Section for GpuSection {
    fn sample(&mut self, scratch: &mut Vec<u8>, into: &mut SysStats) -> io::Result<()> {
        into.gpufreq_mhz.extend(self.0.iter().filter_map(|g| gpu_mhz(g, scratch)));
        Ok(())
    }
}
