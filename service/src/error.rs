//! Why a call is refused, sorted by whose fault it is. The texts go to people: consumers print them
//! as they are.

use crate::filter::FilterError;
use crate::limits;

/// Why a producer or a consumer may not connect.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// So many producers are connected.
    #[error("too many producers are connected ({} at most)", limits::PRODUCERS_MAX)]
    TooManyProducers,
    /// So many consumers are connected.
    #[error("too many consumers are connected ({} at most)", limits::CONSUMERS_MAX)]
    TooManyConsumers,
    /// Connections are numbered in 32 bits, and no number is used twice.
    #[error("the service has numbered 2^32 - 1 producers; it takes more after a restart")]
    NumbersUsedUp,
    /// A config has locked the service down, and this is another user.
    #[error("the service is locked down and takes producers of its own user only, not of uid {uid}")]
    LockedDown {
        /// Who tried.
        uid: i32,
    },
}

/// Why a flush does not happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FlushRefused {
    /// The consumer has no session.
    #[error("there is no session to flush")]
    NoSession,
    /// Only a started session can be flushed.
    #[error("the session is not started")]
    NotStarted,
    /// So many flushes wait for acknowledgements already.
    #[error("too many flushes are pending ({} at most)", limits::PENDING_FLUSHES_MAX)]
    TooManyPending,
}

/// Why a session stays with its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DetachRefused {
    /// The consumer has none, or its clone is not in its file yet.
    #[error("there is no session to detach")]
    NoSession,
    /// An empty key would be that of any session, and a long one is an error of the caller.
    #[error("the key of a detached session has 1 to {} bytes", limits::DETACH_KEY_BYTES_MAX)]
    BadKey,
    /// Another session of this user is detached under it.
    #[error("another session is detached under this key")]
    KeyTaken,
}

/// Why a consumer does not get a detached session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AttachRefused {
    /// It has one, which it would lose, or a clone is being made for it.
    #[error("this consumer already has a tracing session")]
    AlreadyHasSession,
    /// Nothing of this user is detached under the key.
    #[error("no session of this user is detached under this key")]
    NoSuchSession,
}

/// Why a session is not cloned.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloneRefused {
    /// There is none with this number or name.
    #[error("Tracing session not found")]
    NotFound,
    /// No session records whose `bugreport_score` is above 0.
    #[error("no tracing session records for bug reports")]
    NoneForBugreport,
    /// It is another user's.
    #[error("only root and the user of a session may clone it")]
    NotAllowed,
    /// A clone would be its second one, or another one is being made for it.
    #[error("this consumer already has a tracing session")]
    AlreadyHasSession,
    /// It writes into a file, so its clone is a file as well.
    #[error("the session writes into a file: a clone of it needs an open file, too")]
    NoFile,
    /// Those that are being made count too.
    #[error("uid {uid} has {} clones of sessions, more are not allowed", limits::CLONES_PER_UID_MAX)]
    TooManyClonesOfUid {
        /// Whose clones.
        uid: i32,
    },
    /// Likewise.
    #[error("there are {} clones of sessions, more are not allowed", limits::CLONES_MAX)]
    TooManyClones,
    /// A buffer that was to be cleared could not be replaced.
    #[error("no memory for the clone: {0}")]
    NoMemory(String),
}

