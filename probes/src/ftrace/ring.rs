//! One of the kernel's tracing instances: its files, its state while we record, and its pages.
//!
//! An instance of our own is named `watershed-PID-START-N`: the process that made it and when that
//! process started. Whoever finds one whose process is gone removes it, with all that it had
//! enabled. Its `free_buffer` stays open meanwhile: when the process dies the kernel closes it,
//! stops the instance (`disable_on_free`) and frees its memory.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use procfs_core::FromRead as _;
use procfs_core::process::Stat;

use super::encoder::BundleClock;
use super::page::PageLayout;
use super::stats;
use super::tracefs::{self, TraceFs};
use crate::Roots;
use crate::clock::boottime_now_ns;

/// Begin of the names of our instances.
const PREFIX: &str = "watershed-";
/// Clocks by preference, with their numbers in the trace.
const CLOCKS: [(&str, u64); 3] = [("boot", 0), ("global", 2), ("local", 3)];
const MONOTONIC_RAW: (&str, u64) = ("mono_raw", 4);

/// An event: its group and its name.
pub(super) type EventName = (String, String);

/// The raw pages of one CPU.
#[derive(Debug)]
pub(super) struct Pipe {
    pub(super) cpu: u32,
    pub(super) file: File,
}

/// An instance, or the buffer of everybody.
#[derive(Debug)]
pub(super) struct Ring {
    dir: PathBuf,
    kind: Kind,
    pub(super) layout: PageLayout,
    clock: u64,
    pub(super) pipes: Vec<Pipe>,
    enabled: BTreeSet<EventName>,
}

#[derive(Debug)]
enum Kind {
    /// Ours; the kernel stops it when this file is closed.
    Own { _free_buffer: Option<File> },
    /// The buffer of everybody, where programs' texts go.
    Top { before: TopState, _marker: Marker },
}

/// What is put back at the end.
#[derive(Debug, PartialEq, Eq)]
struct TopState {
    clock: String,
    tracing_on: String,
}

/// An instance that records nothing: its name says that we have the buffer of everybody, and, after
/// a crash, what that had before. Dropping removes it.
#[derive(Debug)]
struct Marker(PathBuf);

impl Ring {
    /// Makes an instance that records nothing yet.
    pub(super) fn create(tracefs: &TraceFs, roots: &Roots, mono_raw: bool) -> Result<Self, String> {
        remove_stale(tracefs, roots);
        let dir = tracefs.root().join("instances").join(own_name(roots, ""));
        fs::create_dir(&dir)
            .map_err(|error| format!("cannot make a tracing instance at {}: {error}", dir.display()))?;
        // Where the kernel has the option only for everybody, the instance is stopped by whoever
        // records next.
        let _ = tracefs::write(&dir.join("options/disable_on_free"), "1");
        let free_buffer = OpenOptions::new().write(true).open(dir.join("free_buffer")).ok();
        let kind = Kind::Own { _free_buffer: free_buffer };
        let ring = Self::open(tracefs, dir.clone(), kind, mono_raw);
        if ring.is_err() {
            let _ = fs::remove_dir(&dir);
        }
        ring
    }

    /// Takes the buffer of everybody, unless somebody else uses it.
    pub(super) fn take_top(tracefs: &TraceFs, roots: &Roots, mono_raw: bool) -> Result<Self, String> {
        let dir = tracefs.root().to_owned();
        // What a recorder left behind that was killed is not what there was before.
        remove_stale(tracefs, roots);
        let before = TopState::read(&dir)?;
        let TopState { clock, tracing_on } = &before;
        // First the marker, then the look for others: of two that start together at
        // least one sees the other.
        let marker = Marker::new(&dir, &own_name(roots, &format!("-top-{clock}-{tracing_on}")))?;
        let used = used_by_others(&dir, &marker).or_else(|| {
            // Others put back what there was before they remove their marker.
            let is_same = TopState::read(&dir).is_ok_and(|now| now == before);
            (!is_same).then(|| "it was changed meanwhile".to_owned())
        });
        if let Some(used) = used {
            return Err(format!("the kernel's top-level buffer is in use by somebody else ({used})"));
        }
        Self::open(tracefs, dir, Kind::Top { before, _marker: marker }, mono_raw)
    }

