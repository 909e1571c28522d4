//! Memory: /proc/meminfo, /proc/vmstat, /proc/buddyinfo, /proc/slabinfo.

use super::meminfo_keys::MEMINFO_KEYS;
use super::{Section, Setup};
use crate::file::{KeptFile, text};
use procfs_core::{FromBufRead, Meminfo, VmStat};
use std::collections::HashMap;
use std::io;
use watershed_wire::protos::sys_stats::{BuddyInfo, MeminfoValue, SlabInfo, VmstatValue};
use watershed_wire::protos::{MeminfoCounters, SysStats, VmstatCounters};

/// The counters that a filter list selects: all that are known when it is empty.
fn selected<T: Copy + PartialEq>(all: impl Iterator<Item = T>, wanted: &[T]) -> Vec<T> {
    all.filter(|k| wanted.is_empty() || wanted.contains(k)).collect()
}

/// Says which numbers of a filter list have no counter behind them.
fn say_unserved(
    setup: &Setup<'_>,
    field: &str,
    wanted: &[i32],
    served: impl Fn(i32) -> bool,
    name: impl Fn(i32) -> String,
) {
    let unserved: Vec<String> = wanted.iter().filter(|&&k| !served(k)).map(|&k| name(k)).collect();
    if !unserved.is_empty() {
        setup.say(format!("{field}: not on this machine: {}", unserved.join(", ")));
    }
}

struct MeminfoSection {
    file: KeptFile,
    /// Places in `MEMINFO_KEYS`.
    keys: Vec<usize>,
}

pub(super) fn meminfo(setup: &mut Setup<'_>) -> io::Result<Box<dyn Section>> {
    let file = KeptFile::open(setup.roots.proc.join("meminfo"))?;
    let now = parse_meminfo(file.read(&mut setup.scratch)?)?;
    let wanted = &setup.config.meminfo_counters;
    let served = |key: i32| MEMINFO_KEYS.iter().any(|(k, field)| *k as i32 == key && field(&now).is_some());
    say_unserved(setup, "meminfo_counters", wanted, served, |k| {
        MeminfoCounters::try_from(k).map_or_else(|_| k.to_string(), |k| k.as_str_name().to_owned())
    });
    let keys = (0..MEMINFO_KEYS.len())
        .filter(|&i| wanted.is_empty() || wanted.contains(&(MEMINFO_KEYS[i].0 as i32)))
        .collect();
    Ok(Box::new(MeminfoSection { file, keys }))
}

fn parse_meminfo(content: &[u8]) -> io::Result<Meminfo> {
    Meminfo::from_buf_read(content).map_err(invalid)
}

impl Section for MeminfoSection {
    fn sample(&mut self, scratch: &mut Vec<u8>, into: &mut SysStats) -> io::Result<()> {
        let now = parse_meminfo(self.file.read(scratch)?)?;
        for &i in &self.keys {
            let (key, field) = MEMINFO_KEYS[i];
            if let Some(bytes) = field(&now) {
                into.meminfo.push(MeminfoValue {
                    key: Some(key as i32),
                    // The format's unit is that of the file, KiB; the crate has made bytes of it.
                    value: Some(bytes / 1024),
                });
            }
        }
        Ok(())
    }
}

struct VmstatSection {
    file: KeptFile,
    /// Number in the format and the file's name of each counter, in the order of numbers.
    keys: Vec<(i32, String)>,
}

pub(super) fn vmstat(setup: &mut Setup<'_>) -> io::Result<Box<dyn Section>> {
    let file = KeptFile::open(setup.roots.proc.join("vmstat"))?;
    let now = parse_vmstat(file.read(&mut setup.scratch)?)?;
    let mut known: Vec<(i32, String)> =
        now.0.into_keys().filter_map(|n| Some((vmstat_key(&n)?, n))).collect();
    known.sort_unstable();
    let wanted = &setup.config.vmstat_counters;
    let served = |key: i32| known.iter().any(|(k, _)| *k == key);
    say_unserved(setup, "vmstat_counters", wanted, served, |k| {
        VmstatCounters::try_from(k).map_or_else(|_| k.to_string(), |k| k.as_str_name().to_owned())
    });
    let numbers = selected(known.iter().map(|(k, _)| *k), wanted);
    known.retain(|(k, _)| numbers.contains(k));
    Ok(Box::new(VmstatSection { file, keys: known }))
}

