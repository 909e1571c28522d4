//! Every limit of the service by name, and how they relate. Source: spec, service appendix B, and
//! what a peer could otherwise make longer without end:
//!
//! | list | who makes it longer | how long it gets | what a call does with it |
//! |---|---|---|---|
//! | producers | connections | [`PRODUCERS_MAX`] | flush and stop scrape each |
//! | data sources | a producer | [`DATA_SOURCES_PER_PRODUCER_MAX`], [`DESCRIPTOR_BYTES_PER_PRODUCER_MAX`] | found by name, number, producer; a disconnect looks at each of its own once |
//! | instances of a session | a producer | [`INSTANCES_PER_PRODUCER_MAX`] each | likewise; how many have started and stopped is counted |
//! | registered writers | a producer | [`WRITER_ID_MAX`] | found by id |
//! | writers that commit themselves | threads of the service's process | [`WRITER_ID_MAX`] a producer | each when a buffer is scraped, settled or freed |
//! | buffers that a producer may write to | sessions | [`BUFFERS_PER_SESSION_MAX`] a session | found by id |
//! | sequences of a session | writers | what its buffers know, and [`SEQUENCES_KEPT`] | found by key; a few are looked at for each new one |
//! | chunks, patches of a request | a producer | the frame; [`PATCHES_PER_ENTRY_MAX`] | once each |
//! | consumers | connections | [`CONSUMERS_MAX`] | found by number |
//! | sessions | consumers | [`SESSIONS_MAX`], [`SESSIONS_PER_UID_MAX`], [`CLONES_MAX`], [`CLONES_PER_UID_MAX`] | each at every register and disconnect |
//! | lists of a config | a consumer | [`BUFFERS_PER_SESSION_MAX`], [`DATA_SOURCES_PER_CONFIG_MAX`], [`PRODUCER_WISHES_MAX`], [`SEMAPHORES_PER_CONFIG_MAX`] | a source is offered to the entries of its name |
//! | starts of sessions by name | consumers | [`START_TIMES_MAX`] | found by name |
//! | pending flushes of a session | a consumer | [`PENDING_FLUSHES_MAX`] | once each when it ends; all that end together share one scrape |
//! | statistics that a consumer waits for | the consumer | [`PENDING_STATS_MAX`] | one after the other |
//! | steps of reads that another thread does | consumers | one of a session, [`READ_STEP_BYTES`]; of a session that has gone until its thread is done | once each |
//! | flushes that wait for a producer | consumers | [`PENDING_FLUSHES_MAX`] a session | an acknowledgement takes its own |
//! | commits that wait for an acknowledgement | a producer without shared memory | [`HELD_COMMIT_BYTES_MAX`] | once each |
//! | commits to a buffer that takes another one's place | producers | [`SUCCESSION_WAIT_MAX_MS`] | once each |
//! | triggers of a call | a producer | [`TRIGGERS_PER_CALL_MAX`] | found by name in each session |
//! | triggers of a session | producers | [`TRIGGERS_PER_CONFIG_MAX`], [`TRIGGERS_KEPT`], [`CLONE_HITS_PENDING_MAX`] | the last ones are kept |
//! | remembered triggers | producers | [`TRIGGER_HISTORY_MAX`] | looked through for each trigger |
//! | events for the trace | time, sessions | [`CLOCK_SNAPSHOTS_MAX`], [`FLUSH_EVENTS_MAX`], [`CONCURRENT_EVENTS_MAX`] | written at a read |
//! | calls that wait for the service | connections | the shell's: what a socket and a frame hold; in one process `COMMITS_QUEUED_MAX` of the client's queue, one flush, start and stop a session | once each, some hundred a turn |
//! | outputs | calls | what one call makes: the shell takes them before the next | |

/// One millisecond in the unit in which the core counts.
pub const NS_PER_MS: u64 = 1_000_000;

