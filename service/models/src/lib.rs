//! Models of the service's code that several threads run: nothing but that code, with loom's locks
//! and atomics in the place of the system's. The service itself cannot be compiled for loom, as
//! `watershed-shards` hides there what it needs.
#![forbid(unsafe_code)]
#![cfg(all(test, loom))]

#[path = "../../src/direct/handshake.rs"]
mod handshake;
mod models;
#[path = "../../src/sync.rs"]
mod sync;
