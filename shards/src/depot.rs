//! The supplies of one pass, filled by several threads while one merges and writes.
//!
//! ```text
//!   thread 0    merge, write | merge, write | extract, where nothing can be merged | merge, write ...
//!   others      extract | extract | extract ...           each time from the free shard that has least in stock, until all have enough
//!
//!   a shard's stock    [ front: being handed out ] [ ready | ready | ... ]  <- one thread at a time, a block at a time
//! ```
//!
//! One mutex guards who is at which shard and what lies ready; it is taken twice for each block, which has taken tens of microseconds. Cores
//! may differ in speed, while all shards are used up alike: where the shard of a faster thread has got far ahead, the slower one asks to be
//! its **heir**, so that the two change places, and nobody waits with a full stock for the other's.
//!
//! A thread without anything to do looks for news for a while before it sleeps: blocks are used up within microseconds, and waking costs more.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::blocks::{Block, Reading, Supply};
use crate::read::{PacketWriter, Wait, Way, note};
use crate::spare::Spare;

/// How often a thread looks for news before it sleeps.
const LOOKS: usize = 200;

/// A thread that takes so many times as long as another is worth an exchange.
const MUCH_SLOWER: f32 = 1.125;

/// The thread that merges.
const MERGER: usize = 0;

/// What one shard has in stock.
struct Shelf<'p> {
    supply: &'p mut Supply,
    /// Bytes that lie ready in `supply`, and those at the shard's front when the merging thread last told of them.
    ready_bytes: usize,
    front_bytes: usize,
    /// Who extracts from the shard.
    taken_by: Option<usize>,
    /// Who waits to be the next at it.
    heir: Option<usize>,
}

impl Shelf<'_> {
    fn stock_bytes(&self) -> usize {
        self.ready_bytes + self.front_bytes
    }
}

struct Board<'p> {
    shelves: Vec<Shelf<'p>>,
    spare: &'p mut Spare,
    waits: Vec<Wait>,
    /// What each thread takes for a byte, in nanoseconds, of late.
    paces: Vec<f32>,
    /// A shard that has so much has enough.
    most_stock_bytes: usize,
    num_sleepers: usize,
    is_over: bool,
}

pub(crate) struct Depot<'p, W> {
    way: &'p Way<'p, W>,
    board: Mutex<Board<'p>>,
    /// Counts what has changed on the board. Relaxed: who sees that it did locks the board, under which it changes.
    news: AtomicU64,
    bell: Condvar,
}

/// Ends the helpers when it is dropped, whatever ends the pass.
pub(crate) struct Over<'a, 'p, W>(&'a Depot<'p, W>);

impl<W> Drop for Over<'_, '_, W> {
    fn drop(&mut self) {
        let mut board = self.0.lock();
        board.is_over = true;
        self.0.tell(&board);
    }
}

/// Ends a shard of which the extraction panics, as the caller's part of it may: nobody waits for it, and the panic comes out of the pass.
struct GivenUp<'a, 'p, W>(&'a Depot<'p, W>, usize);

impl<W> Drop for GivenUp<'_, '_, W> {
    fn drop(&mut self) {
        let mut board = self.0.lock();
        let shelf = &mut board.shelves[self.1];
        (shelf.supply.has_more, shelf.taken_by) = (false, None);
        self.0.tell(&board);
    }
}

impl<'p, W> Depot<'p, W> {
    pub(crate) fn over_at_drop(&self) -> Over<'_, 'p, W> {
        Over(self)
    }

    fn lock(&self) -> MutexGuard<'_, Board<'p>> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called by who has changed the board, before it is given back.
    fn tell(&self, board: &Board<'p>) {
        self.news.fetch_add(1, Ordering::Relaxed);
        if board.num_sleepers > 0 {
            self.bell.notify_all();
        }
    }

    /// Gives the board back until there is news: looks for a while, then sleeps.
    fn wait<'a>(&'a self, board: MutexGuard<'a, Board<'p>>) -> MutexGuard<'a, Board<'p>> {
        let seen = self.news.load(Ordering::Relaxed);
        let is_new = || self.news.load(Ordering::Relaxed) != seen;
        drop(board);
        for _ in 0..LOOKS {
            if is_new() {
                return self.lock();
            }
            std::thread::yield_now();
        }
        let mut board = self.lock();
        board.num_sleepers += 1;
        let woken = self.bell.wait_while(board, |_| !is_new());
        board = woken.unwrap_or_else(PoisonError::into_inner);
        board.num_sleepers -= 1;
        board
    }
}

