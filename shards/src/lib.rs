//! Many shards as one trace buffer: homes, commit queues, tickets, extents, merged reads.
mod inbox;
#[cfg(all(test, loom))]
mod models;
mod sync;
mod ticket;
mod word;
mod directory;
mod topology;
mod extents;
