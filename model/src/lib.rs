//! A naive model of the trace buffer, to be compared with the engine.
//!
//! [`Model`] is written from the specification alone, in maps and vectors, and shares no code with
//! the engine (only the adapter in [`engine`] knows of it). It answers every call as one shard of
//! the engine must: packets, loss bits, placement, every statistic.
//!
//! * [`history`] and [`drive`]: histories of calls, and what compares any [`subject::Subject`] with
//!   the model after every step.
//! * [`property`]: random histories, shrunk when they show a difference.
//! * [`writers`]: well-behaved writers, an oracle without the model.
//! * [`chain`]: scenarios with expectations derived by hand.
//!
//! # Decisions where the specification leaves room
//!
//! * **Sealed DISCARD** (Q-5): a chunk whose id is listed goes on as a recommit. Every other commit
//!   is discarded before anything else is looked at.
//! * **Cuts at commit** (Q-L, Q-10): a missing or malformed fragment clears LN and NP and marks the
//!   record's *end*; a sentinel does the same with its own mark. The marks become loss bits
//!   of the sequence when the record is erased, so they go out with the first packet after the
//!   loss. The recommit rule about flags sees the flags after the cut.
//! * **Acceptance** (Q-33): the histogram moves with every new record and with a growth in place.
//!   `trace_writer_packet_loss` moves when a record gets its sentinel mark, once a record; a final
//!   commit that is as long as the scraped copy may be what brings it.
//! * **Oversize** (Q-10): a complete chunk larger than the buffer marks the end of the newest
//!   listed record before it, or else the sequence's pending bits. A scraped one is no loss yet:
//!   its final commit may fit.
//! * **Duplicates** (Q-30): the last consumed id again, with as many visible bytes. Other ids that
//!   are not newer are discarded.
//! * **Order of lookups**: the list before last-consumed, so that a chunk kept below last-consumed
//!   can still be completed.
//! * **Gaps** (Q-1, Q-2, Q-3, Q-12): judged on arrival at a record, against last-consumed, once a
//!   record; a look-ahead judges neighbours.
//! * **NP in a look-ahead** (Q-26): blocks before the gap is tested, unless the record's first
//!   unread fragment ends the packet.
//! * **A chunk cut at commit with nothing to read** inside a packet is a loss (CHUNK_CORRUPTED),
//!   not an empty chunk.
//! * **Moved boundaries**: a recommit in place keeps the consumed *bytes*, as the specification
//!   says, even where a hostile writer moved the fragments.
//! * **Ledger**: a record is booked when it is erased, by how its last byte went.
//! * **Lives**: after `end_writer` an id that is not newer than the newest known one starts a new
//!   life; after `end_producer` every chunk does, since it comes from another process. Identity
//!   belongs to the life. Look-ahead does not cross lives, and a life that has a successor no
//!   longer stalls: what it still misses is lost (REASSEMBLY_BROKEN_CHAIN).
//! * **Passes**: whatever changes the buffer ends the read pass; `read_next` then yields nothing
//!   until `begin_read`.
//! * **Overwrite sink**: packets show the pending loss bits, which stay pending; an absorbed packet
//!   sets no OVERWRITE.
//! * **Returned losses** of a sequence that is unknown, or gone with its producer, are ignored.
//! * **Ids forged more than 2^31 apart** have no order, so histories have none that would be
//!   ambiguous ([`Model::has_one_order`]).
//! * Not modelled: that patches look back at 64 lives at most, and the bound on remembered empty
//!   sequences. Both are above what a history reaches.

#![forbid(unsafe_code)]

pub mod chain;
mod commit;
mod committed;
mod compare;
pub mod drive;
pub mod engine;
pub mod fragments;
pub mod history;
mod model;
#[cfg(feature = "property")]
pub mod property;
mod record;
mod stats;
#[cfg(feature = "property")]
pub mod strategy;
mod stretch;
pub mod subject;
mod types;
mod walk;
pub mod writers;

pub use model::{Absorb, Listed, Model, Placed};
pub use stats::{Amount, BUCKET_MAX_BYTES, Histogram, Ledger, Stats};
pub use types::{Chunk, Identity, Packet, Patch, Policy, flag, is_newer, key_of, loss};
