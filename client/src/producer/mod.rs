//! A producer: the data sources of one connection to the service.
//!
//! [`ProducerCore`] is the producer without a thread and without a clock: commands go in, calls of
//! the [`Endpoint`] come out. [`Producer`] is the thread around it.

mod core;
mod flushes;
mod instance;
mod startup;
mod thread;

use std::time::Duration;

use watershed_smb::Smb;

pub use self::core::{ProducerCore, ProducerEvent};
pub use self::startup::StartupError;
pub use self::thread::{CommandSender, Producer, ProducerOptions};
use crate::sync::Arc;

#[cfg(doc)]
use crate::endpoint::Endpoint;

/// How long full chunks wait for others. Waking the producer's thread for each one costs a writer
/// more than all else: an instant event takes two thirds of the time when chunks wait, and fewer
/// are dropped.
pub(crate) const BATCH_COMMITS: Duration = Duration::from_millis(5);

/// Name of a producer that was given none: the program's.
pub(crate) fn program_name() -> String {
    let program = std::env::current_exe().ok();
    let name = program.as_deref().and_then(|path| path.file_name());
    name.map_or_else(|| "watershed".to_owned(), |name| name.to_string_lossy().into_owned())
}

/// What the service asks of a producer.
#[derive(Clone, Debug)]
pub enum Command {
    /// Here is the shared memory. Comes before the first set-up, once.
    SetupTracing {
        /// The memory.
        smb: Smb,
    },
    /// Make an instance.
    SetupDataSource {
        /// Id of the new instance.
        instance_id: u64,
        /// A serialized `DataSourceConfig`.
        config: Arc<[u8]>,
    },
    /// Start an instance.
    StartDataSource {
        /// Which one.
        instance_id: u64,
        /// The config of its set-up again.
        config: Arc<[u8]>,
    },
    /// Stop an instance.
    StopDataSource {
        /// Which one.
        instance_id: u64,
    },
    /// Flush instances, then answer.
    Flush {
        /// What the answer must name.
        request_id: u64,
        /// Which ones; an answer is due also when there are none.
        instance_ids: Vec<u64>,
    },
    /// Clear the incremental state of instances.
    ClearIncrementalState {
        /// Which ones.
        instance_ids: Vec<u64>,
    },
}
