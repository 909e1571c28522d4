//! The tracing service as a state machine: no sockets, no clock, no threads.
//!
//! A shell (the daemon, or the in-process backend of the client crate) feeds it with `handle_*`
//! calls and takes what comes out with `poll_*` calls. Time is a parameter ([`ClockReadings`]),
//! randomness a seed, memory and the threads that take part in large reads come from functions that
//! the shell passes in. One seed and one list of calls give the same outputs, byte for byte.
//!
//! ```text
//!                 handle_producer_*, handle_commit_data ...            handle_enable_tracing, read_* ...
//!   producers  ------------------------------------------> Service <-------------------------------------- consumers
//!              <-- Output::Producer: set-up, start, stop,    |   ^     -- Output::Consumer: ended, flushed -->
//!                  flush, shared memory                      |   |
//!                                                 poll_timeout   handle_timeout  poll_file, begin_write, handle_written
//!                                                            v   |                                 |
//!                                                        the shell's clocks                  the shell's files
//! ```
//!
//! What a shell does, in this order, each time that anything happens:
//!
//! 1. It reads its clocks and makes the call that fits: one `handle_*` for each message of a peer,
//!    or [`Service::handle_timeout`] when [`Service::poll_timeout`] says that something is due.
//! 2. It delivers what [`Service::poll_output`] gives, until there is nothing more. What is
//!    addressed to a peer that has gone is dropped.
//! 3. If it has sessions with files, it does what [`Service::poll_file`] says, until there is
//!    nothing more.
//! 4. If it has threads that may wait ([`ServiceOptions::never_waits`]), it gives them what
//!    [`Service::poll_clone`] and [`Service::poll_dropped`] have, until there is nothing more.
//! 5. Before it waits it calls [`Service::handle_idle`], and again if that says so and there is
//!    nothing else to do. Threads that may wait then get what [`Service::poll_prefault`] has.
//!
//! Everything is one `&mut` call at a time: a shell with threads puts a lock around the service.
//! Only what writers of the same process commit comes from any thread, by committers of their own
//! ([`DirectCommits`]).
//!
//! Non-goals: transport, permissions of sockets, and the reading of clocks belong to shells.
//! What a consumer reads is not compressed: that would take the loop's time.
//!
//! # Example
//!
//! A producer in the same process, and a session of two packets:
//!
//! ```
//! use std::sync::Arc;
//! use prost::Message as _;
//! use watershed_service::*;
//! use watershed_smb::{ChunkFlags, ChunkHeader, PageLayout, SharedMemory, Smb};
//! use watershed_wire::protos::{self, commit_data_request::ChunksToMove};
//!
//! let mut service = Service::new(ServiceOptions {
//!     seed: 1,
//!     uid: 0,
//!     version: "Perfetto v58.0-example".to_owned(),
//!     system: SystemInfo::default(),
//!     scraping_by_default: false,
//!     shards: Shards::UpTo(2),
//!     huge_pages: HugePages::Advise,
//!     workers: None,
//!     memory: Box::new(|size_bytes| SharedMemory::anonymous(size_bytes).map(Arc::new)),
//!     read_pool: Box::new(|| None),
//!     never_waits: false,
//!     filter_clock: None,
//! });
//! let now = ClockReadings::default(); // A shell reads its clocks here.
//!
//! // A producer comes and offers a data source.
//! let producer = service.handle_producer_connect(ProducerHello::default())?.producer_id;
//! let source = protos::DataSourceDescriptor { name: Some("my.source".to_owned()), ..Default::default() };
//! service.handle_register_data_source(producer, &source.encode_to_vec(), &now);
//!
//! // A consumer asks for it, with a buffer of 64 KiB.
//! let consumer = service.handle_consumer_connect(PeerIdentity::default())?;
//! let config = [0x0a, 2, 8, 64, 0x12, 13, 0x0a, 11, 0x0a, 9, b'm', b'y', b'.', b's', b'o', b'u', b'r', b'c', b'e'];
//! service.handle_enable_tracing(consumer, &config, OutputFile::None, &now)?;
//!
//! // The producer is told where to write.
//! let (mut memory, mut target_buffer) = (None, 0);
//! while let Some(output) = service.poll_output() {
//!     match output {
//!         Output::Producer(_, ProducerCommand::SetupTracing { memory: Some(shared), page_size_bytes }) => {
//!             memory = Some(Smb::new(shared, page_size_bytes)?);
//!         }
//!         Output::Producer(_, ProducerCommand::SetupDataSource { config, .. }) => {
//!             target_buffer = protos::DataSourceConfig::decode(&config[..])?.target_buffer();
//!         }
//!         _ => {}
//!     }
//! }
//!
//! // It writes two packets into a chunk and commits it.
//! let memory = memory.expect("memory is set up before the first data source");
//! let chunk = memory.try_acquire(0, PageLayout::Div1)?;
//! let packet = [2, 0x40, 7]; // Two bytes: TracePacket { timestamp: 7 }
//! memory.write_payload(&chunk, 0, &[packet, packet].concat());
//! memory.write_header(&chunk, ChunkHeader { chunk_id: 0, writer_id: 1, fragments: 2, flags: ChunkFlags::NONE });
//! let place = ChunksToMove {
//!     page: Some(chunk.page() as u32),
//!     chunk: Some(chunk.index() as u32),
//!     target_buffer: Some(target_buffer),
//!     ..Default::default()
//! };
//! memory.complete(chunk)?;
//! service.handle_commit_data(producer, &protos::CommitDataRequest { chunks_to_move: vec![place], ..Default::default() });
//!
//! // The consumer stops the session and reads it, as it would lie in a file.
//! service.handle_disable_tracing(consumer, &now);
//! let mut trace = Vec::new();
//! while service.read_framed(consumer, &mut trace, &now) == ReadProgress::More {}
//! let trace = protos::Trace::decode(&trace[..])?;
//! assert_eq!(trace.packet.iter().filter(|packet| packet.timestamp() == 7).count(), 2);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
#![forbid(unsafe_code)]

