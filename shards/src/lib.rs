//! Many shards as one trace buffer.
//!
//! A [`ShardedBuffer`] scales like a buffer for each CPU and reads like one ring. The chunks of a
//! sequence go to one shard, one thread at a time fills a shard, all shards share the memory of one
//! ring, and a read gives what one ring would give, in the order of commits. `docs/architecture.md`
//! follows a chunk through it.
//!
//! ```text
//!   lib > buffer > { read, commit } > shard > batch > sync        imports go to the right only
//!
//!   buffer   ShardedBuffer: create, statistics, clone
//!   commit   Committer: fast path, queue, batches for several shards
//!   read     ReadPass: extraction into blocks, k-way merge, framing of packets
//!   shard    a locked shard: drain, evict, publish; workers; homes of new sequences
//!   batch    what is committed together, as it comes and as it is queued
//!   sync     the lock-free primitives, each with its atomics and the models that show them right
//! ```

#[cfg(not(loom))]
mod batch;
#[cfg(not(loom))]
mod buffer;
#[cfg(not(loom))]
mod commit;
#[cfg(all(test, loom))]
mod models;
#[cfg(not(loom))]
mod read;
#[cfg(not(loom))]
mod shard;
mod sync;

#[cfg(not(loom))]
pub use {
    batch::{Batch, OwnedBytes, PatchSet, Source},
    buffer::ShardedBuffer,
    buffer::config::{Reduced, Report, ShardedConfig},
    buffer::snapshot::CloneMemory,
    buffer::stats::{Poisoned, Statistics, StatsPass},
    commit::{CommitError, Committer, QueueFull},
    read::merge::Pieces,
    read::{PacketWriter, ReadPass, framing},
    shard::homes::Homes,
    shard::topology::{MAX_SHARDS, Topology},
    shard::worker::{Worker, WorkerPool, WorkerStats},
};
pub use {sync::extent_pool::ExtentLayout, sync::lock::OwnerId};

#[cfg(all(not(loom), any(test, feature = "testing")))]
pub use buffer::testing::{STOPPED_OWNER, Stopped, StoppedWorker, while_stopped};

/// Not part of the interface: for the benchmark that compares the queue with crossbeam's
/// `ArrayQueue`.
#[doc(hidden)]
#[cfg(not(loom))]
pub mod queue {
    pub use crate::sync::node_pool::{NodePool, NodeReturns, OwnedNode};
    pub use crate::sync::queue::CommitQueue;
}
