//! What comes out of the service, for the shell to deliver.

use std::sync::Arc;

use watershed_engine::ProducerId;
use watershed_shards::Reduced;
use watershed_smb::SharedMemory;
use watershed_wire::protos;

use crate::ids::{ConsumerId, FlushId, InstanceId, SessionId};
use crate::limits;
use crate::session::{ClonedSession, ReceivedTrigger};

/// One thing to deliver. To be delivered in the order in which
/// [`Service::poll_output`](crate::Service::poll_output) gives them.
#[derive(Clone, Debug)]
pub enum Output {
    /// A command for a producer.
    Producer(ProducerId, ProducerCommand),
    /// An answer or event for a consumer.
    Consumer(ConsumerId, ConsumerEvent),
    /// A warning for the user.
    Warning(Warning),
}

/// A command for a producer: one element of its asynchronous stream. For one instance set-up comes
/// before start, and both before any flush; memory comes before the first set-up.
#[derive(Clone, Debug)]
pub enum ProducerCommand {
    /// The shared memory is ready. Once per connection.
    SetupTracing {
        /// To be handed over, if the service made it; `None` if it is the memory that the producer
        /// brought, or if chunks travel by message.
        memory: Option<Arc<SharedMemory>>,
        /// Size of the pages in it.
        page_size_bytes: usize,
    },
    /// Prepare an instance of a data source.
    SetupDataSource {
        /// Its number in all later messages.
        instance_id: InstanceId,
        /// Binary `DataSourceConfig`, with everything that the service does not know still in it.
        config: Arc<[u8]>,
    },
    /// Start it. The config is the same, byte for byte.
    StartDataSource {
        /// Its number.
        instance_id: InstanceId,
        /// Binary `DataSourceConfig`.
        config: Arc<[u8]>,
    },
    /// Stop it, or forget it if it has only been set up.
    StopDataSource {
        /// Its number.
        instance_id: InstanceId,
    },
    /// Commit everything that these instances have written, then acknowledge by
    /// `CommitDataRequest.flush_request_id`.
    Flush {
        /// The number to acknowledge with.
        request_id: FlushId,
        /// Whom it concerns.
        instance_ids: Vec<InstanceId>,
        /// Who asks and why, as given to the consumer's call.
        flags: FlushFlags,
    },
    /// Start incremental state (interned strings and the like) afresh.
    ClearIncrementalState {
        /// Whom it concerns.
        instance_ids: Vec<InstanceId>,
    },
}

/// An answer or event for a consumer.
#[derive(Clone, Debug, PartialEq)]
pub enum ConsumerEvent {
    /// The session has ended; its data can be read (unless it went into a file) until it is freed.
    TracingDisabled {
        /// Which session.
        session_id: SessionId,
        /// Why it failed, if it did.
        error: Option<String>,
    },
    /// A flush that the consumer asked for is over.
    FlushDone {
        /// Which flush.
        flush_id: FlushId,
        /// Whether everyone asked has answered in time.
        success: bool,
    },
    /// Statistics that the consumer asked for; `None` if its session has gone meanwhile.
    TraceStats(Option<Box<protos::TraceStats>>),
    /// What [`Service::begin_read`](crate::Service::begin_read) has said "later" of is to be tried
    /// again.
    ReadReady,
    /// A data source instance has started or stopped.
    InstanceState {
        /// Name of its producer.
        producer_name: String,
        /// Name of the data source.
        data_source_name: String,
        /// Whether it is started. Set-up but not started reads as stopped.
        started: bool,
    },
    /// Every data source of the session has started. At most once a session.
    AllDataSourcesStarted {
        /// Which session.
        session_id: SessionId,
    },
    /// A clone that the consumer asked for is its session now, or could not be made.
    Cloned {
        /// Its number, which the request was given.
        session_id: SessionId,
        /// The clone, or why there is none.
        result: Result<ClonedSession, String>,
    },
    /// A trigger says that the session should be cloned now.
    CloneTriggerHit {
        /// Which session.
        session_id: SessionId,
        /// The trigger.
        trigger: ReceivedTrigger,
    },
}