    fn open(tracefs: &TraceFs, dir: PathBuf, kind: Kind, mono_raw: bool) -> Result<Self, String> {
        let text = tracefs::read(&tracefs.root().join("events/header_page")).map_err(|e| e.to_string())?;
        let layout = PageLayout::parse(&text).ok_or("events/header_page is not understood")?;
        let page_kb = tracefs::read(&dir.join("buffer_subbuf_size_kb")).ok();
        let layout = match page_kb.and_then(|kb| kb.trim().parse::<usize>().ok()) {
            Some(kb) if (1..=1024).contains(&kb) => layout.with_page_size(kb << 10),
            _ => layout,
        };
        let mut ring = Self { dir, kind, layout, clock: 0, pipes: Vec::new(), enabled: BTreeSet::new() };
        if matches!(ring.kind, Kind::Own { .. }) {
            ring.set_on(false).map_err(|e| format!("tracing_on: {e}"))?;
        }
        ring.clock = ring.choose_clock(mono_raw)?;
        ring.pipes = ring.open_pipes().map_err(|e| format!("trace_pipe_raw: {e}"))?;
        Ok(ring)
    }

    fn choose_clock(&self, mono_raw: bool) -> Result<u64, String> {
        let path = self.dir.join("trace_clock");
        let offered = tracefs::read(&path).map_err(|e| format!("trace_clock: {e}"))?;
        let is_offered = |name: &str| offered.split_whitespace().any(|c| c.trim_matches(['[', ']']) == name);
        let wanted = mono_raw.then_some(MONOTONIC_RAW).into_iter().chain(CLOCKS);
        for (name, number) in wanted.filter(|(name, _)| is_offered(name)) {
            // Writing the clock that is set already would empty the buffer.
            if current_clock(&self.dir).as_deref() == Some(name) || tracefs::write(&path, name).is_ok() {
                return Ok(number);
            }
        }
        Err(format!("no usable clock, the kernel offers {}", offered.trim()))
    }

    fn open_pipes(&self) -> io::Result<Vec<Pipe>> {
        let mut pipes = Vec::new();
        for entry in fs::read_dir(self.dir.join("per_cpu"))? {
            let entry = entry?;
            let cpu = entry.file_name().to_str().and_then(|name| name.strip_prefix("cpu")?.parse().ok());
            if let Some(cpu) = cpu {
                let flags = rustix::fs::OFlags::NONBLOCK.bits() as i32;
                let path = entry.path().join("trace_pipe_raw");
                let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
                pipes.push(Pipe { cpu, file });
            }
        }
        pipes.sort_by_key(|pipe| pipe.cpu);
        Ok(pipes)
    }

    /// Starts or stops recording into it.
    pub(super) fn set_on(&self, on: bool) -> io::Result<()> {
        tracefs::write(&self.dir.join("tracing_on"), if on { "1" } else { "0" })
    }

    /// Memory for each CPU, in KiB.
    pub(super) fn buffer_size_kb(&self) -> Option<u32> {
        let text = tracefs::read(&self.dir.join("buffer_size_kb")).ok()?;
        // "7 (expanded: 1408)" before the first use.
        text.split_whitespace().next()?.parse().ok()
    }

    pub(super) fn set_buffer_size_kb(&self, kb: u32) -> io::Result<()> {
        tracefs::write(&self.dir.join("buffer_size_kb"), &kb.to_string())
    }

    /// How full a CPU's memory is when its pipe becomes readable to those who wait.
    pub(super) fn set_buffer_percent(&self, percent: u32) -> io::Result<()> {
        tracefs::write(&self.dir.join("buffer_percent"), &percent.to_string())
    }

    /// One of the kernel's options, such as `stacktrace`.
    pub(super) fn set_option(&self, name: &str, on: bool) -> io::Result<()> {
        tracefs::write(&self.dir.join("options").join(name), if on { "1" } else { "0" })
    }

    /// Which CPUs record, as a hexadecimal mask.
    pub(super) fn set_cpumask(&self, mask: &str) -> io::Result<()> {
        tracefs::write(&self.dir.join("tracing_cpumask"), mask)
    }

