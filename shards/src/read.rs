//! Reading: shards are extracted into blocks, in parallel; blocks are merged in the order of tickets ([`crate::blocks`]).
//!
//! ```text
//!   the calling thread   | merge, write | merge, write | extract | merge, write ...
//!   rayon's threads      | extract      | extract      | extract | extract      ...      (ReadPass::write_all, see depot; where the
//!                                                                                        writing is behind, they merge too: see mill)
//! ```
//!
//! A shard's word is held only to copy some packets out. What was extracted and not handed out stays in [`Reading`], counts as
//! unread, comes first in the next pass, and goes into clones.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crossbeam_utils::CachePadded;
use watershed_engine::Packet;

use crate::blocks::{Block, Merge, Pieces, Reading, Supply};
use crate::crew;
#[cfg(feature = "parallel")]
use crate::depot::Depot;
use crate::drain::Drained;
use crate::inner::Inner;
use crate::own::Owned;
use crate::word::OwnerId;

/// A block of one shard has at most about so many bytes, less where there are many shards.
pub const BLOCK_BYTES: usize = 1 << 20;

/// All blocks together aim for this much, but none is smaller than [`LEAST_BLOCK_BYTES`].
const ALL_BLOCKS_BYTES: usize = 8 << 20;
const LEAST_BLOCK_BYTES: usize = 64 << 10;

/// The same where one thread extracts and merges: what it fills and hands out stays in its core's cache.
const ALL_BLOCKS_OF_ONE_THREAD_BYTES: usize = 1 << 20;

/// Where several threads fill blocks while one merges them: so much at a time, so that nobody waits long for another, and so much of one shard
/// and of all that lies ready.
#[cfg(feature = "parallel")]
mod ahead {
    pub(super) const BLOCK_BYTES: std::ops::RangeInclusive<usize> = 16 << 10..=256 << 10;
    pub(super) const BLOCKS_OF_A_SHARD: usize = 8;
    pub(super) const SHARD_BYTES: usize = 2 << 20;
    pub(super) const ALL_BYTES: usize = 8 << 20;
}

/// Below this much unread data one thread extracts all shards.
const PARALLEL_BYTES: u64 = 1 << 20;

/// Packets between two looks at the clock, and the longest time that a reader keeps a word.
const PACKETS_A_LOOK: usize = 64;
const MOST_TIME_US: u128 = 50;

/// What a packet becomes on its way out.
pub trait PacketWriter: Sync {
    /// Appends to `out` what the packet shall become: framed and stamped, for a file. False: the packet is dropped, what was appended is
    /// taken back, and the losses that the packet carried stay pending for the next of its sequence.
    fn write(&self, packet: &Packet<'_>, out: &mut Vec<u8>) -> bool;
}

impl<F: Fn(&Packet<'_>, &mut Vec<u8>) -> bool + Sync> PacketWriter for F {
    #[inline]
    fn write(&self, packet: &Packet<'_>, out: &mut Vec<u8>) -> bool {
        self(packet, out)
    }
}

/// A pass over everything that was committed before it began. Dropping it keeps what was not handed out for the next pass.
///
/// What several threads extract, `rayon`'s global threads do. They are made by the first that asks for them, and inherit the CPUs on which that
/// one may run: a program that pins its threads lets one that is not pinned read first, or builds the pool itself. A thread of a pass that finds
/// another of it on its CPU goes to a CPU of its own, if it may use one; on which CPUs it may run is afterwards as it was.
pub struct ReadPass<'a, W> {
    reading: MutexGuard<'a, Reading>,
    merge: Merge,
    /// In lines of its own: all threads look at it for each packet, and one of them writes what lies around it, for each run of the merge.
    way: CachePadded<Way<'a, W>>,
    is_parallel: bool,
    waits: Vec<Wait>,
}

/// How packets come out of the shards of a pass.
pub(crate) struct Way<'a, W> {
    inner: &'a Inner,
    writer: W,
    cut: u64,
    owner: OwnerId,
    block_bytes: usize,
}

/// Somebody for whom a read had to wait: the owner of a shard that was at work, or is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Whose shard.
    pub shard: usize,
    /// Who has it.
    pub owner: OwnerId,
}