/// What a consumer wants to be told beside answers. The values are the bits of the consumer port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObservedEvents(pub u32);

impl ObservedEvents {
    /// Nothing.
    pub const NONE: ObservedEvents = ObservedEvents(0);
    /// [`ConsumerEvent::InstanceState`].
    pub const INSTANCE_STATES: ObservedEvents = ObservedEvents(1);
    /// [`ConsumerEvent::AllDataSourcesStarted`].
    pub const ALL_DATA_SOURCES_STARTED: ObservedEvents = ObservedEvents(2);

    /// [`ConsumerEvent::CloneTriggerHit`].
    pub const CLONE_TRIGGER_HITS: ObservedEvents = ObservedEvents(4);

    /// Both sets.
    pub const fn and(self, other: ObservedEvents) -> ObservedEvents {
        ObservedEvents(self.0 | other.0)
    }

    /// Whether all of `other` is in this set.
    pub const fn contains(self, other: ObservedEvents) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Why a flush is made and who asked for it, as producers see it: bits 0 to 3 the reason, 4 to 7
/// the initiator, 8 to 11 what a clone is for. All zero: unknown.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FlushFlags(pub u64);

impl FlushFlags {
    /// The service's own, at intervals.
    pub const PERIODIC: FlushFlags = FlushFlags::new(1, 1);
    /// The service's own, before the session stops.
    pub const STOP: FlushFlags = FlushFlags::new(2, 1);
    /// The service's own, before the session is cloned.
    pub const CLONE: FlushFlags = FlushFlags::new(3, 1);
    /// Likewise, for a bug report.
    pub const CLONE_FOR_BUGREPORT: FlushFlags = FlushFlags(FlushFlags::CLONE.0 | 1 << 8);
    /// Asked for by a program through its consumer library.
    pub const EXPLICIT: FlushFlags = FlushFlags::new(4, 3);

    const REASON_MASK: u64 = 0xf;

    const fn new(reason: u64, initiator: u64) -> FlushFlags {
        FlushFlags(initiator << 4 | reason)
    }

    /// Whether data sources that are late for such a flush are noted in the trace: at a stop (2)
    /// and for a clone (3), where their data is lost.
    pub(crate) fn names_late_sources(self) -> bool {
        matches!(self.0 & Self::REASON_MASK, 2 | 3)
    }
}

/// How far a read got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum ReadProgress {
    /// The batch is full: read again.
    More,
    /// Everything that can be read now has been.
    Done,
    /// There is nothing to read now: no session, one that writes into a file, or one that another
    /// thread reads or copies. What the consumer port answers with an empty reply.
    Nothing,
}

/// What the shell has to do for a session that writes into a file, in this order of events: any
/// number of writes, each maybe followed by a sync; at the end a sync and a close. The file of a
/// clone begins with copies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAction {
    /// Call [`Service::begin_write`](crate::Service::begin_write), or
    /// [`Service::write_file`](crate::Service::write_file).
    Write(SessionId),
    /// Copy these bytes of one session's file to the end of another one's. They are there already,
    /// and stay; offsets count from where the session's writing began.
    Copy {
        /// Whose file has them.
        from: SessionId,
        /// Whose file gets them. The answer is about this session.
        to: SessionId,
        /// Where they begin.
        offset_bytes: u64,
        /// How many.
        size_bytes: u64,
    },
    /// Make what was written durable (`fdatasync`).
    Sync(SessionId),
    /// Close the file. The session will not write again.
    Close(SessionId),
}