/// Why a session could not be made. Nothing is left behind, but for a file, which stays with the
/// shell.
///
/// The order of the variants is the order of the checks: the first failure wins.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[expect(missing_docs, reason = "the message of each variant is its documentation")]
pub enum EnableError {
    #[error("the trace config is not a TraceConfig message: {0}")]
    Malformed(String),
    #[error("this consumer already has a tracing session")]
    AlreadyHasSession,
    #[error("duration_ms is {duration_ms}, at most {max_ms} is allowed")]
    DurationTooLong { duration_ms: u32, max_ms: u32 },
    #[error("{field} is not supported by this service{hint}")]
    NotSupported { field: &'static str, hint: &'static str },
    #[error("trigger_mode {number} is unknown")]
    TriggerMode { number: i32 },
    #[error("use_clone_snapshot_if_available is for trigger_mode STOP_TRACING only")]
    CloneSnapshotWithoutStop,
    #[error("trigger_timeout_ms must be from 1 to {max_ms}, not {timeout_ms}")]
    TriggerTimeout { timeout_ms: u32, max_ms: u32 },
    #[error("duration_ms cannot be used with triggers, which have trigger_timeout_ms and stop_delay_ms")]
    TriggerWithDuration,
    #[error("write_into_file cannot be used with triggers that stop a session or have it cloned")]
    TriggerWithFile,
    #[error("two triggers have the name {name:?}")]
    DuplicateTrigger { name: String },
    #[error("bugreport_filename may contain only letters, digits, '_', '.' and '-', not {character:?}")]
    BugreportFilename { character: char },
    #[error("with enable_extra_guardrails deferred_start is not allowed")]
    GuardrailDeferredStart,
    #[error("with enable_extra_guardrails size_kb must be a multiple of 4, buffer {index} has {size_kb}")]
    GuardrailBufferSize { index: usize, size_kb: u32 },
    #[error("with enable_extra_guardrails all buffers together may have {max_kb} KiB, not {total_kb}")]
    GuardrailBufferTotal { total_kb: u64, max_kb: u64 },
    #[error("the config has {count} buffers, at most {} are allowed", limits::BUFFERS_PER_SESSION_MAX)]
    TooManyBuffers { count: usize },
    #[error("the config has {count} {field}, at most {max} are allowed")]
    ListTooLong { field: &'static str, count: usize, max: usize },
    #[error("two buffers have the name {name:?}")]
    DuplicateBufferName { name: String },
    #[error("data source {data_source:?} wants buffer {buffer:?}, which the config does not have")]
    UnknownBufferName { data_source: String, buffer: String },
    #[error(
        "data source {data_source:?} wants buffer {buffer:?}, which has index {index_of_name}, and target_buffer {target_buffer}"
    )]
    BufferNameAndIndexDisagree {
        data_source: String,
        buffer: String,
        index_of_name: usize,
        target_buffer: u32,
    },
    #[error(
        "data source {data_source:?} wants target_buffer {target_buffer}, the config has {buffers} buffers"
    )]
    NoSuchBuffer { data_source: String, target_buffer: u32, buffers: usize },
    #[error("data source {data_source:?}: producer_name_regex_filter {pattern:?} is not a pattern: {reason}")]
    BadPattern { data_source: String, pattern: String, reason: String },
    #[error("trigger {trigger:?}: producer_name_regex {pattern:?} is not a pattern: {reason}")]
    BadTriggerPattern { trigger: String, pattern: String, reason: String },
    #[error("an exclusive session with priority {active} is active, this one asks for {requested}")]
    ExclusiveSessionActive { active: u32, requested: u32 },
    #[error("a session with the name {name:?} exists")]
    DuplicateSessionName { name: String },
    #[error("semaphore {name:?}: {count} other sessions hold it, {max} may")]
    SemaphoreTaken { name: String, count: u64, max: u64 },
    #[error(
        "with enable_extra_guardrails a session with the name {name:?} may start only {} s after the last one",
        limits::GUARDRAIL_SAME_NAME_INTERVAL_NS / 1_000_000_000
    )]
    GuardrailTooSoon { name: String },
    #[error("uid {uid} has {} sessions, more are not allowed", limits::SESSIONS_PER_UID_MAX)]
    TooManySessionsOfUid { uid: i32 },
    #[error("there are {} sessions, more are not allowed", limits::SESSIONS_MAX)]
    TooManySessions,
    #[error("trace_filter cannot be used: {0}")]
    TraceFilter(#[from] FilterError),
    #[error("write_into_file needs a file: either one that is passed along, or output_path")]
    NoFile,
    #[error("write_into_file got both an open file and output_path, one of them is enough")]
    TwoFiles,
    #[error("output_path {path:?} could not be created: {reason}")]
    FileNotCreated { path: String, reason: String },
    #[error("buffer {index}: size_kb must be from 1 to {}, not {size_kb}", limits::BUFFER_SIZE_KB_MAX)]
    BufferSize { index: usize, size_kb: u32 },
    #[error("buffer {index}: no memory for {size_kb} KiB: {reason}")]
    NoMemory { index: usize, size_kb: u32, reason: String },
    #[error("there are no buffer ids left, {} are in use", limits::BUFFERS_MAX)]
    NoBufferIds,
}
