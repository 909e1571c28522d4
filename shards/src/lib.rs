//! Many shards as one trace buffer.
//!
//! A [`ShardedBuffer`] scales like buffers of each CPU and reads like one ring: chunks of a sequence go to one shard, each shard is filled by
//! one thread at a time, all shards share the memory of one ring, and a read gives what one ring would give, in the order of
//! commits.
mod batch;
#[cfg(not(loom))]
mod blocks;
#[cfg(not(loom))]
mod buffer;
#[cfg(not(loom))]
mod commit;
#[cfg(not(loom))]
mod copy;
#[cfg(all(not(loom), feature = "parallel"))]
mod depot;
mod directory;
#[cfg(not(loom))]
mod evict;
mod extents;
mod inbox;
#[cfg(not(loom))]
mod inner;
mod lazy;
#[doc(hidden)]
#[cfg(not(loom))]
pub mod mailbox;
#[cfg(all(test, loom))]
mod models;
#[cfg(not(loom))]
mod own;
#[cfg(not(loom))]
mod read;
#[cfg(not(loom))]
mod route;
mod sync;
mod ticket;
mod topology;
mod word;
#[cfg(not(loom))]
mod worker;

pub use batch::{Batch, OwnedBytes, PatchSet, Source};
#[cfg(not(loom))]
pub use blocks::Pieces;
#[cfg(not(loom))]
pub use buffer::{
    Homes, Reduced, Report, STOPPED_OWNER, ShardedBuffer, ShardedConfig, Stopped, StoppedWorker,
};
#[cfg(not(loom))]
pub use commit::{CommitError, Committer, HandedBack};
pub use extents::Cutting;
#[cfg(not(loom))]
pub use read::{BLOCK_BYTES, PacketWriter, ReadPass, Wait};
pub use topology::{Cpu, MAX_SHARDS, Topology, current_cpu};
pub use word::OwnerId;