impl<'p, W: PacketWriter> Depot<'p, W> {
    /// A depot for shards that each aim for `most_stock_bytes`; and their fronts.
    pub(crate) fn new(
        way: &'p Way<'p, W>,
        reading: &'p mut Reading,
        most_stock_bytes: usize,
        num_threads: usize,
    ) -> (Depot<'p, W>, &'p mut [Block]) {
        let Reading { fronts, supplies, spare } = reading;
        let shelf = |supply: &'p mut Supply| {
            let ready_bytes = supply.ready_bytes();
            Shelf { supply, ready_bytes, front_bytes: 0, taken_by: None, heir: None }
        };
        let shelves = supplies.iter_mut().map(shelf).collect();
        let (waits, paces) = (Vec::new(), vec![0.0; num_threads]);
        let board = Board { shelves, spare, waits, paces, most_stock_bytes, num_sleepers: 0, is_over: false };
        let depot = Depot { way, board: Mutex::new(board), news: AtomicU64::new(0), bell: Condvar::new() };
        (depot, fronts)
    }

    /// Shards that have something.
    pub(crate) fn num_supplied(&self) -> usize {
        self.lock().shelves.iter().filter(|shelf| shelf.supply.may_go_on()).count()
    }

    /// Extracts a block from a shard that nobody is at.
    fn fill<'a>(
        &'a self,
        mut board: MutexGuard<'a, Board<'p>>,
        shard: usize,
        thread: usize,
    ) -> MutexGuard<'a, Board<'p>> {
        board.shelves[shard].taken_by = Some(thread);
        let mut block = board.spare.take(thread);
        drop(board);
        let started = Instant::now();
        let given_up = GivenUp(self, shard);
        let (has_more, waits) = self.way.extract(shard, &mut block);
        std::mem::forget(given_up);
        let pace = started.elapsed().as_nanos() as f32 / block.bytes.len().max(1) as f32;
        let mut board = self.lock();
        board.paces[thread] += (pace - board.paces[thread]) / 4.0;
        waits.into_iter().for_each(|wait| note(&mut board.waits, wait));
        board.put(shard, block, has_more);
        self.tell(&board);
        board
    }

    /// What a helper does until the pass is over.
    pub(crate) fn help(&self, thread: usize) {
        let mut board = self.lock();
        while !board.is_over {
            board = match board.choose(thread) {
                Some(shard) => self.fill(board, shard, thread),
                None => self.wait(board),
            };
        }
    }

    /// Sees to it that each front has something, unless its shard has nothing more: takes what is ready, and extracts while it is not. Then
    /// tells of each shard whether something may come behind its front.
    pub(crate) fn restock(&self, fronts: &mut [Block], may_go_on: &mut Vec<bool>) {
        let mut board = self.lock();
        while board.advance(fronts) {
            board = match board.choose(MERGER) {
                Some(shard) => self.fill(board, shard, MERGER),
                None => self.wait(board),
            };
        }
        board.disinherit(MERGER);
        may_go_on.clear();
        may_go_on
            .extend(board.shelves.iter().map(|shelf| shelf.taken_by.is_some() || shelf.supply.may_go_on()));
        // Stocks have become smaller.
        self.tell(&board);
    }

    /// For whom somebody waited.
    pub(crate) fn into_waits(self) -> Vec<Wait> {
        self.board.into_inner().unwrap_or_else(PoisonError::into_inner).waits
    }
}