    /// Enables these events and no others of those that we enabled. Returns those that the kernel
    /// refused.
    pub(super) fn set_events(&mut self, wanted: &BTreeSet<EventName>) -> Vec<EventName> {
        for event in self.enabled.difference(wanted) {
            let _ = self.set_event(event, false);
        }
        let mut refused = Vec::new();
        for event in wanted.difference(&self.enabled) {
            if self.set_event(event, true).is_err() {
                refused.push(event.clone());
            }
        }
        self.enabled = wanted.iter().filter(|event| !refused.contains(event)).cloned().collect();
        refused
    }

    fn set_event(&self, (group, name): &EventName, on: bool) -> io::Result<()> {
        // Events of the group ftrace have nothing to switch: they are written when they are caused.
        if group == "ftrace" {
            return Ok(());
        }
        let enable = self.dir.join("events").join(group).join(name).join("enable");
        tracefs::write(&enable, if on { "1" } else { "0" }).or_else(|_| {
            let not = if on { "" } else { "!" };
            tracefs::append(&self.dir.join("set_event"), &format!("{not}{group}:{name}"))
        })
    }

    /// Statistics of each CPU.
    pub(super) fn cpu_stats(&self) -> Vec<watershed_wire::protos::FtraceCpuStats> {
        let read = |cpu: u32| tracefs::read(&self.dir.join(format!("per_cpu/cpu{cpu}/stats"))).ok();
        self.pipes.iter().filter_map(|pipe| Some(stats::parse(pipe.cpu, &read(pipe.cpu)?))).collect()
    }

    /// The clock, for bundles that are written now.
    pub(super) fn bundle_clock(&self) -> BundleClock {
        let needs_snapshot = matches!(self.clock, 2 | 3);
        let snapshot_ns = needs_snapshot.then(|| self.clock_snapshot()).flatten();
        BundleClock { number: self.clock, snapshot_ns }
    }

    fn clock_snapshot(&self) -> Option<(u64, u64)> {
        let pipe = self.pipes.first()?;
        let text = tracefs::read(&self.dir.join(format!("per_cpu/cpu{}/stats", pipe.cpu))).ok()?;
        let now_s = stats::parse(pipe.cpu, &text).now_ts?;
        Some(((now_s * 1e9) as u64, boottime_now_ns()))
    }