impl<'a, W: PacketWriter> ReadPass<'a, W> {
    pub(crate) fn begin(inner: &'a Inner, writer: W, owner: OwnerId, limit: Option<u64>) -> ReadPass<'a, W> {
        let reading = inner.reading.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let cut = limit.unwrap_or_else(|| inner.tickets.cut());
        let num_shards = inner.places.len();
        let way = CachePadded::new(Way { inner, writer, cut, owner, block_bytes: 0 });
        let mut pass =
            ReadPass { reading, merge: Merge::default(), way, is_parallel: false, waits: Vec::new() };
        pass.reading.resize(num_shards);
        pass.reading.supplies.iter_mut().for_each(|supply| supply.has_more = false);
        let mut unread_bytes = 0;
        for (shard, _) in inner.places.made() {
            let (has_more, bytes) = pass.prepare(shard);
            pass.reading.supplies[shard].has_more = has_more;
            unread_bytes += bytes;
            inner.look_again(shard, owner);
        }
        pass.set_parallel(unread_bytes >= PARALLEL_BYTES && crew::num_threads() > 1);
        pass
    }

    fn set_parallel(&mut self, is_parallel: bool) {
        self.is_parallel = is_parallel;
        let all = if is_parallel { ALL_BLOCKS_BYTES } else { ALL_BLOCKS_OF_ONE_THREAD_BYTES };
        let num_shards = self.way.inner.places.len();
        self.way.block_bytes = (all / num_shards).clamp(LEAST_BLOCK_BYTES, BLOCK_BYTES);
    }

    /// Extracts on the calling thread alone: for who has one core to spend.
    pub fn on_one_thread(mut self) -> Self {
        self.set_parallel(false);
        self
    }

    /// Lets a shard drain up to the cut and starts its pass. Whether it has something, and how much.
    fn prepare(&mut self, shard: usize) -> (bool, u64) {
        let Way { inner, owner, .. } = *self.way;
        loop {
            let mut owned = Owned::wait_for(inner, shard, owner, |shard, owner| {
                note(&mut self.waits, Wait { shard, owner });
            });
            if owned.drain(true) != Drained::Everything {
                drop(owned);
                std::thread::yield_now();
                continue;
            }
            let Some(engine) = &mut owned.state.engine else { return (false, 0) };
            engine.begin_read();
            return (true, engine.ledger().listed.bytes);
        }
    }

    /// The next pieces of the merged stream, in order: about `most_bytes` (at least one run), until the pass is over. They are valid until the
    /// next call.
    pub fn next_pieces(&mut self, most_bytes: usize) -> Option<Pieces<'_>> {
        self.refill();
        let Reading { fronts, supplies, .. } = &mut *self.reading;
        let pieces = self.merge.take(fronts, |shard| supplies[shard].may_go_on(), most_bytes);
        (!pieces.is_empty()).then_some(pieces)
    }