impl Board<'_> {
    /// From which shard `thread` shall extract: of those that nobody is at, the one that has least. None if there is nothing to be done
    /// before there is news.
    fn choose(&mut self, thread: usize) -> Option<usize> {
        if let Some(shard) = self.shelves.iter().position(|shelf| shelf.heir == Some(thread)) {
            let shelf = &mut self.shelves[shard];
            if shelf.taken_by.is_some() {
                return None;
            }
            shelf.heir = None;
            if shelf.supply.has_more && shelf.stock_bytes() < self.most_stock_bytes {
                return Some(shard);
            }
        }
        let stock = |&(_, shelf): &(usize, &Shelf<'_>)| shelf.stock_bytes();
        let open = self
            .shelves
            .iter()
            .enumerate()
            .filter(|(_, shelf)| shelf.supply.has_more && shelf.heir.is_none());
        let (taken, free): (Vec<_>, Vec<_>) = open.partition(|(_, shelf)| shelf.taken_by.is_some());
        let (shard, least) = free.into_iter().min_by_key(stock)?;
        let is_slower = |other: Option<usize>| {
            other.is_some_and(|other| self.paces[thread] > MUCH_SLOWER * self.paces[other])
        };
        if let Some((shard, most)) = taken.into_iter().max_by_key(stock)
            && most.stock_bytes() > least.stock_bytes() + self.most_stock_bytes / 4
            && is_slower(most.taken_by)
        {
            self.shelves[shard].heir = Some(thread);
            return None;
        }
        (least.stock_bytes() < self.most_stock_bytes).then_some(shard)
    }

    /// A thread that does something else now comes first nowhere.
    fn disinherit(&mut self, thread: usize) {
        self.shelves
            .iter_mut()
            .filter(|shelf| shelf.heir == Some(thread))
            .for_each(|shelf| shelf.heir = None);
    }

    fn put(&mut self, shard: usize, block: Block, has_more: bool) {
        let shelf = &mut self.shelves[shard];
        (shelf.supply.has_more, shelf.taken_by) = (has_more, None);
        if block.is_empty() {
            self.spare.put(block);
        } else {
            shelf.ready_bytes += block.unread_bytes();
            shelf.supply.backs.push_back(block);
        }
    }

    /// Puts what is ready to the front where that is empty. Whether some shard has nothing at its front and may have more.
    fn advance(&mut self, fronts: &mut [Block]) -> bool {
        let mut is_dry = false;
        for (shelf, front) in self.shelves.iter_mut().zip(fronts) {
            if front.is_empty() {
                self.spare.put(std::mem::take(front));
                match shelf.supply.backs.pop_front() {
                    Some(block) => {
                        shelf.ready_bytes -= block.unread_bytes();
                        *front = block;
                    }
                    None => is_dry |= shelf.taken_by.is_some() || shelf.supply.has_more,
                }
            }
            shelf.front_bytes = front.unread_bytes();
        }
        is_dry
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A board over shards of which each has more, and so many bytes in stock.
    fn board<'p>(supplies: &'p mut [Supply], spare: &'p mut Spare, stocks: &[usize]) -> Board<'p> {
        let shelf = |(supply, &bytes): (&'p mut Supply, &usize)| {
            supply.has_more = true;
            Shelf { supply, ready_bytes: bytes, front_bytes: 0, taken_by: None, heir: None }
        };
        let shelves = supplies.iter_mut().zip(stocks).map(shelf).collect();
        let (waits, paces) = (Vec::new(), vec![1.0; 3]);
        Board { shelves, spare, waits, paces, most_stock_bytes: 1000, num_sleepers: 0, is_over: false }
    }

    #[test]
    fn the_free_shard_that_has_least_is_next_and_a_full_one_never() {
        let (mut supplies, mut spare) = (vec![Supply::default(); 4], Spare::default());
        let mut board = board(&mut supplies, &mut spare, &[500, 100, 1000, 0]);
        for (thread, expected) in [(0, Some(3)), (1, Some(1)), (2, Some(0)), (0, None)] {
            let chosen = board.choose(thread);
            assert_eq!(chosen, expected);
            if let Some(shard) = chosen {
                board.shelves[shard].taken_by = Some(thread);
            }
        }
    }

    #[test]
    fn a_slower_thread_and_a_faster_one_that_is_ahead_change_places() {
        let (mut supplies, mut spare) = (vec![Supply::default(); 2], Spare::default());
        let mut board = board(&mut supplies, &mut spare, &[600, 300]);
        board.shelves[0].taken_by = Some(0);
        assert_eq!(board.choose(1), Some(1), "as fast");
        board.paces[1] = 1.5;
        assert_eq!(board.choose(1), None, "waits for the one that is ahead");
        assert_eq!(board.choose(1), None);
        board.put(0, Block::default(), true);
        assert_eq!(board.choose(0), Some(1), "the other one's");
        board.shelves[1].taken_by = Some(0);
        assert_eq!(board.choose(1), Some(0));
        board.shelves[0].taken_by = Some(1);
        board.put(1, Block::default(), true);
        assert_eq!(board.choose(0), Some(1), "the faster one stays where least is");
    }

    #[test]
    fn who_waits_for_a_shard_that_ends_goes_elsewhere() {
        let (mut supplies, mut spare) = (vec![Supply::default(); 2], Spare::default());
        let mut board = board(&mut supplies, &mut spare, &[600, 300]);
        board.shelves[0].taken_by = Some(0);
        board.paces[1] = 1.5;
        assert_eq!(board.choose(1), None);
        board.put(0, Block::default(), false);
        assert_eq!(board.choose(1), Some(1));
    }
}
