//! One shard of the trace buffer: TBChunk ring, SequenceState table, read back, statistics.
//!
//! A [`TraceBuffer`] takes *chunks* (rows of packet fragments, written by untrusted programs), keeps the newest of them in a ring, and
//! gives back *packets*: whole, each once, in the order of writing within their *sequence* (one writer of one producer), with the
//! reasons for what is missing before them.
//!
//! ```
//! use watershed_engine::{BufferConfig, ChunkId, ChunkInfo, ProducerId, TraceBuffer, WriterId};
//!
//! let mut buffer = TraceBuffer::create(&BufferConfig::ring(64 << 10))?;
//! let info = ChunkInfo {
//!     producer_id_trusted: ProducerId(1),
//!     writer_id: WriterId(1),
//!     chunk_id: ChunkId(0),
//!     num_fragments: 2,
//!     complete: true,
//!     ..ChunkInfo::default()
//! };
//! buffer.copy_chunk_untrusted(&info, b"\x02hi\x05there".as_slice())?;
//!
//! buffer.begin_read();
//! assert_eq!(buffer.read_next().unwrap().slices(), [b"hi"]);
//! assert_eq!(buffer.read_next().unwrap().slices(), [b"there"]);
//! assert!(buffer.read_next().is_none());
//! assert_eq!(buffer.stats().chunks_read, 1);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # What holds
//!
//! - Any bytes, ids, counts and flags of a chunk and any patches are taken: what is wrong is counted, nothing panics.
//! - A loss is reported with the next packet of its sequence, once, with its causes ([`LossReasons`]).
//! - Every record is accounted for ([`Ledger`]).
//! - A sequence that waits (for a patch, for the rest of a scraped chunk) stops no other, and no write.
//!
//! How it is built, from the bytes up: `tbchunk` (the ring), `records`, `sizes`, `sequences` (what is kept beside it), `space`
//! (where the next record goes), `commit`, `recommit`, `patch`, `evict`, `read`, `run`, `walk`, `chain`.
#![warn(missing_docs)]

mod append;
mod buffer;
mod chain;
mod commit;
mod commits;
mod config;
mod due;
mod dump;
mod erase;
mod evict;
mod extents;
mod fronts;
mod hash;
mod histogram;
mod identity;
mod ids;
mod key_table;
pub mod mem;
mod ordinary;
mod packet;
mod patch;
mod queue;
mod read;
mod recommit;
mod records;
mod remembered;
mod run;
mod sequence;
mod sequences;
mod shard;
mod sink;
mod sized;
mod sizes;
mod snapshot;
mod source;
mod space;
mod stats;
mod stretch;
mod tbchunk;
mod tickets;
mod turn;
mod walk;

pub use buffer::TraceBuffer;
pub use commits::Commits;
pub use config::{BufferConfig, ChunkInfo, CreateError, FillPolicy, HugePages, Patch, Refused};
pub use histogram::{NUM_BUCKETS, WriterStats};
pub use ids::{ChunkFlags, ChunkId, ClientIdentity, LossReasons, ProducerId, WriterId};
pub use packet::Packet;
pub use read::ReadPass;
pub use shard::Shard;
pub use sink::OverwriteSink;
pub use source::ByteSource;
pub use stats::{Amount, BufferStats, Ledger};
pub use watershed_simd::SharedBytes;