/// A warning for the user; the service goes on.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Warning {
    /// The memory for a producer could not be made; it takes part in no session until the next one
    /// tries again.
    #[error("no shared memory of {size_bytes} bytes for producer {producer_name:?}: {reason}")]
    NoSharedMemory {
        /// Whose memory.
        producer_name: String,
        /// How much was wanted.
        size_bytes: usize,
        /// What the system said.
        reason: String,
    },
    /// The system takes long to make a huge page; from now on buffers have plain ones. Said once.
    #[error("the system takes milliseconds for a huge page: from now on buffers have plain pages")]
    SlowHugePages,
    /// A producer registers more data sources than it may; those are not there for sessions.
    #[error(
        "producer {producer_name:?} registers too many data sources ({} or {} bytes at most), the rest is ignored",
        limits::DATA_SOURCES_PER_PRODUCER_MAX,
        limits::DESCRIPTOR_BYTES_PER_PRODUCER_MAX
    )]
    TooManyDataSources {
        /// Whose data sources.
        producer_name: String,
    },
    /// A producer offers so many matching data sources that a session does not use all.
    #[error(
        "session {session_id}: producer {producer_name:?} has too many matching data sources ({} are used)",
        limits::INSTANCES_PER_PRODUCER_MAX
    )]
    TooManyInstances {
        /// Whose session.
        session_id: SessionId,
        /// Whose data sources.
        producer_name: String,
    },
    /// A producer announces so many triggers at once that not all are looked at.
    #[error(
        "producer {producer_name:?} announces too many triggers at once ({} are looked at)",
        limits::TRIGGERS_PER_CALL_MAX
    )]
    TooManyTriggers {
        /// Which producer.
        producer_name: String,
    },
    /// Triggers come faster than they are read or told: some are not in the trace, or no clone is
    /// made for them.
    #[error("session {session_id}: triggers came so fast that one is not acted on or not in the trace")]
    TriggersForgotten {
        /// Whose triggers.
        session_id: SessionId,
    },
    /// The config asks for something that this service does not do; the session runs without it.
    #[error("session {session_id}: {field} is not supported, {instead}")]
    ConfigIgnored {
        /// Whose config.
        session_id: SessionId,
        /// Which field.
        field: &'static str,
        /// What is done instead.
        instead: &'static str,
    },
    /// A buffer has fewer shards than [`Shards::Wanted`](crate::Shards::Wanted) asks for.
    #[error("session {session_id}: buffer {index} has {num_shards} of {wanted} shards: {}", because(*reason))]
    FewerShards {
        /// Whose buffer.
        session_id: SessionId,
        /// Which of its buffers.
        index: usize,
        /// What was asked for.
        wanted: usize,
        /// What it has.
        num_shards: usize,
        /// Why.
        reason: Reduced,
    },
    /// The system has too few free pages in its pool: a buffer is made of others than
    /// [`HugePages::Explicit`](crate::HugePages::Explicit).
    #[error(
        "session {session_id}: buffer {index} is not made of huge pages: the system's pool has too few free ones"
    )]
    NoHugePages {
        /// Whose buffer.
        session_id: SessionId,
        /// Which of its buffers.
        index: usize,
    },
    /// The engine has failed in a part of a buffer: a mistake in this program. Their data is lost
    /// and what comes for them is refused, the rest goes on.
    #[error(
        "session {session_id}: {num_shards} shards of buffer {index} have failed, what they had is lost; this is a mistake in the tracing service"
    )]
    ShardPoisoned {
        /// Whose buffer.
        session_id: SessionId,
        /// Which of its buffers.
        index: usize,
        /// How many of its shards, those that were told of before included.
        num_shards: u64,
    },
    /// A session's file could not be written, the session ends.
    #[error("session {session_id}: writing the trace file failed: {reason}")]
    FileFailed {
        /// Whose file.
        session_id: SessionId,
        /// What the system said.
        reason: String,
    },
}

fn because(reason: Reduced) -> &'static str {
    match reason {
        Reduced::Discard => "a DISCARD buffer has one, so that it ends where it is full",
        Reduced::TooSmall => "it is too small for more",
    }
}
