//! Reading: packets are extracted from the shards into blocks, and the blocks are merged in the
//! order of tickets.
//!
//! ```text
//!   shard 0 --extract-->  blocks of shard 0  --+
//!   shard 1 --extract-->  blocks of shard 1  --+-- k-way merge by ticket --> out(pieces)
//!   shard 2 --extract-->  blocks of shard 2  --+
//!
//!   calling thread   | extract 0 | merge, out   | merge, out | extract 1 | merge, out | ...
//!   pool's threads   | extract 1 | extract 2, 0 | extract 1 ..           | extract 2  | ...
//! ```
//!
//! Without a pool the calling thread does everything; who extracts what with one is said in
//! `parallel`. A shard's owner lock is held only to copy some packets out: for the time of one
//! budget. What was extracted and not handed out stays in [`Reading`]: it counts as unread, comes
//! first in the next pass, and goes into clones.

pub(crate) mod block_pool;
pub mod framing;
pub(crate) mod merge;
pub(crate) mod parallel;

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use rayon::ThreadPool;
use watershed_engine::Packet;

use crate::read::merge::{Block, Merge, Pieces, Reading};
use crate::read::parallel::{BLOCKS_AHEAD, Extraction};
use crate::shard::Shared;
use crate::shard::budget::DrainBudget;
use crate::shard::drain::lock_drained;
use crate::shard::guard::ShardGuard;
use crate::sync::Ordering;
use crate::sync::lock::OwnerId;

/// One thread extracts into blocks of about so much in all, one for each shard, which stay in its
/// core's cache until they are written.
const ALL_BLOCKS_BYTES: usize = 1 << 20;
const MIN_BLOCK_BYTES: usize = 64 << 10;

/// Several threads extract ahead about so much in all: more than the caches of one core hold, see
/// [`BlockPool::take_oldest`](block_pool::BlockPool::take_oldest). Smaller blocks, so that nobody
/// waits long for another thread's.
const AHEAD_BYTES: usize = 8 << 20;
const AHEAD_MIN_BLOCK_BYTES: usize = 16 << 10;
const AHEAD_MAX_BLOCK_BYTES: usize = 512 << 10;

/// The budget of a reader that holds a shard's owner lock: the clock is read once for so many
/// packets.
const PACKETS_PER_CLOCK_READ: usize = 64;
const MAX_LOCKED_US: u128 = 50;

/// What a packet becomes on its way out.
pub trait PacketWriter: Sync {
    /// Appends to `out` what the packet becomes: framed and stamped, for a file. False drops the
    /// packet: what was appended is removed, and the losses that the packet carried are told with
    /// the next of its sequence.
    ///
    /// Several threads call it if the pass has a pool. If it panics, the packet is lost and the
    /// panic comes out of the read.
    fn write(&self, packet: &Packet<'_>, out: &mut Vec<u8>) -> bool;
}

impl<F: Fn(&Packet<'_>, &mut Vec<u8>) -> bool + Sync> PacketWriter for F {
    #[inline]
    fn write(&self, packet: &Packet<'_>, out: &mut Vec<u8>) -> bool {
        self(packet, out)
    }
}

/// A pass over everything that was committed before it began. Dropping it keeps what was not handed
/// out for the next pass.
pub struct ReadPass<'a, W> {
    reading: MutexGuard<'a, Reading>,
    merge: Merge,
    /// In cache lines of its own: all threads read it for each packet, and the calling thread
    /// writes to what lies around it.
    extractor: CachePadded<Extractor<'a, W>>,
    pool: Option<&'a ThreadPool>,
    /// Of each shard, whether more may come behind its front.
    may_go_on: Vec<bool>,
    unread_bytes: u64,
}

/// How packets come out of the shards of a pass.
pub(crate) struct Extractor<'a, W> {
    shared: &'a Shared,
    writer: W,
    cut: u64,
    owner: OwnerId,
    block_bytes: usize,
}

