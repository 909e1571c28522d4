//! How a buffer is to be made, and what was made of it.

use std::time::Duration;

use watershed_engine::{BufferConfig, HugePages};

use crate::shard::homes::Homes;
use crate::shard::topology::Topology;
use crate::shard::worker::WorkerPool;
use crate::sync::extent_pool::ExtentLayout;

/// How a buffer is to be made.
#[derive(Clone, Debug)]
pub struct ShardedConfig {
    /// Size, policy, pages.
    pub buffer: BufferConfig,
    /// The wanted number of shards, from 1 to [`MAX_SHARDS`](crate::MAX_SHARDS). `None`: one for
    /// each CPU that the process may keep busy.
    pub num_shards: Option<usize>,
    /// The largest SMB page in use, in bytes: extents are at least 32 times as large.
    pub page_bytes: usize,
    /// The CPUs.
    pub topology: Topology,
    /// The threads that drain the shards. Without, the committing threads do.
    pub workers: Option<WorkerPool>,
    /// The most batches in the queue of one shard; threads that commit at the same time may exceed
    /// it by one each.
    pub queue_capacity: usize,
    /// How new sequences get their shards.
    pub homes: Homes,
}

impl ShardedConfig {
    /// A ring of `size_bytes` over the CPUs of this process, without workers.
    pub fn ring(size_bytes: usize) -> ShardedConfig {
        ShardedConfig {
            buffer: BufferConfig::ring(size_bytes),
            num_shards: None,
            page_bytes: 4096,
            topology: Topology::of_this_process(),
            workers: None,
            queue_capacity: 256,
            homes: Homes::CommittingCpu,
        }
    }
}

/// Why a buffer has fewer shards than wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduced {
    /// A DISCARD buffer ends at an exact byte: it has one.
    Discard,
    /// Each shard needs eight extents of 128 KiB or 32 SMB pages.
    TooSmall,
}

/// What a buffer was made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Shards and extents.
    pub layout: ExtentLayout,
    /// The wanted number of shards.
    pub num_shards_wanted: usize,
    /// Why there are fewer.
    pub reduced: Option<Reduced>,
    /// The pages of the memory.
    pub pages: HugePages,
    /// Of a clone: for how long shards were held for the copy.
    pub held: Duration,
}
