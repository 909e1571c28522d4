//! What the shell tells the service once, at the start.

use std::fmt;
use std::sync::Arc;

use rayon::ThreadPool;
use watershed_engine::HugePages;
use watershed_shards::{MAX_SHARDS, WorkerPool};
use watershed_smb::{MapError, SharedMemory};
use watershed_wire::protos;

use crate::limits::SHARD_SIZE_BYTES_MIN;

/// Makes the memory that the service shares with one producer; the argument is its size in bytes, a
/// multiple of 4096.
pub type MemoryFactory = Box<dyn FnMut(usize) -> Result<Arc<SharedMemory>, MapError> + Send>;

/// Gives the threads that take part in a large read, beside the one that calls the service. Asked
/// at the start of each; `None` where the calling thread is faster alone, as on one processor.
pub type PoolFactory = Box<dyn FnMut() -> Option<Arc<ThreadPool>> + Send>;

/// What the service is told at its start.
pub struct ServiceOptions {
    /// Seed of everything that the service draws at random (trace ids).
    pub seed: u64,
    /// User id that the service runs as: written into its own packets, and the one that lockdown
    /// lets through.
    pub uid: i32,
    /// Name and version that goes into traces. Readers of traces expect it to begin with `Perfetto
    /// vNN`, NN at least 54.
    pub version: String,
    /// What to write into each trace about this machine.
    pub system: SystemInfo,
    /// Whether the memory of a producer that does not say is scraped. Upstream's daemon: no.
    pub scraping_by_default: bool,
    /// How many shards the buffers get.
    pub shards: Shards,
    /// Which pages the buffers are made of. [`Warning::NoHugePages`](crate::Warning::NoHugePages)
    /// reports that the system has too few.
    pub huge_pages: HugePages,
    /// Who copies chunks out of shared memory: the shell's threads, by
    /// [`Worker::serve`](crate::Worker::serve) whenever
    /// [`on_work`](crate::WorkerPool::on_work) asks for one. `None`: the thread that calls the
    /// service does it. What is read does not depend on them.
    pub workers: Option<WorkerPool>,
    /// Makes the memory shared with a producer that brings none.
    pub memory: MemoryFactory,
    /// Threads for large reads. What is read does not depend on them.
    pub read_pool: PoolFactory,
    /// Whether the service must not wait for a thread that has a shard, nor for memory. Then the
    /// shell has other threads for what may: steps of reads ([`ReadStep`](crate::ReadStep)) and of
    /// files ([`FileWrite`](crate::FileWrite)), the memory and the copies of clones
    /// ([`Service::poll_clone`](crate::Service::poll_clone)), and what is to be dropped
    /// ([`Service::poll_dropped`](crate::Service::poll_dropped)). If not, the service does all at
    /// once.
    pub never_waits: bool,
    /// Reads a clock that never goes back, in nanoseconds, on any thread: to say in the statistics
    /// how long filters took. `None`: nobody says.
    pub filter_clock: Option<fn() -> u64>,
}

/// Over how many shards buffers are spread: 1 to [`MAX_SHARDS`](crate::MAX_SHARDS), other values
/// are clamped. A DISCARD buffer has one whatever is said here. What is read does not depend on it
/// as long as nothing is overwritten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shards {
    /// Exactly so many, because a user asked. [`Warning::FewerShards`](crate::Warning::FewerShards)
    /// reports a buffer that is too small for them.
    Wanted(usize),
    /// At most so many, and at most one for each
    /// [`SHARD_SIZE_BYTES_MIN`](crate::limits::SHARD_SIZE_BYTES_MIN), so that a ring stays about as
    /// full as with one shard.
    UpTo(usize),
}

impl Shards {
    /// How many a buffer of this size asks for.
    pub(crate) fn for_buffer(self, size_bytes: usize) -> usize {
        match self {
            Shards::Wanted(num_shards) => num_shards,
            Shards::UpTo(num_shards) => num_shards.min(size_bytes / SHARD_SIZE_BYTES_MIN),
        }
        .clamp(1, MAX_SHARDS)
    }
}

impl fmt::Debug for ServiceOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServiceOptions")
            .field("seed", &self.seed)
            .field("uid", &self.uid)
            .field("version", &self.version)
            .field("system", &self.system)
            .field("scraping_by_default", &self.scraping_by_default)
            .field("shards", &self.shards)
            .field("huge_pages", &self.huge_pages)
            .finish_non_exhaustive()
    }
}

/// The machine, as a trace describes it. What is not known stays empty and is not written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SystemInfo {
    /// `uname`: name of the system ("Linux").
    pub sysname: String,
    /// `uname`: version of the build.
    pub version: String,
    /// `uname`: release.
    pub release: String,
    /// `uname`: machine ("x86_64").
    pub machine: String,
    /// Page size of the system.
    pub page_size_bytes: Option<u32>,
    /// Offset of local time from UTC.
    pub timezone_off_mins: Option<i32>,
    /// Processors that the system has configured.
    pub num_cpus: Option<u32>,
    /// Physical memory.
    pub system_ram_bytes: Option<u64>,
}

impl SystemInfo {
    pub(crate) fn to_proto(&self, service_version: &str) -> protos::SystemInfo {
        let known = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        protos::SystemInfo {
            utsname: Some(protos::Utsname {
                sysname: known(&self.sysname),
                version: known(&self.version),
                release: known(&self.release),
                machine: known(&self.machine),
            }),
            tracing_service_version: known(&service_version.to_owned()),
            page_size: self.page_size_bytes,
            timezone_off_mins: self.timezone_off_mins,
            num_cpus: self.num_cpus,
            system_ram_bytes: self.system_ram_bytes,
            ..Default::default()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_did_not_ask_for_shards_gets_as_many_as_the_buffer_has_room_for() {
        const MB: usize = 1 << 20;
        for (shards, size_bytes, expected) in [
            (Shards::UpTo(8), 64 * MB, 8),
            (Shards::UpTo(64), 64 * MB, 16),
            (Shards::UpTo(64), 64 << 10, 1),
            (Shards::UpTo(0), 64 * MB, 1),
            (Shards::Wanted(64), 64 * MB, 64),
            (Shards::Wanted(64), 64 << 10, 64),
            (Shards::Wanted(usize::MAX), 64 * MB, MAX_SHARDS),
        ] {
            assert_eq!(shards.for_buffer(size_bytes), expected, "{shards:?} of {size_bytes} bytes");
        }
    }
}
