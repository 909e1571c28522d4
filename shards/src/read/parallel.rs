//! Extraction by several threads: what lies ready of each shard, and who extracts next from which.
//!
//! One mutex guards the backlogs of a pass. It is locked twice for each block, which takes tens of
//! microseconds to extract. One thread at a time extracts from a shard, so the blocks of a shard
//! lie in order. The calling thread extracts what it lacks itself; it waits only for a block that
//! another thread is extracting at that moment. So a pool whose threads are busy elsewhere makes a
//! read slower, but does not stop it until the end, when they must have been there once.
//!
//! The other way round, the pool's threads never wait for the calling one, which may write to a
//! slow disk: those that find enough extracted go, and are asked for again. Other reads want them,
//! too.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use rayon::{Scope, ThreadPool};

use crate::read::block_pool::BlockPool;
use crate::read::merge::{Backlog, Block};
use crate::read::{Extractor, PacketWriter};
use crate::sync::Ordering;

/// Blocks of a shard that lie ready at most, besides the one that is being handed out.
pub(crate) const BLOCKS_AHEAD: usize = 8;

/// The backlogs of a pass, shared by the threads that extract.
pub(crate) struct Extraction<'p, W> {
    extractor: &'p Extractor<'p, W>,
    /// Whose threads extract beside the calling one.
    pool: Option<&'p ThreadPool>,
    state: Mutex<State<'p>>,
    /// A block was put into a backlog. The calling thread waits for it.
    block_ready: Condvar,
}

struct State<'p> {
    backlogs: &'p mut [Backlog],
    block_pool: &'p mut BlockPool,
    /// Shards from which a thread is extracting.
    is_taken: Vec<bool>,
    /// Threads of the pool that extract, or were asked to.
    num_helpers: usize,
    /// The calling thread is done, or one of the others has panicked.
    is_over: bool,
}

impl State<'_> {
    /// Of the shards from which nobody extracts, the one with the fewest blocks. None if all have
    /// enough.
    fn next_shard(&self) -> Option<usize> {
        let num_blocks = |shard: &usize| self.backlogs[*shard].blocks.len();
        (0..self.backlogs.len())
            .filter(|&shard| self.backlogs[shard].has_more && !self.is_taken[shard])
            .min_by_key(num_blocks)
            .filter(|shard| num_blocks(shard) < BLOCKS_AHEAD)
    }

    /// Whether it pays to ask for a thread, which takes about as long as extracting a block.
    fn is_short(&self) -> bool {
        self.next_shard().is_some_and(|shard| self.backlogs[shard].blocks.len() <= BLOCKS_AHEAD / 2)
    }

    /// Moves the next blocks to the fronts that are empty. The shards whose fronts stay empty
    /// although they may have more, if there are any.
    fn advance(&mut self, fronts: &mut [Block]) -> Option<Vec<usize>> {
        let mut missing = Vec::new();
        for (shard, (front, backlog)) in fronts.iter_mut().zip(self.backlogs.iter_mut()).enumerate() {
            if front.is_empty() {
                self.block_pool.put(std::mem::take(front));
                match backlog.blocks.pop_front() {
                    Some(block) => *front = block,
                    None if backlog.has_more => missing.push(shard),
                    None => {}
                }
            }
        }
        (!missing.is_empty()).then_some(missing)
    }
}