/// Producers connected at one time.
pub const PRODUCERS_MAX: usize = u16::MAX as usize;
/// Consumers connected at one time. Far more than can have a session; and a shell that may open
/// 1,024 files has most of them left for producers.
pub const CONSUMERS_MAX: usize = 256;
/// Bytes of a producer's name, which is cut behind them.
pub const PRODUCER_NAME_BYTES_MAX: usize = 1024;
/// Data sources of one producer. What it registers beyond is ignored, with one warning.
pub const DATA_SOURCES_PER_PRODUCER_MAX: usize = 1024;
/// Bytes of all descriptors of one producer, likewise.
pub const DESCRIPTOR_BYTES_PER_PRODUCER_MAX: usize = 4 << 20;
/// Bytes of a data source's name. One with a longer name is ignored.
pub const DATA_SOURCE_NAME_BYTES_MAX: usize = 1024;
/// Instances of one producer in one session. What matches beyond is not set up, with one warning.
pub const INSTANCES_PER_PRODUCER_MAX: usize = 1024;
/// Buffers alive at one time over all sessions. Ids are 16 bits and 0 is never given out.
pub const BUFFERS_MAX: usize = u16::MAX as usize;
/// Sessions at one time, whatever their state, clones apart.
pub const SESSIONS_MAX: usize = 15;
/// Sessions at one time for one user id, clones apart.
pub const SESSIONS_PER_UID_MAX: usize = 5;
/// Clones at one time, those that are being made included: one of each session.
pub const CLONES_MAX: usize = SESSIONS_MAX;
/// Clones at one time for one user id, likewise.
pub const CLONES_PER_UID_MAX: usize = SESSIONS_PER_UID_MAX;
/// Buffers of one session.
pub const BUFFERS_PER_SESSION_MAX: usize = 128;
/// Entries of `data_sources` in one config.
pub const DATA_SOURCES_PER_CONFIG_MAX: usize = 4096;
/// Entries of `producers` in one config.
pub const PRODUCER_WISHES_MAX: usize = 4096;
/// Entries of `session_semaphores` in one config.
pub const SEMAPHORES_PER_CONFIG_MAX: usize = 256;
/// Names of sessions with guardrails whose last start is kept. If there are more within the
/// interval, the start that is longest ago is forgotten.
pub const START_TIMES_MAX: usize = 256;
/// The largest buffer, in KiB: its size in bytes must fit 32 bits.
pub const BUFFER_SIZE_KB_MAX: u32 = u32::MAX / 1024;
/// Words of a trace filter's program.
pub const FILTER_WORDS_MAX: usize = 1 << 20;
/// Messages of a trace filter's program.
pub const FILTER_MESSAGES_MAX: usize = 1 << 16;
/// String filters of a config, in both lists together.
pub const STRING_FILTERS_MAX: usize = 1024;
/// So long commits wait at most for what a buffer has to know that takes the place of another one.
pub const SUCCESSION_WAIT_MAX_MS: u32 = 100;
/// Entries of `triggers` in one config.
pub const TRIGGERS_PER_CONFIG_MAX: usize = 1024;
/// Triggers of one call of a producer that are looked at.
pub const TRIGGERS_PER_CALL_MAX: usize = 256;
/// Triggers that a session has taken and keeps, for its trace or for its clones.
pub const TRIGGERS_KEPT: usize = 1024;
/// Triggers of one session that its consumer is still to be told of.
pub const CLONE_HITS_PENDING_MAX: usize = 256;
/// The time for which `max_per_24_h` counts.
pub const TRIGGER_INTERVAL_NS: u64 = 24 * 3600 * 1000 * NS_PER_MS;
/// Triggers of that time that are remembered, over all names and sessions.
pub const TRIGGER_HISTORY_MAX: usize = 16_384;
/// Bytes of the key under which a session is detached.
pub const DETACH_KEY_BYTES_MAX: usize = 1024;
/// Flushes of one session that wait for acknowledgements.
pub const PENDING_FLUSHES_MAX: usize = 1000;
/// Statistics that one consumer waits for.
pub const PENDING_STATS_MAX: usize = 16;

/// The longest `duration_ms`: seven days.
pub const DURATION_MS_MAX: u32 = 7 * 24 * 3600 * 1000;
/// The longest `duration_ms` with `enable_extra_guardrails`: one day.
pub const DURATION_MS_MAX_GUARDRAIL: u32 = 24 * 3600 * 1000;
/// Sum of all buffers with `enable_extra_guardrails`, unless the config raises it.
pub const GUARDRAIL_BUFFERS_KB_MAX: u64 = 128 * 1024;
/// With `enable_extra_guardrails`, two sessions of one name start at least this far apart.
pub const GUARDRAIL_SAME_NAME_INTERVAL_NS: u64 = 300 * 1000 * NS_PER_MS;

/// How long a flush waits for its producers where neither request nor config says so.
pub const FLUSH_TIMEOUT_MS_DEFAULT: u32 = 5000;
/// How long a stop waits for its data sources where the config does not say so.
pub const STOP_TIMEOUT_MS_DEFAULT: u32 = 5000;
/// How long after the start data sources that have not started are noted in the trace.
pub const SLOW_START_MS: u32 = 20_000;
/// Names in one "slow data sources" event.
pub const SLOW_SOURCES_MAX: usize = 32;
/// Period of clock snapshots, sync markers and statistics where the config does not say so.
pub const SNAPSHOT_INTERVAL_MS_DEFAULT: u32 = 10_000;
/// A clock has drifted, and a snapshot is worth keeping, when it moved this much against BOOTTIME.
pub const CLOCK_DRIFT_NS_MIN: u64 = 10 * NS_PER_MS;
/// Clock snapshots kept between two reads.
pub const CLOCK_SNAPSHOTS_MAX: usize = 16;
/// Flush events of one type kept between two reads.
pub const FLUSH_EVENTS_MAX: usize = 64;