impl<'a, W: PacketWriter> ReadPass<'a, W> {
    pub(crate) fn begin(
        shared: &'a Shared,
        reading: &'a Mutex<Reading>,
        writer: W,
        owner: OwnerId,
        cut: u64,
    ) -> ReadPass<'a, W> {
        let reading = reading.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pass = ReadPass {
            reading,
            merge: Merge::default(),
            extractor: CachePadded::new(Extractor { shared, writer, cut, owner, block_bytes: 0 }),
            pool: None,
            may_go_on: Vec::new(),
            unread_bytes: 0,
        };
        pass.reading.resize(shared.slots.len());
        pass.unread_bytes = shared.extracted_bytes.load(Ordering::Relaxed) as u64;
        pass.reading.backlogs.iter_mut().for_each(|backlog| backlog.has_more = false);
        let mut budget = DrainBudget::new();
        for (shard, _) in shared.slots.made() {
            let listed_bytes = pass.begin_shard(shard, &mut budget);
            pass.reading.backlogs[shard].has_more = listed_bytes.is_some();
            pass.unread_bytes += listed_bytes.unwrap_or(0);
        }
        pass
    }

    /// Threads of the pool extract ahead during [`write_all`](Self::write_all) and
    /// [`write_up_to`](Self::write_up_to).
    ///
    /// These calls return when each thread that they asked for has been there, so the pool should
    /// have nothing else to do for long. It is best with a thread for each processor but the
    /// calling thread's. Where there is one processor, or little to read, one thread is faster.
    pub fn with_pool(mut self, pool: Option<&'a ThreadPool>) -> Self {
        self.pool = pool;
        self
    }

    /// Lets a shard drain up to the cut and starts its pass. Bytes of its records; None if it never
    /// had one.
    fn begin_shard(&mut self, shard: usize, budget: &mut DrainBudget) -> Option<u64> {
        let Extractor { shared, owner, cut, .. } = *self.extractor;
        let guard = lock_drained(shared, (shard, cut), owner);
        let listed_bytes = guard.state.engine.as_mut().map(|engine| {
            engine.begin_read();
            engine.ledger().listed.bytes
        });
        guard.unlock_read(budget);
        listed_bytes
    }

    /// Hands the whole rest of the stream to `out`, some pieces at a time, in order, on this
    /// thread.
    ///
    /// # Errors
    /// The first that `out` returns. What `out` was given counts as handed out, unless it is [taken
    /// back](Self::take_back).
    pub fn write_all<E>(&mut self, out: impl FnMut(Pieces<'_>) -> Result<(), E>) -> Result<(), E> {
        self.write_up_to(usize::MAX, out)
    }

    /// As [`write_all`](Self::write_all), up to about `max_bytes`: the run that crosses the line is
    /// handed out as a whole.
    ///
    /// # Errors
    /// As there.
    pub fn write_up_to<E>(
        &mut self,
        max_bytes: usize,
        mut out: impl FnMut(Pieces<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (pool, shared) = (self.pool, self.extractor.shared);
        self.extractor.block_bytes = block_bytes(shared.slots.len(), pool.is_some());
        let Reading { fronts, backlogs, block_pool } = &mut *self.reading;
        let (merge, may_go_on) = (&mut self.merge, &mut self.may_go_on);
        let extraction = Extraction::new(&self.extractor, backlogs, block_pool, pool);
        let result = extraction.run(|scope| {
            let mut left_bytes = max_bytes;
            while left_bytes > 0 && extraction.fill_fronts(scope, fronts, may_go_on) {
                let pieces = merge.take(fronts, |shard| may_go_on[shard], left_bytes);
                if pieces.is_empty() {
                    break;
                }
                shared.extracted_bytes.fetch_sub(pieces.size_bytes(), Ordering::Relaxed);
                left_bytes = left_bytes.saturating_sub(pieces.size_bytes());
                out(pieces)?;
            }
            Ok(())
        });
        shared.run_pending_drains(self.extractor.owner, &mut DrainBudget::new());
        result
    }

    /// Takes back the last `bytes` of the pieces at which the `out` of a write failed: they come
    /// first in the next ones, or in the next pass. For a reader that has no room for them.
    pub fn take_back(&mut self, bytes: usize) {
        let bytes = self.merge.put_back(&mut self.reading.fronts, bytes);
        self.extractor.shared.extracted_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// About how much there was to read when the pass began: bytes of records, and of what was
    /// extracted before.
    pub fn unread_bytes(&self) -> u64 {
        self.unread_bytes
    }
}

/// How much is extracted from a shard at a time.
fn block_bytes(num_shards: usize, is_parallel: bool) -> usize {
    if is_parallel {
        let bytes = AHEAD_BYTES / num_shards / BLOCKS_AHEAD;
        bytes.clamp(AHEAD_MIN_BLOCK_BYTES, AHEAD_MAX_BLOCK_BYTES)
    } else {
        (ALL_BLOCKS_BYTES / num_shards).max(MIN_BLOCK_BYTES)
    }
}

impl<W: PacketWriter> Extractor<'_, W> {
    /// Fills an empty block with the next packets of a shard. Unlocks the shard between two
    /// budgets. Whether there may be more.
    fn extract(&self, shard: usize, block: &mut Block) -> bool {
        let shared = self.shared;
        block.bytes.reserve_exact(self.block_bytes + self.block_bytes / 8);
        let mut has_more = true;
        while has_more && block.bytes.len() < self.block_bytes {
            let mut guard = ShardGuard::lock(shared, shard, self.owner);
            has_more = self.copy_packets(&mut guard, block);
            if shared.has_extents() {
                guard.return_empty_extents();
            }
            drop(guard);
            shared.after_unlock(shard, self.owner);
        }
        has_more
    }

    /// Copies packets out for one budget. False if there are no more.
    #[inline]
    fn copy_packets(&self, guard: &mut ShardGuard<'_>, block: &mut Block) -> bool {
        let Some(engine) = &mut guard.state.engine else { return false };
        let started = Instant::now();
        let mut packets = 0;
        while block.bytes.len() < self.block_bytes {
            let Some((ticket, packet)) = engine.read_next(self.cut) else { return false };
            let before = block.bytes.len();
            let may_poison = std::mem::replace(&mut guard.may_poison, false);
            let is_kept = self.writer.write(&packet, &mut block.bytes);
            guard.may_poison = may_poison;
            if !is_kept {
                block.bytes.truncate(before);
                let (producer, writer, loss) = (packet.producer_id, packet.writer_id, packet.loss);
                engine.return_loss(producer, writer, loss);
            }
            block.end_run(ticket);
            packets += 1;
            if packets % PACKETS_PER_CLOCK_READ == 0 && started.elapsed().as_micros() >= MAX_LOCKED_US {
                break;
            }
        }
        true
    }
}