impl<'p, W: PacketWriter> Extraction<'p, W> {
    pub(crate) fn new(
        extractor: &'p Extractor<'p, W>,
        backlogs: &'p mut [Backlog],
        block_pool: &'p mut BlockPool,
        pool: Option<&'p ThreadPool>,
    ) -> Extraction<'p, W> {
        let is_taken = vec![false; backlogs.len()];
        let state = State { backlogs, block_pool, is_taken, num_helpers: 0, is_over: false };
        Extraction { extractor, pool, state: Mutex::new(state), block_ready: Condvar::new() }
    }

    /// Runs `hand_out` on this thread while threads of the pool, if there is one, extract ahead.
    /// Returns when they have stopped. A panic of any of them comes out of this call.
    pub(crate) fn run<'s, R>(&'s self, hand_out: impl FnOnce(Option<&Scope<'s>>) -> R) -> R {
        let Some(pool) = self.pool else { return hand_out(None) };
        pool.in_place_scope(|scope| {
            let _guard = OverOnDrop(self);
            self.ask_for_helpers(&mut self.lock(), scope);
            hand_out(Some(scope))
        })
    }

    /// Asks for a thread for each shard that may have more, as far as the pool has them.
    fn ask_for_helpers<'s>(&'s self, state: &mut State<'p>, scope: &Scope<'s>) {
        let num_shards = state.backlogs.iter().filter(|backlog| backlog.has_more).count();
        let num_threads = self.pool.map_or(0, ThreadPool::current_num_threads).min(num_shards);
        for _ in state.num_helpers..num_threads {
            state.num_helpers += 1;
            scope.spawn(|_| self.extract_ahead());
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<'p>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What a thread of the pool does until the pass is over or enough is extracted.
    fn extract_ahead(&self) {
        let mut state = self.lock();
        while !state.is_over
            && let Some(shard) = state.next_shard()
        {
            state = self.extract(state, shard);
        }
        state.num_helpers -= 1;
    }

    /// Extracts one block from a shard from which nobody extracts.
    fn extract<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<'p>>,
        shard: usize,
    ) -> MutexGuard<'a, State<'p>> {
        state.is_taken[shard] = true;
        let block = match self.pool {
            Some(_) => state.block_pool.take_oldest(),
            None => state.block_pool.take_newest(),
        };
        drop(state);
        let mut taken = TakenShard { extraction: self, shard, block, has_more: true };
        taken.has_more = self.extractor.extract(shard, &mut taken.block);
        drop(taken);
        self.lock()
    }

    /// Brings a block to the front of each shard that has one or can extract one, so that the order
    /// of all can be told. `may_go_on` says afterwards of each shard whether more may come behind
    /// its front. False if another thread has panicked.
    pub(crate) fn fill_fronts<'s>(
        &'s self,
        scope: Option<&Scope<'s>>,
        fronts: &mut [Block],
        may_go_on: &mut Vec<bool>,
    ) -> bool {
        let mut state = self.lock();
        while !state.is_over {
            let Some(missing) = state.advance(fronts) else {
                may_go_on.clear();
                may_go_on.extend(state.backlogs.iter().map(Backlog::may_go_on));
                if let Some(scope) = scope.filter(|_| state.is_short()) {
                    self.ask_for_helpers(&mut state, scope);
                }
                return true;
            };
            let untaken = missing.into_iter().find(|&shard| !state.is_taken[shard]);
            state = match untaken.or_else(|| state.next_shard()) {
                Some(shard) => self.extract(state, shard),
                None => self.block_ready.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
        }
        false
    }
}

/// Lets the pool's threads stop, whatever ends the calling thread's part of the pass.
struct OverOnDrop<'a, 'p, W>(&'a Extraction<'p, W>);

impl<W> Drop for OverOnDrop<'_, '_, W> {
    fn drop(&mut self) {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner).is_over = true;
    }
}

/// A shard from which this thread extracts. Dropping it puts what was extracted into the backlog,
/// also when the [`PacketWriter`] panics.
struct TakenShard<'a, 'p, W> {
    extraction: &'a Extraction<'p, W>,
    shard: usize,
    block: Block,
    has_more: bool,
}

impl<W> Drop for TakenShard<'_, '_, W> {
    fn drop(&mut self) {
        let mut state = self.extraction.state.lock().unwrap_or_else(PoisonError::into_inner);
        let State { backlogs, block_pool, is_taken, is_over, .. } = &mut *state;
        self.block.discard_unfinished();
        let block = std::mem::take(&mut self.block);
        match block.is_empty() {
            true => block_pool.put(block),
            false => {
                self.extraction
                    .extractor
                    .shared
                    .extracted_bytes
                    .fetch_add(block.bytes.len(), Ordering::Relaxed);
                backlogs[self.shard].blocks.push_back(block);
            }
        }
        backlogs[self.shard].has_more = self.has_more;
        is_taken[self.shard] = false;
        *is_over |= std::thread::panicking();
        drop(state);
        self.extraction.block_ready.notify_one();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The state of shards that have so many blocks ready, and more to extract.
    fn with_state(num_blocks: &[usize], check: impl FnOnce(&mut State<'_>)) {
        let backlog = |&num: &usize| Backlog { has_more: true, blocks: vec![Block::default(); num].into() };
        let mut backlogs: Vec<Backlog> = num_blocks.iter().map(backlog).collect();
        let is_taken = vec![false; num_blocks.len()];
        check(&mut State {
            backlogs: &mut backlogs,
            block_pool: &mut BlockPool::default(),
            is_taken,
            num_helpers: 0,
            is_over: false,
        });
    }

    #[test]
    fn the_free_shard_with_the_fewest_blocks_is_next_and_a_full_one_never() {
        with_state(&[2, 1, BLOCKS_AHEAD, 0], |state| {
            for expected in [Some(3), Some(1), Some(0), None] {
                let next = state.next_shard();
                assert_eq!(next, expected);
                next.into_iter().for_each(|shard| state.is_taken[shard] = true);
            }
        });
        with_state(&[0, BLOCKS_AHEAD / 2 + 1], |state| {
            state.backlogs[0].has_more = false;
            assert_eq!(state.next_shard(), Some(1), "there is nothing more in the other");
            assert!(!state.is_short());
            state.backlogs[1].blocks.pop_front();
            assert!(state.is_short());
        });
    }
}
