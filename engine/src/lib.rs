//! One shard of the trace buffer: a ring of chunks, its sequences, reading back, statistics.
//!
//! A [`TraceBuffer`] takes *chunks* (rows of packet fragments, written by untrusted programs) and
//! keeps the newest of them in a ring. It gives back *packets*: complete, each once, in the order
//! of writing within their *sequence* (one writer of one producer), with the reasons for what is
//! missing before them.
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
//! - Any bytes, ids, counts and flags of a chunk and any patches are taken: what is wrong is
//!   counted, nothing panics.
//! - A loss is reported with the next packet of its sequence, once, with its causes
//!   ([`LossReasons`]).
//! - Every record is accounted for ([`Ledger`]).
//! - A sequence that waits (for a patch, for the rest of a scraped chunk) stops no other, and no
//!   write.
//! - Nothing starts a thread or waits; the system is asked for memory alone. The process keeps the
//!   memory of the last four small buffers that were dropped, 4 MiB at most, for the next ones.
//!
//! # Folders
//!
//! ```text
//!   buffer   TraceBuffer, Shard: the parts put together, copies, checks
//!     v
//!   write    commits, recommits, patches: from untrusted bytes to records
//!     v
//!   evict    makes room for new records, as a read that waits for nothing
//!     v
//!   read     packets, in the order of the ring and of each sequence; fast/ for ordinary records
//!     v
//!   store    ring, index and accounts, kept in agreement
//!     v
//!   index    the table of records, sequences, sizes of fragments, tickets
//!     v
//!   ring     bytes of records, the write cursor, extents; mem/ for their memory
//! ```
//!
//! Each folder imports only from those below it, and from the leaves `accounts`, `config`, `ids`
//! and `packet`. Each keeps its state private.
#![warn(missing_docs)]

mod accounts;
mod buffer;
mod config;
mod evict;
mod ids;
mod index;
mod packet;
mod read;
mod ring;
mod store;
mod write;

pub use accounts::{Amount, BufferStats, Ledger};
pub use buffer::shard::Shard;
pub use buffer::{ReadPass, TraceBuffer};
pub use config::{BufferConfig, ChunkInfo, CreateError, FillPolicy, HugePages, Patch, Refused};
pub use evict::sink::OverwriteSink;
pub use ids::{ChunkFlags, ChunkId, ClientIdentity, LossReasons, ProducerId, WriterId};
pub use index::histograms::{NUM_BUCKETS, WriterStats};
pub use packet::Packet;
pub use ring::mem;
pub use watershed_simd::SharedBytes;
pub use write::source::ByteSource;
