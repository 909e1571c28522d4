//! Connected producers: who they are, what they offer, which memory is shared with them.

mod commit;
mod connect;
mod held;
mod registry;
mod scrape;
mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use watershed_engine::{ClientIdentity, ProducerId};
use watershed_smb::{SharedMemory, Smb};

use crate::ids::{BufferId, FlushId, SessionId};

use held::HeldCommits;
pub(crate) use registry::{SourceKey, Sources};
pub use sources::RegisteredDataSource;
pub(crate) use sources::{Descriptor, Source};

/// Who is at the other end of a connection, as the kernel says. Nothing here comes from the peer
/// itself.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PeerIdentity {
    /// User id.
    pub uid: i32,
    /// Process id at the time of connecting, if it is known.
    pub pid: Option<i32>,
    /// 0 for this machine; what a relay announced for others.
    pub machine_id: u32,
    /// Empty for this machine; what a relay announced for others.
    pub machine_name: String,
}

impl PeerIdentity {
    pub(crate) fn is_local(&self) -> bool {
        self.machine_id == 0
    }

    /// As the trace buffer keeps it beside each sequence: 0 stands for a pid that is not known.
    pub(crate) fn for_buffer(&self) -> ClientIdentity {
        ClientIdentity { uid: self.uid, pid: self.pid.unwrap_or(0), machine_id: self.machine_id }
    }
}

/// What a producer says about itself when it connects.
#[derive(Debug, Default)]
pub struct ProducerHello {
    /// Who it is.
    pub identity: PeerIdentity,
    /// Its name: what `producer_name_filter` selects by. Not unique, not trusted, and cut after
    /// [`PRODUCER_NAME_BYTES_MAX`](crate::limits::PRODUCER_NAME_BYTES_MAX).
    pub name: String,
    /// Version of its client library.
    pub sdk_version: String,
    /// Page size that it would like, 0 for none.
    pub page_size_hint_bytes: usize,
    /// Size of the shared memory that it would like, 0 for none.
    pub shm_size_hint_bytes: usize,
    /// Whether chunks that are still being written may be read when a flush or its end calls for
    /// it.
    pub scraping: ScrapingMode,
    /// How its chunks come.
    pub memory: ProducerMemory,
}

/// Whether a producer's memory is scraped.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ScrapingMode {
    /// As [`ServiceOptions::scraping_by_default`](crate::ServiceOptions::scraping_by_default) says.
    #[default]
    Default,
    /// It is.
    Enabled,
    /// It is not.
    Disabled,
}

/// How the chunks of a producer come to the service.
#[derive(Debug, Default)]
pub enum ProducerMemory {
    /// Through memory that the service makes when the first session wants something of the
    /// producer.
    #[default]
    FromService,
    /// Through memory that the producer brought, already mapped by the shell (which has checked its
    /// seals).
    Provided(Arc<SharedMemory>),
    /// Inside the commit messages: for connections that cannot pass memory.
    Emulated,
}

/// The answer to a [`ProducerHello`]. Patches of chunks that are still in shared memory are always
/// supported.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerWelcome {
    /// The number of the connection, which no other one gets as long as the service lives.
    pub producer_id: ProducerId,
    /// Whether the memory that it brought is used. If it brought some and this is false, its sizes
    /// did not fit.
    pub using_provided_memory: bool,
    /// Whether its chunks have to come inside the commit messages.
    pub emulated: bool,
}

/// A connected producer, for those who ask who is there.
#[derive(Clone, Copy, Debug)]
pub struct ConnectedProducer<'a> {
    /// Its number.
    pub producer_id: ProducerId,
    /// Its name, as it said.
    pub name: &'a str,
    /// Version of its client library, as it said.
    pub sdk_version: &'a str,
    /// Who it is.
    pub identity: &'a PeerIdentity,
}

/// Where the chunks of a producer are.
pub(crate) enum ChunkSource {
    /// Not decided: nothing was set up on the producer yet.
    None,
    Shared(Smb),
    Messages,
}

impl fmt::Debug for ChunkSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ChunkSource::None => "None",
            ChunkSource::Shared(_) => "Shared",
            ChunkSource::Messages => "Messages",
        })
    }
}

#[derive(Debug)]
pub(crate) struct Producer {
    pub(crate) name: Arc<str>,
    pub(crate) identity: PeerIdentity,
    pub(crate) client: ClientIdentity,
    sdk_version: String,
    page_size_hint_bytes: usize,
    shm_size_hint_bytes: usize,
    scraped: bool,
    chunks: ChunkSource,
    warned_of_too_many: bool,
    /// Registered writers and their buffers, both cut to 16 bits and otherwise as the producer
    /// said.
    writers: BTreeMap<u16, u16>,
    /// Flushes that it has been asked for and has not acknowledged, and whose they are.
    pub(crate) awaited: BTreeMap<FlushId, SessionId>,
    /// Commits of a producer without shared memory since it was asked for a flush.
    held: HeldCommits,
    /// The buffers that it may write to: those on which something was set up, until they are freed.
    pub(crate) allowed_buffers: BTreeSet<BufferId>,
}

impl Producer {
    pub(crate) fn memory(&self) -> Option<&Smb> {
        match &self.chunks {
            ChunkSource::Shared(smb) => Some(smb),
            ChunkSource::None | ChunkSource::Messages => None,
        }
    }

    /// Of its shared memory, or what it would like; 0 if nothing is known.
    pub(crate) fn page_size_bytes(&self) -> usize {
        match &self.chunks {
            ChunkSource::Shared(smb) => smb.page_size_bytes(),
            ChunkSource::None | ChunkSource::Messages => self.page_size_hint_bytes,
        }
    }
}
