//! The tracing service behind Unix sockets: what `watershed daemon` runs.
//!
//! ```text
//!   producers --- socket ---> connection --> producer_port --+
//!                                                            +--> Service (no sockets, no clock)
//!   consumers --- socket ---> connection --> consumer_port --+         |
//!        ^                                                             v
//!        +------------- replies, commands, packets <----------- outputs, files
//! ```
//!
//! One thread at a time is the loop, which does everything but copy chunks; workers do that, and
//! the threads change places ([`Daemon::run`]). Each file that is being written has a thread that
//! reads for it, writes and syncs. Peers are not trusted: what one of them can make longer has a
//! limit, each gets a bounded turn, and one that breaks the protocol or does not take what is sent
//! to it is disconnected, with a line in the log.
//!
//! The protocol is Perfetto's (spec, service 1 to 3); its frames are in [`watershed_wire::ipc`].
#![deny(unsafe_code)]

mod connection;
mod consumer_port;
mod core;
mod daemon;
mod event_loop;
mod events;
mod file_thread;
mod files;
mod heap;
mod listen;
mod log;
mod options;
mod output_path;
mod peer;
mod peers;
mod polling;
mod producer_port;
mod status;
mod turns;
mod waiting;
mod wake;

pub use daemon::Daemon;
pub use options::{DaemonError, DaemonOptions, FilePermissions, SocketPermissions};
pub use wake::Stopper;
pub use watershed_service::HugePages;
