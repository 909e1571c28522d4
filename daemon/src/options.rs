//! What the daemon is told at its start, and why it could not start.

use std::io;
use std::path::PathBuf;

use thiserror::Error;
use watershed_service::{HugePages, Shards, SystemInfo};
use watershed_shell::address::Address;

/// What the daemon is told at its start.
#[derive(Debug)]
pub struct DaemonOptions {
    /// Where producers connect, at least one.
    pub producer_sockets: Vec<Address>,
    /// Where consumers connect.
    pub consumer_socket: Address,
    /// Who may connect to the socket files. `None`: everybody to the producers', owner and group to
    /// the consumers'.
    pub permissions: Option<SocketPermissions>,
    /// Name and version that clients and traces are told. Readers of traces expect it to begin with
    /// `Perfetto vNN`, NN at least 54.
    pub version: String,
    /// What traces say about the machine.
    pub system: SystemInfo,
    /// Over how many shards buffers are spread.
    pub shards: Shards,
    /// Which pages buffers are made of.
    pub huge_pages: HugePages,
    /// How many threads copy chunks out of shared memory at one time. 0: the one that serves
    /// connections does it.
    pub num_workers: usize,
    /// Whether so many of the threads run on one CPU each.
    pub pin_workers: bool,
    /// Below this folder a config's `output_path` may make files. `None`: nowhere, such configs are
    /// refused.
    pub output_folder: Option<PathBuf>,
}

/// Groups and modes of the socket files. Abstract sockets have none: everybody may connect there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SocketPermissions {
    /// Of the producers' sockets.
    pub producer: FilePermissions,
    /// Of the consumers' socket.
    pub consumer: FilePermissions,
}

/// Group and mode of a socket file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FilePermissions {
    /// Group by number. `None`: as the system made it.
    pub gid: Option<u32>,
    /// Permission bits.
    pub mode: u32,
}

impl FilePermissions {
    /// Everybody: producers are not trusted anyway.
    pub(crate) const PRODUCER_DEFAULT: FilePermissions = FilePermissions { gid: None, mode: 0o666 };
    /// A consumer sees what the whole machine does.
    pub(crate) const CONSUMER_DEFAULT: FilePermissions = FilePermissions { gid: None, mode: 0o660 };
}

/// Why the daemon did not start, or stopped by itself.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// Somebody answers on the socket.
    #[error("a tracing service is running already: it answers on {address}")]
    AlreadyRunning {
        /// Which socket.
        address: Address,
    },
    /// Something that is no socket has the name.
    #[error("{} exists and is no socket", path.display())]
    NotASocket {
        /// Which file.
        path: PathBuf,
    },
    /// A socket cannot be made.
    #[error("cannot {what} {address}: {error}")]
    Socket {
        /// What was attempted.
        what: &'static str,
        /// Which socket.
        address: Address,
        /// The system's answer.
        error: io::Error,
    },
    /// A socket was passed that is none of those to listen on.
    #[error(
        "a socket was passed that listens on {}, which is neither the consumers' nor a producers'",
        address.as_ref().map_or("no address".to_owned(), ToString::to_string)
    )]
    PassedSocket {
        /// Where it listens.
        address: Option<Address>,
    },
    /// There is no socket for producers.
    #[error("no socket for producers was named")]
    NoProducerSocket,
    /// The workers cannot be started.
    #[error("cannot start worker threads ({num_workers}): {error}")]
    Workers {
        /// How many were wanted.
        num_workers: usize,
        /// The system's answer.
        error: io::Error,
    },
    /// Waiting for events failed.
    #[error("cannot wait for events: {0}")]
    Events(#[from] io::Error),
}
