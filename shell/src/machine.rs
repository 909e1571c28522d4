//! What a shell reads of the machine for the service.

use std::hash::{BuildHasher, Hasher};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use watershed_service::{ClockReadings, PeerIdentity, Shards, SystemInfo};

/// Nanoseconds of a clock of the system; 0 for a wall clock before 1970.
#[must_use]
pub fn read_ns(clock: ClockId) -> u64 {
    let now = clock_gettime(clock);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1_000_000_000 + u64::try_from(now.tv_nsec).unwrap_or(0)
}

/// Nanoseconds of CLOCK_MONOTONIC, on which timers run.
#[must_use]
pub fn monotonic_ns() -> u64 {
    read_ns(ClockId::Monotonic)
}

/// CPU time of the calling thread.
#[must_use]
pub fn thread_cpu_time() -> Duration {
    Duration::from_nanos(read_ns(ClockId::ThreadCPUTime))
}

/// All clocks, one right after the other.
#[must_use]
pub fn read_clocks() -> ClockReadings {
    let monotonic_ns = monotonic_ns();
    let realtime_ns = read_ns(ClockId::Realtime);
    #[cfg(any(target_os = "linux", target_os = "android"))]
    let readings = ClockReadings {
        boottime_ns: read_ns(ClockId::Boottime),
        realtime_coarse_ns: read_ns(ClockId::RealtimeCoarse),
        monotonic_coarse_ns: read_ns(ClockId::MonotonicCoarse),
        realtime_ns,
        monotonic_ns,
        monotonic_raw_ns: read_ns(ClockId::MonotonicRaw),
        tsc_cycles: None,
    };
    // Elsewhere there are two clocks; the others are what they approximate.
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    let readings = ClockReadings {
        boottime_ns: monotonic_ns,
        realtime_coarse_ns: realtime_ns,
        monotonic_coarse_ns: monotonic_ns,
        realtime_ns,
        monotonic_ns,
        monotonic_raw_ns: monotonic_ns,
        tsc_cycles: None,
    };
    readings
}

/// This process, as a peer of the service in it.
#[must_use]
pub fn identity() -> PeerIdentity {
    PeerIdentity {
        uid: rustix::process::getuid().as_raw().cast_signed(),
        pid: Some(std::process::id().cast_signed()),
        machine_id: 0,
        machine_name: String::new(),
    }
}

/// A number that nobody can guess.
#[must_use]
pub fn seed() -> u64 {
    std::hash::RandomState::new().build_hasher().finish()
}

/// Name and version of the service for traces and clients. Readers of traces want it to begin like
/// that.
#[must_use]
pub fn service_version() -> String {
    format!("Perfetto v58.0-watershed-{}", env!("CARGO_PKG_VERSION"))
}

/// Up to one shard for each CPU that this process may keep busy, by affinity and by the control
/// group's quota.
#[must_use]
pub fn default_shards() -> Shards {
    Shards::UpTo(std::thread::available_parallelism().map_or(1, usize::from))
}

/// What a trace says about this machine; the offset of local time is not known here.
#[must_use]
pub fn system_info() -> SystemInfo {
    let uname = rustix::system::uname();
    let text = |text: &std::ffi::CStr| text.to_string_lossy().into_owned();
    SystemInfo {
        sysname: text(uname.sysname()),
        version: text(uname.version()),
        release: text(uname.release()),
        machine: text(uname.machine()),
        page_size_bytes: u32::try_from(rustix::param::page_size()).ok(),
        timezone_off_mins: None,
        num_cpus: configured_cpus(),
        system_ram_bytes: ram_bytes(),
    }
}

/// Processors that the system has, which may be more than this process may use.
fn configured_cpus() -> Option<u32> {
    let list = std::fs::read_to_string("/sys/devices/system/cpu/present").ok();
    list.and_then(|list| count_of_list(list.trim()))
        .or_else(|| std::thread::available_parallelism().ok().and_then(|cpus| u32::try_from(cpus.get()).ok()))
}

/// How many numbers a list like `0-3,8` has.
fn count_of_list(list: &str) -> Option<u32> {
    list.split(',')
        .map(|range| {
            let (first, last) = range.split_once('-').unwrap_or((range, range));
            last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)?.checked_add(1)
        })
        .sum()
}

fn ram_bytes() -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let total = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    total.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib * 1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_counted() {
        let lists = ["0", "0-3", "0-3,8", "0,2-2,5-6", "", "3-1", "x"].map(count_of_list);
        assert_eq!(lists, [Some(1), Some(4), Some(5), Some(4), None, None, None]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_machine_is_described() {
        let info = system_info();
        assert_eq!(info.sysname, "Linux");
        assert!(info.num_cpus.unwrap() >= 1 && info.system_ram_bytes.unwrap() > 1 << 20);
        assert!(info.page_size_bytes.unwrap().is_power_of_two() && !info.machine.is_empty());
        let now = read_clocks();
        assert!(now.boottime_ns >= now.monotonic_ns && now.realtime_ns > now.boottime_ns);
    }
}
