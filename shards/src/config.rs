//! How a buffer is made, and what it then says of itself.

use watershed_engine::{BufferConfig, HugePages};

use crate::extents::Cutting;
use crate::topology::Topology;

/// How a buffer is made.
#[derive(Clone, Debug)]
pub struct ShardedConfig {
    /// Size, policy, pages.
    pub buffer: BufferConfig,
    /// Shards that are wanted; `None`: one for each CPU that the process may keep busy. At least 1, at most [`MAX_SHARDS`](crate::MAX_SHARDS).
    pub num_shards: Option<usize>,
    /// The largest SMB page in use: extents are at least 32 times as large.
    pub page_bytes: usize,
    /// The CPUs.
    pub topology: Topology,
    /// Whether each shard has a thread of its own that drains it. Without, the threads that commit do.
    pub has_workers: bool,
    /// Batches that can wait in the queue of one shard.
    pub queue_capacity: usize,
    /// How sequences get their shards.
    pub homes: Homes,
}

/// Where a new sequence lives, as long as the shard has not many more sequences than others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Homes {
    /// In the shard of the CPU that commits its first chunk.
    #[default]
    OfTheCpu,
    /// In the next shard after that of the sequence before. For one thread that commits for all, whose CPU says nothing; and the same
    /// commits give the same homes again.
    InTurn,
}

impl ShardedConfig {
    /// A ring of `size_bytes` over the CPUs of this process, without workers.
    pub fn ring(size_bytes: usize) -> ShardedConfig {
        ShardedConfig {
            buffer: BufferConfig::ring(size_bytes),
            num_shards: None,
            page_bytes: 4096,
            topology: Topology::of_this_process(),
            has_workers: false,
            queue_capacity: 256,
            homes: Homes::OfTheCpu,
        }
    }
}

/// Why a buffer has fewer shards than were wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reduced {
    /// A DISCARD buffer must end exactly: it has one.
    Discard,
    /// A sink must see the order of the whole buffer: it has one.
    Sink,
    /// Each shard needs eight extents of 128 KiB or 32 SMB pages.
    TooSmall,
}

/// What a buffer says of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Shards, extents.
    pub cutting: Cutting,
    /// Shards that were wanted.
    pub num_shards_wanted: usize,
    /// Why there are fewer, if there are.
    pub reduced: Option<Reduced>,
    /// Which pages the memory is made of.
    pub pages: HugePages,
    /// Workers, and how many of them are pinned: where the system refuses that, they run where they like.
    pub num_workers: usize,
    /// See there.
    pub num_workers_pinned: usize,
}