/// Period of writes into the file where the config does not say so.
pub const FILE_WRITE_PERIOD_MS_DEFAULT: u32 = 5000;
/// The shortest period of writes into the file.
pub const FILE_WRITE_PERIOD_MS_MIN: u32 = 100;
/// Period of flushes of a session that writes into a file at least this often; one that writes less
/// often is flushed before each write.
pub const FILE_FLUSH_PERIOD_MS: u32 = 5000;

/// Events about other sessions kept between two reads.
pub const CONCURRENT_EVENTS_MAX: usize = 4096;

/// A step of a read for a consumer ends after this many bytes, the packet that crosses the line
/// included. About as much as a socket takes at once.
pub const READ_STEP_BYTES: usize = 256 * 1024;
/// A block of a trace ends after this many bytes, the packet that crosses the line included.
pub const READ_FRAMED_BYTES: usize = 1 << 20;
/// One step of writing a trace ends after this many bytes, the packet that crosses the line
/// included. Then the shell has its turn. A step waits at its end for what other threads are just
/// extracting, so it is not small.
pub const WRITE_TRACE_BYTES: usize = 32 << 20;
/// A pass over less than this is read by one thread, which is done before others have woken up.
pub const READ_IN_POOL_BYTES_MIN: u64 = 2 << 20;

/// Writer ids that a producer may use are 1 to this, so it has at most so many writers.
pub const WRITER_ID_MAX: u32 = 32_767;

/// Whether a producer may give this id to a writer.
pub(crate) fn is_writer_id(id: u32) -> bool {
    (1..=WRITER_ID_MAX).contains(&id)
}

/// Patches in one entry of a commit request.
pub const PATCHES_PER_ENTRY_MAX: usize = 1024;
/// Bytes of one patch: a redundant varint of four bytes.
pub const PATCH_BYTES: usize = 4;
/// Memory of the commits of a producer without shared memory that are held until it has
/// acknowledged a flush: as much as the shared memory of most clients, some times over. Larger
/// scrapes come in parts.
pub const HELD_COMMIT_BYTES_MAX: usize = 4 << 20;
/// A chunk sent by message, header included. What a record of the trace buffer can hold is one byte
/// less.
pub const EMULATED_CHUNK_BYTES_MAX: usize = 64 * 1024;

/// Memory for each shard of a buffer whose number of shards nobody asked for. A shard has an extent
/// open and seals it half full at worst: with extents of 128 to 256 KiB that is a few percent of
/// what it has.
pub const SHARD_SIZE_BYTES_MIN: usize = 4 << 20;

/// Sequences of a session of which nothing needs to be left in its buffers: so many are kept for
/// statistics. Beyond that those that the buffers do not know any more are forgotten.
pub const SEQUENCES_KEPT: usize = 65_536;

/// Sequence id of the packets that the service writes itself.
pub const SERVICE_SEQUENCE_ID: u32 = 1;
/// Producers' sequence ids start here.
pub const FIRST_PRODUCER_SEQUENCE_ID: u32 = SERVICE_SEQUENCE_ID + 1;

// What would break silently if one constant changed without the others.
const _: () = assert!(SESSIONS_PER_UID_MAX <= SESSIONS_MAX);
const _: () = assert!(SESSIONS_MAX + CLONES_MAX <= CONSUMERS_MAX, "each session has its consumer");
const _: () = assert!(
    (SESSIONS_MAX + CLONES_MAX) * BUFFERS_PER_SESSION_MAX <= BUFFERS_MAX,
    "buffer ids cannot run out"
);
const _: () = assert!(DURATION_MS_MAX_GUARDRAIL <= DURATION_MS_MAX);
const _: () = assert!(GUARDRAIL_BUFFERS_KB_MAX <= BUFFER_SIZE_KB_MAX as u64);
const _: () = assert!(FILE_WRITE_PERIOD_MS_MIN <= FILE_WRITE_PERIOD_MS_DEFAULT);
const _: () = assert!(FLUSH_TIMEOUT_MS_DEFAULT <= SLOW_START_MS && STOP_TIMEOUT_MS_DEFAULT <= SLOW_START_MS);
const _: () = assert!(READ_STEP_BYTES < READ_FRAMED_BYTES && READ_FRAMED_BYTES < WRITE_TRACE_BYTES);
const _: () = assert!(READ_FRAMED_BYTES < READ_IN_POOL_BYTES_MIN as usize, "small reads are one thread's");
const _: () = assert!(WRITER_ID_MAX <= u16::MAX as u32);
