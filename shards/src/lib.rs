//! Many shards as one trace buffer.
//!
//! A [`ShardedBuffer`] scales like buffers of each CPU and reads like one ring: chunks of a sequence go to one shard, each shard is filled by
//! one thread at a time, all shards share the memory of one ring, and a read gives what one ring would give, in the order of
//! commits. `docs/architecture.md` follows one chunk through it.
//!
//! # Every atomic
//!
//! "RMW" is a read-modify-write. Models are those of `src/models.rs`, `src/models_direct.rs`, `src/models_keep.rs` and `src/models_wish.rs`, run by `ci/loom`; "argument": loom cannot show it (it runs the
//! stores of one thread in program order, and SeqCst loads as Acquire), the proof is in the module's text.
//!
//! | atomic | publishes | ordering, and its partner | model |
//! |---|---|---|---|
//! | `Tickets::next` | the announcement stored, or the word taken or the keeper's flag set, before it; with `now`: what the caller did | RMW AcqRel by `take`, `take_in_hand` and `now`; Acquire load in `look`, RMW in `take` | `a_cut_covers_only_what_is_queued`, `what_is_in_hand_needs_no_announcement`, `what_is_kept_needs_no_announcement`, `homes_never_split`; argument for the Release of the taken word |
//! | `Tickets::last_cut` | what an earlier reader has seen | RMW AcqRel with itself | `a_cut_covers_only_what_is_queued` |
//! | `Tickets::cells` | a new cell and its `next` | RMW Release in `register`; Acquire load in `iter` | both models of seats |
//! | `Cell::bound` | with IDLE: the items that were queued | Release stores in `announce`, `take`, `Announced::drop`; Acquire load in `look` | `a_cut_covers_only_what_is_queued`; argument for the Release of IDLE |
//! | `Cell::taken` | the last holder's stores to `bound` | Acquire RMW in `try_take`; Release store in `Seat::drop` | `a_seat_is_used_again_by_another_thread` |
//! | `Word` | the shard's state, from owner to owner; with KEPT: `Word::keeper` | SeqCst RMW `try_take`, `give`, `request`, `keep`, `revoke`, `resolve`, `let_go`; SeqCst load `is_taken` against `Inbox::head`; Relaxed load `is_kept_as`, against `AtWork` by the barrier | `nothing_is_left_behind_when_an_owner_stops`, `a_kept_word_has_one_owner`, `nothing_is_left_behind_with_a_keeper`, `a_keeper_that_went_elsewhere_leaves_nothing`; with `is_taken` `a_debt_is_paid` |
//! | `Word::keeper` | nothing: the word does | Relaxed store `keep` before its RMW; Relaxed load `revoke` behind one | `a_kept_word_has_one_owner` |
//! | `AtWork` | not at work: the shard's state; at work: that other words were let go of | Release store `set`; Acquire load `is_set` | the four models of `src/models_keep.rs` |
//! | barrier `light`, `heavy` | of two threads that store and then load, that one sees the other: `AtWork` and `Word` | compiler fence, and the system's barrier in all running threads; under loom an AcqRel RMW of one place in both | the same; argument that the system keeps its promise |
//! | `Inbox::head` | the nodes of all puts | SeqCst RMW `put`, `take_all`; SeqCst load `is_empty` against the word | the same, `nodes_go_round` |
//! | `Node::depth` | nothing, it admits or refuses | Relaxed store before the put; Relaxed load after an Acquire load of `head` | `nodes_go_round` |
//! | `NodePool::returned` | the item as its last holder left it | Release RMW `give_back`; Acquire swap in `letter` | `nodes_go_round` |
//! | `Directory` entries | that the home's place is made; LEAVING: that the sequence was dropped | Acquire load in `settled`, `settled_at`, and with AcqRel RMW in `home_or`, `home_or_at`, `start_leaving`, `finish_leaving`; with `Tickets::now`, or the home's word | `homes_never_split`, `a_home_in_hand_stays` |
//! | `Lazy` | what was made | AcqRel RMW `make`; Acquire load `get` | `homes_never_split` makes its rooms by it |
//! | `Pool::top`, `Pool::next` | `next` of the top, and what was done in the extent | Release RMW `put`; Acquire load and AcqRel RMW in `pop`; `next` is Relaxed below them | `an_extent_has_one_holder` |
//! | `Pool::fresh`, `Pool::num_free` | nothing: the first use of an extent has no past; a hint | Relaxed | `an_extent_has_one_holder` takes its extents by `fresh` |
//! | `Inner::oldest`, `Hints::granted` | nothing: the word is taken before anything is done about them | Relaxed | none needed |
//! | `Wish` | that an extent is wanted; no data | AcqRel swap `leave`, Release store and REQUEST in the word `leave_with_owner`; Acquire swap `take`, Relaxed load `is_there` behind the word's `give` | `a_wish_left_with_an_owner_is_served`; one without a request may be seen late |
//! | `Debt`, `Debts` | a debt: that its shard was counted, and that somebody queued there; the number: nothing | AcqRel RMW `note`, `pay`; Relaxed RMW and load of the number | `a_debt_is_paid`, `every_debt_is_found` |
//! | `Hints::live`, `Inner::live`, `next_owner`, `next_home`, `Directory::room_bytes` | nothing: hints and numbers | Relaxed | none needed |
//! | `Bell::is_parked` | against `Inbox::head`: "queue, then look who sleeps; say so, then look at the queue" | SeqCst store and RMW | argument, as for the word |
//! | `barrier::IS_READY` | nothing: the promise is the system's | Relaxed | none needed |
//! | `Bell::is_gated` | nothing: the mutex beside it does | Relaxed | tests only |
//! | `Workers::is_over` | that it is over | SeqCst store; Acquire and SeqCst loads | joined |
//! | `Depot::news` | nothing: the board is locked before anything is done about it | Relaxed RMW `tell` under the lock; Relaxed loads | none needed |
#[cfg(all(not(loom), feature = "parallel"))]
mod apart;
mod barrier;
mod batch;
#[cfg(not(loom))]
mod blocks;
#[cfg(all(not(loom), feature = "parallel"))]
mod board;
#[cfg(not(loom))]
mod buffer;
#[cfg(not(loom))]
mod commit;
#[cfg(not(loom))]
mod config;
#[cfg(not(loom))]
mod copy;
#[cfg(not(loom))]
mod crew;
#[cfg(all(not(loom), feature = "parallel"))]
mod depot;
#[cfg(not(loom))]
mod direct;
mod directory;
#[cfg(not(loom))]
mod drain;
#[cfg(not(loom))]
mod evict;
mod extents;
pub mod framing;
mod inbox;
#[cfg(not(loom))]
mod inner;
mod keep;
mod lazy;
#[doc(hidden)]
#[cfg(not(loom))]
pub mod mailbox;
#[cfg(all(not(loom), feature = "parallel"))]
mod mill;
#[cfg(all(test, loom))]
mod models;
#[cfg(all(test, loom))]
mod models_direct;
#[cfg(all(test, loom))]
mod models_keep;
#[cfg(all(test, loom))]
mod models_wish;
mod nodes;
#[cfg(not(loom))]
mod own;
#[cfg(all(not(loom), feature = "parallel"))]
mod pace;
#[cfg(not(loom))]
mod part;
#[cfg(not(loom))]
mod read;
#[cfg(not(loom))]
mod route;
#[cfg(not(loom))]
mod shared;
#[cfg(not(loom))]
mod spare;
mod sync;
mod ticket;
mod topology;
#[cfg(not(loom))]
mod totals;
mod wish;
mod word;
#[cfg(not(loom))]
mod worker;

pub use batch::{Batch, OwnedBytes, PatchSet, Source};
#[cfg(not(loom))]
pub use blocks::Pieces;
#[cfg(not(loom))]
pub use buffer::{STOPPED_OWNER, ShardedBuffer, Stopped, StoppedWorker};
#[cfg(not(loom))]
pub use commit::{CommitError, Committer, HandedBack};
#[cfg(not(loom))]
pub use config::{Homes, Reduced, Report, ShardedConfig};
pub use extents::Cutting;
#[cfg(not(loom))]
pub use read::{BLOCK_BYTES, PacketWriter, ReadPass, Wait};
pub use topology::{Cpu, MAX_SHARDS, Topology, current_cpu};
pub use word::OwnerId;