mod buffers;
mod clock;
mod commit_stats;
mod compress;
mod consumer;
mod direct;
mod dropped;
mod emit;
mod error;
mod filter;
mod ids;
pub mod limits;
mod options;
mod output;
mod prefault;
mod producer;
mod proto_bytes;
mod query;
mod read;
mod service;
mod session;
mod sync;
mod timer;

pub use clock::ClockReadings;
pub use commit_stats::{CommitStats, ProducerWaits};
pub use consumer::OutputFile;
pub use direct::{DirectCommits, DirectCommitter};
pub use dropped::Dropped;
pub use emit::SYNC_MARKER;
pub use error::{AttachRefused, CloneRefused, ConnectError, DetachRefused, EnableError, FlushRefused};
pub use filter::FilterError;
pub use ids::{BufferId, ConsumerId, FlushId, InstanceId, SessionId};
pub use options::{MemoryFactory, PoolFactory, ServiceOptions, Shards, SystemInfo};
pub use output::{
    ConsumerEvent, FileAction, FlushFlags, ObservedEvents, Output, ProducerCommand, ReadProgress, Warning,
};
pub use prefault::{PrefaultDone, PrefaultWork, SLOW_PAGE};
pub use producer::{
    ConnectedProducer, PeerIdentity, ProducerHello, ProducerMemory, ProducerWelcome, RegisteredDataSource,
    ScrapingMode,
};
pub use read::{PacketBatch, RESERVED_FIELDS, ReadBegun, ReadDone, ReadStep, Unread, WriteTrace};
pub use service::Service;
pub use session::{
    CloneRequest, CloneRoom, CloneSource, CloneWork, CloneWorkDone, ClonedSession, FileWrite, FileWritten,
    ReceivedTrigger, SessionState,
};
pub use timer::Deadlines;
pub use watershed_engine::{HugePages, ProducerId};
pub use watershed_shards::{MAX_SHARDS, Poisoned, Reduced, Topology, Worker, WorkerPool, WorkerStats};