    /// Hands the whole rest of the stream to `out`, piece by piece in order, on this thread, while others extract what comes next. Where `out` is what
    /// takes long, they also put pieces together, so that it gets fewer and larger ones.
    ///
    /// # Errors
    /// The first that `out` returns; what it was given then counts as handed out.
    pub fn write_all<E>(&mut self, mut out: impl FnMut(Pieces<'_>) -> Result<(), E>) -> Result<(), E> {
        #[cfg(feature = "parallel")]
        if self.is_parallel {
            return self.write_all_in_parallel(out);
        }
        while let Some(pieces) = self.next_pieces(BLOCK_BYTES) {
            out(pieces)?;
        }
        Ok(())
    }

    /// Takes back the last `bytes` of the pieces that [`next_pieces`](Self::next_pieces) gave last: they come first in the next ones, or in
    /// the next pass. For a reader who has no room for them.
    pub fn take_back(&mut self, bytes: usize) {
        self.merge.put_back(&mut self.reading.fronts, bytes);
    }

    #[cfg(feature = "parallel")]
    fn write_all_in_parallel<E>(&mut self, out: impl FnMut(Pieces<'_>) -> Result<(), E>) -> Result<(), E> {
        let num_shards = self.way.inner.places.len();
        let most_stock_bytes = (ahead::ALL_BYTES / num_shards).min(ahead::SHARD_BYTES);
        let (least, most) = ahead::BLOCK_BYTES.into_inner();
        self.way.block_bytes = (most_stock_bytes / ahead::BLOCKS_OF_A_SHARD).clamp(least, most);
        let num_threads = crew::num_threads().min(1 + num_shards);
        let (reading, merge) = (&mut *self.reading, &mut self.merge);
        let depot = Depot::new(&self.way, reading, merge, most_stock_bytes, num_threads);
        let result = rayon::in_place_scope(|scope| {
            let _over = depot.over_at_drop();
            // This thread is one of those that extract.
            let depot = &depot;
            for thread in 1..num_threads.min(depot.num_supplied() + 1) {
                scope.spawn(move |_| depot.help(thread));
            }
            depot.hand_out(out)
        });
        let waits = depot.take_waits();
        drop(depot);
        self.note_all(waits);
        result
    }

    /// Sees to it that the order can be told: extracts if a shard that may have more has nothing to show. In parallel every shard is
    /// extracted then of which nothing waits behind, so that none of them is alone next time.
    fn refill(&mut self) {
        if !self.reading.advance() {
            return;
        }
        let way = &self.way;
        let Reading { fronts, supplies, spare, .. } = &mut *self.reading;
        let needy = supplies.iter_mut().enumerate();
        let mut needy: Vec<(usize, &mut Supply, Block)> = needy
            .filter(|(shard, supply)| supply.is_needy() && (self.is_parallel || fronts[*shard].is_empty()))
            .map(|(shard, supply)| (shard, supply, spare.take(0)))
            .collect();
        let waits = Mutex::new(Vec::new());
        let fill = |(shard, supply, block): &mut (usize, &mut Supply, Block)| {
            let (has_more, waited) = way.extract(*shard, block);
            supply.has_more = has_more;
            if !block.is_empty() {
                supply.backs.push_back(std::mem::take(block));
            }
            waits.lock().unwrap_or_else(PoisonError::into_inner).extend(waited);
        };
        if self.is_parallel {
            crew::share(needy.iter_mut(), fill);
        } else {
            needy.iter_mut().for_each(fill);
        }
        let waits = waits.into_inner().unwrap_or_else(PoisonError::into_inner);
        needy.into_iter().for_each(|(_, _, unused)| spare.put(unused));
        self.note_all(waits);
        self.reading.advance();
    }

    fn note_all(&mut self, waits: Vec<Wait>) {
        waits.into_iter().for_each(|wait| note(&mut self.waits, wait));
        self.way.inner.attend(self.way.owner);
    }

    /// For whom this pass had to wait so far, each once.
    pub fn waits(&self) -> &[Wait] {
        &self.waits
    }

    /// Every chunk with a ticket below this belongs to the pass.
    pub fn cut(&self) -> u64 {
        self.way.cut
    }
}

pub(crate) fn note(waits: &mut Vec<Wait>, wait: Wait) {
    if !waits.contains(&wait) {
        waits.push(wait);
    }
}

impl<W: PacketWriter> Way<'_, W> {
    /// Fills an empty block with the next packets of a shard. Gives the word back between two turns. Whether there may be more.
    pub(crate) fn extract(&self, shard: usize, block: &mut Block) -> (bool, Vec<Wait>) {
        let (inner, mut waits) = (self.inner, Vec::new());
        block.bytes.reserve_exact(self.block_bytes + self.block_bytes / 8);
        let mut has_more = true;
        while has_more && block.bytes.len() < self.block_bytes {
            let mut owned = Owned::wait_for(inner, shard, self.owner, |shard, owner| {
                note(&mut waits, Wait { shard, owner });
            });
            has_more = self.take_turn(&mut owned, block);
            if inner.has_extents() {
                owned.return_emptied(false);
            }
            drop(owned);
            inner.look_again(shard, self.owner);
        }
        (has_more, waits)
    }

    /// Copies packets out for as long as a word may be kept. False if there are no more.
    #[inline]
    fn take_turn(&self, owned: &mut Owned<'_>, block: &mut Block) -> bool {
        let Some(engine) = &mut owned.state.engine else { return false };
        let started = Instant::now();
        let mut packets = 0;
        while block.bytes.len() < self.block_bytes {
            let Some((ticket, packet)) = engine.read_next(self.cut) else { return false };
            let before = block.bytes.len();
            if !self.writer.write(&packet, &mut block.bytes) {
                block.bytes.truncate(before);
                let (producer, writer, loss) = (packet.producer_id, packet.writer_id, packet.loss);
                engine.return_loss(producer, writer, loss);
            }
            block.end_run(ticket);
            packets += 1;
            if packets % PACKETS_A_LOOK == 0 && started.elapsed().as_micros() >= MOST_TIME_US {
                break;
            }
        }
        true
    }
}