    /// Reads pages of one CPU into `pages` until it has `pages_max`, or the CPU has no more. The
    /// second value says that it may have more.
    pub(super) fn read_pages(
        &self,
        pipe: usize,
        pages: &mut Vec<u8>,
        pages_max: usize,
        is_first: bool,
    ) -> io::Result<(usize, bool)> {
        let size = self.layout.page_size_bytes();
        pages.resize(size * pages_max, 0);
        let mut file = &self.pipes[pipe].file;
        let mut count = 0;
        while count < pages_max {
            let page = &mut pages[count * size..(count + 1) * size];
            match file.read(page) {
                Ok(read) if read == size => count += 1,
                Ok(0) => return Ok((count, false)),
                Ok(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if is_empty(&error) => return Ok((count, false)),
                Err(error) => return Err(error),
            }
            // A page that is not full is the one that the kernel writes to: what it has written
            // since is little. Only the first may be the rest of what was read before.
            let filled = u32::from_le_bytes([page[8], page[9], page[10], page[11]]) & 0x7FF_FFFF;
            if (filled as usize) < size / 2 && !(is_first && count == 1) {
                return Ok((count, false));
            }
        }
        Ok((count, true))
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.set_events(&BTreeSet::new());
        match &self.kind {
            Kind::Own { .. } => {
                let _ = self.set_on(false);
                // The kernel keeps an instance whose files are open.
                self.pipes.clear();
                self.kind = Kind::Own { _free_buffer: None };
                let _ = fs::remove_dir(&self.dir);
            }
            Kind::Top { before, .. } => restore_top(&self.dir, &before.clock, &before.tracing_on),
        }
    }
}

fn restore_top(dir: &Path, clock: &str, tracing_on: &str) {
    if current_clock(dir).as_deref() != Some(clock) {
        let _ = tracefs::write(&dir.join("trace_clock"), clock);
    }
    let _ = tracefs::write(&dir.join("tracing_on"), tracing_on);
}

/// What reading a CPU without data, or one that is offline, gives.
fn is_empty(error: &io::Error) -> bool {
    use rustix::io::Errno;
    let normal = [Errno::AGAIN, Errno::NOMEM, Errno::BUSY, Errno::NODEV];
    normal.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

impl TopState {
    fn read(dir: &Path) -> Result<Self, String> {
        let clock = current_clock(dir).unwrap_or_else(|| "local".to_owned());
        let tracing_on = tracefs::read(&dir.join("tracing_on")).map_err(|e| e.to_string())?;
        Ok(Self { clock, tracing_on: tracing_on.trim().to_owned() })
    }
}

impl Marker {
    fn new(root: &Path, name: &str) -> Result<Self, String> {
        let marker = root.join("instances").join(name);
        fs::create_dir(&marker).map_err(|e| format!("cannot make {}: {e}", marker.display()))?;
        let _ = tracefs::write(&marker.join("tracing_on"), "0");
        Ok(Self(marker))
    }
}

impl Drop for Marker {
    fn drop(&mut self) {
        let _ = fs::remove_dir(&self.0);
    }
}

fn current_clock(dir: &Path) -> Option<String> {
    let text = tracefs::read(&dir.join("trace_clock")).ok()?;
    Some(text.split_once('[')?.1.split_once(']')?.0.to_owned())
}

/// What says that somebody traces with the buffer of everybody.
fn used_by_others(dir: &Path, own: &Marker) -> Option<String> {
    let content = |name: &str| tracefs::read(&dir.join(name)).unwrap_or_default();
    let tracer = content("current_tracer");
    if !matches!(tracer.trim(), "nop" | "") {
        return Some(format!("current_tracer is {}", tracer.trim()));
    }
    let events = content("set_event");
    if let Some(event) = events.lines().next() {
        return Some(format!("it records {event}"));
    }
    // Those of processes that have ended were removed before.
    let instances = fs::read_dir(dir.join("instances")).into_iter().flatten().flatten();
    let names = instances.filter_map(|entry| entry.file_name().into_string().ok());
    let is_own = |name: &str| own.0.ends_with(name);
    let mut markers = names.filter(|name| name.starts_with(PREFIX) && name.contains("-top-"));
    markers.find(|name| !is_own(name)).map(|marker| format!("another recording, {marker}"))
}

/// Two rings of one process have different names.
fn own_name(roots: &Roots, suffix: &str) -> String {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let pid = std::process::id();
    let start = start_ticks(roots, pid).unwrap_or(0);
    // Relaxed: only that no two are equal matters.
    format!("{PREFIX}{pid}-{start}-{}{suffix}", NUMBER.fetch_add(1, Ordering::Relaxed))
}

fn start_ticks(roots: &Roots, pid: u32) -> Option<u64> {
    let line = fs::read(roots.proc.join(format!("{pid}/stat"))).ok()?;
    Stat::from_read(line.as_slice()).ok().map(|stat| stat.starttime)
}

/// Removes what processes left behind that ended without cleaning up.
fn remove_stale(tracefs: &TraceFs, roots: &Roots) {
    let Ok(entries) = fs::read_dir(tracefs.root().join("instances")) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let Some(name) = name.to_str().and_then(|name| name.strip_prefix(PREFIX)) else { continue };
        let mut parts = name.splitn(4, '-');
        let mut number = || parts.next()?.parse::<u64>().ok();
        let (Some(pid), Some(start), Some(_)) = (number(), number(), number()) else { continue };
        if start_ticks(roots, pid as u32) == Some(start) {
            continue;
        }
        if let Some((clock, on)) = parts.next().and_then(|p| p.strip_prefix("top-")?.split_once('-')) {
            restore_top(tracefs.root(), clock, on);
        }
        // One that is in use cannot be removed: it is of a process that we do not see.
        let _ = tracefs::write(&entry.path().join("tracing_on"), "0");
        let _ = fs::remove_dir(entry.path());
    }
}

#[cfg(test)]
#[path = "ring_tests.rs"]
mod tests;
