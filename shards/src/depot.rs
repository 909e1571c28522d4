//! The supplies of one pass, filled by several threads while one merges and writes.
//!
//! ```text
//!   thread 0    merge, write | merge, write | extract, where nothing can be merged | merge, write ...
//!   others      extract | extract | extract ...           each time from the free shard that has least in stock, until all have enough;
//!                                                         one of them merges ahead, if to write is what takes long (see mill)
//!
//!   a shard's stock    [ front: being handed out ] [ ready | ready | ... ]  <- one thread at a time, a block at a time
//! ```
//!
//! One mutex guards who is at which shard and what lies ready; it is taken twice for each block, which has taken tens of microseconds. Cores
//! may differ in speed, while all shards are used up alike: where the shard of a faster thread has got far ahead, the slower one asks to be
//! its **heir**, so that the two change places, and nobody waits with a full stock for the other's.
//!
//! A thread without anything to do looks for news for a while before it sleeps: blocks are used up within microseconds, and waking costs more.
//! Who was woken may wait behind the one that woke it: that one gives way, and each looks for a CPU of its own when it begins with a block
//! ([`crate::apart`]).

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use crate::apart::Apart;
use crate::blocks::{Merge, Reading};
use crate::board::{Board, MERGER};
use crate::mill::Mill;
use crate::read::{PacketWriter, Wait, Way, note};

/// How often a thread looks for news before it sleeps.
const LOOKS: usize = 200;

pub(crate) struct Depot<'p, W> {
    way: &'p Way<'p, W>,
    pub(crate) board: Mutex<Board<'p>>,
    pub(crate) mill: Mutex<Mill<'p>>,
    /// Counts what has changed on the board. Relaxed: who sees that it did locks the board, under which it changes.
    news: AtomicU64,
    bell: Condvar,
    pub(crate) apart: Apart,
}

/// Lets a thread begin that was just woken, should it wait for this one's CPU: it goes to another one then.
fn give_way() {
    std::thread::yield_now();
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

    pub(crate) fn lock(&self) -> MutexGuard<'_, Board<'p>> {
        self.board.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// To be called by who has changed the board, before it is given back. Whether somebody was woken.
    pub(crate) fn tell(&self, board: &Board<'p>) -> bool {
        self.news.fetch_add(1, Ordering::Relaxed);
        let wakes = board.num_sleepers > 0;
        if wakes {
            self.bell.notify_all();
        }
        wakes
    }

    /// The same when stocks have become smaller: who sleeps since all had enough is woken when one is half empty, not for each block that is used
    /// up. To wake a thread takes longer than to merge a block.
    pub(crate) fn tell_of_use(&self, board: MutexGuard<'_, Board<'p>>) {
        if !board.has_low_stock() {
            self.news.fetch_add(1, Ordering::Relaxed);
        } else if self.tell(&board) {
            drop(board);
            give_way();
        }
    }

    pub(crate) fn news(&self) -> u64 {
        self.news.load(Ordering::Relaxed)
    }

    /// Gives the board back until there is news: looks for a while, then sleeps.
    pub(crate) fn wait<'a>(&'a self, board: MutexGuard<'a, Board<'p>>) -> MutexGuard<'a, Board<'p>> {
        let seen = self.news();
        let is_new = || self.news() != seen;
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
    /// A depot for shards that each aim for `most_stock_bytes`, and their merge.
    pub(crate) fn new(
        way: &'p Way<'p, W>,
        reading: &'p mut Reading,
        merge: &'p mut Merge,
        most_stock_bytes: usize,
        num_threads: usize,
    ) -> Depot<'p, W> {
        let Reading { fronts, supplies, spare, joining } = reading;
        let board = Board::new(supplies, spare, joining, most_stock_bytes, num_threads);
        let mill = Mill::new(fronts, merge);
        Depot {
            way,
            board: Mutex::new(board),
            mill: Mutex::new(mill),
            news: AtomicU64::new(0),
            bell: Condvar::new(),
            apart: Apart::new(num_threads),
        }
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
        self.apart.settle();
        let started = Instant::now();
        let given_up = GivenUp(self, shard);
        let (has_more, waits) = self.way.extract(shard, &mut block);
        std::mem::forget(given_up);
        let elapsed = started.elapsed();
        let mut board = self.lock();
        board.paces[thread].note(elapsed, block.bytes.len());
        waits.into_iter().for_each(|wait| note(&mut board.waits, wait));
        board.put(shard, block, has_more);
        if self.tell(&board) {
            drop(board);
            give_way();
            board = self.lock();
        }
        board
    }

    /// What a helper does until the pass is over.
    pub(crate) fn help(&self, thread: usize) {
        let mut board = self.lock();
        board.num_helpers += 1;
        while !board.is_over {
            board = if board.joins_first() {
                self.join_ahead(board, thread)
            } else if let Some(shard) = board.choose(thread) {
                self.fill(board, shard, thread)
            } else if board.lacks_joined() {
                self.join_ahead(board, thread)
            } else {
                self.wait(board)
            };
        }
    }

    /// Sees to it that each front has something, unless its shard has nothing more: takes what is ready, and extracts while it is not.
    pub(crate) fn restock(&self, mill: &mut Mill<'p>) -> MutexGuard<'_, Board<'p>> {
        let mut board = self.lock();
        while board.advance(mill.fronts) {
            board = match board.choose(MERGER) {
                Some(shard) => self.fill(board, shard, MERGER),
                None => self.wait(board),
            };
        }
        board.disinherit(MERGER);
        board.tell_what_may_go_on(&mut mill.may_go_on);
        self.tell_of_use(board);
        self.lock()
    }

    /// For whom somebody waited.
    pub(crate) fn take_waits(&self) -> Vec<Wait> {
        std::mem::take(&mut self.lock().waits)
    }
}