/// The format names a counter as the kernel does, in capitals with a prefix.
fn vmstat_key(name: &str) -> Option<i32> {
    VmstatCounters::from_str_name(&format!("VMSTAT_{}", name.to_ascii_uppercase())).map(|k| k as i32)
}

fn parse_vmstat(content: &[u8]) -> io::Result<VmStat> {
    VmStat::from_buf_read(content).map_err(invalid)
}

impl Section for VmstatSection {
    fn sample(&mut self, scratch: &mut Vec<u8>, into: &mut SysStats) -> io::Result<()> {
        let now: HashMap<String, i64> = parse_vmstat(self.file.read(scratch)?)?.0;
        for (key, name) in &self.keys {
            if let Some(&value) = now.get(name) {
                into.vmstat
                    .push(VmstatValue { key: Some(*key), value: Some(u64::try_from(value).unwrap_or(0)) });
            }
        }
        Ok(())
    }
}

struct BuddySection(KeptFile);

pub(super) fn buddyinfo(setup: &mut Setup<'_>) -> io::Result<Box<dyn Section>> {
    Ok(Box::new(BuddySection(KeptFile::open(setup.roots.proc.join("buddyinfo"))?)))
}

impl Section for BuddySection {
    fn sample(&mut self, scratch: &mut Vec<u8>, into: &mut SysStats) -> io::Result<()> {
        into.buddy_info.extend(text(self.0.read(scratch)?)?.lines().filter_map(parse_buddy_line));
        Ok(())
    }
}

/// `Node 0, zone   Normal    328    198 ...`: free blocks of 2^0, 2^1, ... pages. The crate has no
/// parser for it.
fn parse_buddy_line(line: &str) -> Option<BuddyInfo> {
    let (node, rest) = line.strip_prefix("Node ")?.split_once(", zone")?;
    let mut words = rest.split_ascii_whitespace();
    Some(BuddyInfo {
        node: Some(node.trim().to_owned()),
        zone: Some(words.next()?.to_owned()),
        order_pages: words.map_while(|w| w.parse().ok()).collect(),
    })
}

struct SlabSection(KeptFile);

pub(super) fn slabinfo(setup: &mut Setup<'_>) -> io::Result<Box<dyn Section>> {
    Ok(Box::new(SlabSection(KeptFile::open(setup.roots.proc.join("slabinfo"))?)))
}

impl Section for SlabSection {
    fn sample(&mut self, scratch: &mut Vec<u8>, into: &mut SysStats) -> io::Result<()> {
        // Two lines of headings come first.
        let lines = text(self.0.read(scratch)?)?.lines().skip(2);
        into.slab_info.extend(lines.filter_map(parse_slab_line));
        Ok(())
    }
}

/// `name active objs objsize objperslab pagesperslab : tunables a b c : slabdata active_slabs
/// num_slabs sharedavail`
fn parse_slab_line(line: &str) -> Option<SlabInfo> {
    let (object, rest) = line.split_once(" : tunables ")?;
    let (_, slabs) = rest.split_once(": slabdata ")?;
    let mut object = object.split_ascii_whitespace();
    Some(SlabInfo {
        name: Some(object.next()?.to_owned()),
        pages_per_slab: object.nth(4)?.parse().ok(),
        num_slabs: slabs.split_ascii_whitespace().nth(1)?.parse().ok(),
    })
}

fn invalid(e: procfs_core::ProcError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e.to_string())
}
