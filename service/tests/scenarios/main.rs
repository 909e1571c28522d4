//! Sessions simulated with a clock that moves when it is told to and producers that write into real
//! shared memory.

mod commits;
mod files;
mod flushes;
mod identity;
mod lifecycle;
mod limits;
mod packets;
mod shards;
mod simulation;
mod support;
mod validation;
