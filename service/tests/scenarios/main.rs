//! Sessions simulated with a clock that moves when it is told to and producers that write into real
//! shared memory.

mod clone_memory;
mod clone_scrapes;
mod clones;
mod commits;
mod compressed_files;
mod detach;
mod direct;
mod file_clones;
mod files;
mod filters;
mod flushes;
mod identity;
mod lifecycle;
mod limits;
mod offers;
mod packets;
mod prefault;
mod reads;
mod shards;
mod support;
mod triggers;
mod validation;
