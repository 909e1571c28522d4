//! What every shell around the tracing service needs of the system.
//!
//! The service's core ([`watershed_service`]) knows no clocks, files, threads or sockets. The
//! daemon and the in-process backend of the client crate are shells around it; a producer or
//! consumer in another process needs the sockets.
//!
//! | module | what it is |
//! |---|---|
//! | [`machine`] | clocks, and what a trace says about the machine |
//! | [`trace_file`] | where a session's trace goes; a failed write leaves whole packets |
//! | [`read_pool`](mod@read_pool) | threads that take part in large reads |
//! | [`address`] | names of sockets, the same for daemon and clients |
//! | [`socket`] | frames and file descriptors over a Unix socket, without blocking |
#![forbid(unsafe_code)]

pub mod address;
pub mod machine;
pub mod read_pool;
pub mod socket;
pub mod trace_file;
