//! The engine: one shard, against a memcpy of the same chunks into the same kind of memory.
//!
//! The ratio to memcpy is memcpy's time over ours. Both take the same feed of chunks, write to
//! rings of the same size whose memory was mapped in the same way, and touch the same offsets.
//! Sources are treated as shared memory, which may change while it is read, except for
//! `write_one_writer_slices` and the rows of batches, whose chunks are lent to a buffer of one
//! shard: the engine by itself knows no batches.

mod create;
mod mix;
mod patch;
mod read;
mod shapes;
mod sweep;
mod write;

use super::{Suite, Workload};

/// The suite.
pub fn suite() -> Suite {
    Suite {
        name: "engine",
        about: "one shard: commit, overwrite, read back, patch, create, clone",
        pinned: true,
        unavailable: || None,
        workloads,
    }
}

fn workloads() -> Vec<Workload> {
    vec![
        Workload::new("write_one_writer", write::one_writer),
        Workload::new("write_one_writer_slices", write::one_writer_slices),
        Workload::new("write_thousand_writers", write::thousand_writers),
        Workload::new("write_one_writer_cold_source", write::cold_source),
        Workload::new("write_fragmented", write::fragmented),
        Workload::new("write_out_of_order", write::out_of_order),
        Workload::new("write_track_events", shapes::track_events),
        Workload::new("write_track_events_batch8", shapes::track_events_batch8),
        Workload::new("write_track_events_long_headers", shapes::track_events_long_headers),
        Workload::new("write_track_events_cold_source", shapes::track_events_cold_source),
        Workload::new("write_small_packets", shapes::small_packets),
        Workload::new("write_small_packets_batch8", shapes::small_packets_batch8),
        Workload::new("write_chunks_16k", |options| {
            shapes::large_chunks("write_chunks_16k", 16 << 10, options)
        }),
        Workload::new("write_chunks_32k", |options| {
            shapes::large_chunks("write_chunks_32k", 32 << 10, options)
        }),
        Workload::new("write_short_threads", shapes::short_threads),
        Workload::new("sweep", sweep::sweep),
        Workload::new("random_mix", mix::random_mix),
        Workload::new("buffer_life", mix::buffer_life),
        Workload::new("first_lap", write::first_lap),
        Workload::new("read_plain", read::plain),
        Workload::new("read_fragmented", read::fragmented),
        Workload::new("read_to_blocks", read::to_blocks),
        Workload::new("patch_newest", |options| patch::nth_newest("patch_newest", 0, options)),
        Workload::new("patch_tenth", |options| patch::nth_newest("patch_tenth", 9, options)),
        Workload::new("patch_missing", patch::missing),
        Workload::new("create_64mb", |options| create::create("create_64mb", 64 << 20, options)),
        Workload::new("create_4gb", |options| create::create("create_4gb", 4 << 30, options)),
        Workload::new("first_commit_64mb", create::first_commit),
        Workload::new("clone_64mb", create::clone),
    ]
}
