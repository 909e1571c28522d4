//! The merge of a pass in several threads, and pieces that are put together ahead by other threads than the one that hands them out.
//!
//! ```text
//!   merging thread   extract | merge, join 1 | hand out 1 ........ | hand out 2 ........ | hand out 3 ........ | ...
//!   another thread   extract | extract | merge, join 2 | extract | extract | merge, join 3 | merge, join 4 | extract ...
//! ```
//!
//! To write takes longer than to extract, and to write many small pieces takes longer than one large: most where they do not lie in memory
//! as they will in the file, which a copy of whole lines needs. So where a byte is extracted and joined in less time than it is handed out, it is joined
//! elsewhere, before more is extracted than that takes. Where to hand out takes less, pieces go out from where they are.
//!
//! What the merging thread reads, the other one has to take back line by line before it can extract into it again: that takes many times as long as
//! to extract where the two have no cache in common. So a block that was extracted stays where it was extracted, and only joined ones go over; these are
//! written [past the cache](watershed_simd::uncached) where that is seen to be faster ([`crate::pace`]), as it is over such a distance. Over a short one
//! it is not, and the merging thread reads what lies in a cache sooner than what lies in memory.
//!
//! One thread at a time has the [`Mill`]; the board says whether somebody has. What was joined is put on the board before the mill is given back, and the
//! merging thread takes it only where nothing joined lies there: so joined pieces lie in order, and what comes off the mill is behind them.

use std::sync::{MutexGuard, PoisonError};
use std::time::Instant;

use crate::blocks::{Block, Merge, Pieces};
use crate::board::{Board, MERGER};
use crate::depot::Depot;
use crate::pace::Pace;
use crate::read::PacketWriter;
use crate::spare::JOINED;

/// Of the two ways to join: not into the cache of who does.
const UNCACHED: usize = 1;

/// So much is put together at a time.
const JOINED_BYTES: usize = 256 << 10;

/// The merge, and what it merges.
pub(crate) struct Mill<'p> {
    pub(crate) fronts: &'p mut [Block],
    merge: &'p mut Merge,
    /// Whether something may come behind each front.
    pub(crate) may_go_on: Vec<bool>,
    /// Bytes that were taken since the pass began.
    taken_bytes: usize,
}

impl<'p> Mill<'p> {
    pub(crate) fn new(fronts: &'p mut [Block], merge: &'p mut Merge) -> Mill<'p> {
        Mill { fronts, merge, may_go_on: Vec::new(), taken_bytes: 0 }
    }

    fn take(&mut self, most_bytes: usize) -> Pieces<'_> {
        let pieces = self.merge.take(self.fronts, |shard| self.may_go_on[shard], most_bytes);
        self.taken_bytes += pieces.size_bytes();
        pieces
    }
}

/// What the merging thread knows from one piece to the next.
#[derive(Default)]
struct Handing {
    /// What to hand out a byte takes.
    pace: Pace,
    /// The block that was handed out last.
    spent: Option<Block>,
}

impl Handing {
    /// # Errors
    /// That of `out`.
    fn give<E>(
        &mut self,
        pieces: Pieces<'_>,
        out: &mut impl FnMut(Pieces<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let (size_bytes, started) = (pieces.size_bytes(), Instant::now());
        let result = out(pieces);
        self.pace.note(started.elapsed(), size_bytes);
        result
    }

    /// # Errors
    /// That of `out`.
    fn give_joined<E>(
        &mut self,
        block: Block,
        out: &mut impl FnMut(Pieces<'_>) -> Result<(), E>,
    ) -> Result<(), E> {
        let list = [(0, block.unread())];
        let result = self.give(Pieces::new(std::slice::from_ref(&block), &list), out);
        self.spent = Some(block);
        result
    }
}

/// Somebody who has the mill. Dropped, also by a panic, it is given back.
struct Taken<'a, 'p, W> {
    depot: &'a Depot<'p, W>,
    thread: usize,
}

impl<'a, 'p, W> Taken<'a, 'p, W> {
    fn new(depot: &'a Depot<'p, W>, mut board: MutexGuard<'a, Board<'p>>, thread: usize) -> Self {
        board.is_mill_taken = true;
        Taken { depot, thread }
    }

    /// Waits for nobody: one thread at a time gets here.
    fn mill(&self) -> MutexGuard<'a, Mill<'p>> {
        self.depot.mill.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<W> Drop for Taken<'_, '_, W> {
    fn drop(&mut self) {
        let mut board = self.depot.lock();
        board.is_mill_taken = false;
        if self.thread == MERGER {
            self.depot.tell_of_use(board);
        } else {
            // For the merging thread, should it wait.
            self.depot.tell(&board);
        }
    }
}

/// What the merging thread may do next.
enum Turn<'a, 'p, W> {
    HandOut(Block),
    Merge(Taken<'a, 'p, W>),
}

impl<'p, W: PacketWriter> Depot<'p, W> {
    /// What the merging thread does: hands everything to `out`, in order.
    ///
    /// # Errors
    /// The first of `out`. What it was given then counts as handed out.
    pub(crate) fn hand_out<E>(&self, mut out: impl FnMut(Pieces<'_>) -> Result<(), E>) -> Result<(), E> {
        let mut handing = Handing::default();
        loop {
            let taken = match self.turn(&mut handing) {
                Turn::Merge(taken) => taken,
                Turn::HandOut(block) => {
                    handing.give_joined(block, &mut out)?;
                    continue;
                }
            };
            let mut mill = taken.mill();
            let mut board = self.restock(&mut mill);
            if board.wants_joined() {
                // So that there is something to hand out while others join what comes next.
                let mut block = board.spare.take(JOINED);
                drop(board);
                self.join(&mut mill, &mut block, false);
                drop((mill, taken));
                if block.is_empty() {
                    return Ok(());
                }
                handing.give_joined(block, &mut out)?;
            } else {
                drop(board);
                let pieces = mill.take(usize::MAX);
                if pieces.is_empty() {
                    return Ok(());
                }
                handing.give(pieces, &mut out)?;
            }
        }
    }

    /// What was joined comes first, also what somebody is just joining.
    fn turn(&self, handing: &mut Handing) -> Turn<'_, 'p, W> {
        let mut board = self.lock();
        board.out_pace = handing.pace;
        if !board.wants_joined() {
            // It may have been an accident, and is not measured again before somebody joins.
            board.joining.fade();
        }
        if let Some(spent) = handing.spent.take() {
            board.spare.put(spent);
        }
        while board.joined.is_empty() && board.is_mill_taken {
            board = self.wait(board);
        }
        match board.joined.pop_front() {
            Some(block) => {
                self.tell_of_use(board);
                Turn::HandOut(block)
            }
            None => Turn::Merge(Taken::new(self, board, MERGER)),
        }
    }

    /// What a helper does where pieces are to be joined, while nobody has the mill. Returns when it has joined something, or there is news.
    pub(crate) fn join_ahead<'a>(
        &'a self,
        mut board: MutexGuard<'a, Board<'p>>,
        thread: usize,
    ) -> MutexGuard<'a, Board<'p>> {
        let (seen, mut block) = (self.news(), board.spare.take(JOINED));
        let way = board.joining.choose();
        let taken = Taken::new(self, board, thread);
        self.apart.settle();
        let started = Instant::now();
        self.join(&mut taken.mill(), &mut block, way == UNCACHED);
        let elapsed = started.elapsed();
        let is_joined = !block.is_empty();
        if is_joined {
            let mut board = self.lock();
            board.joining.note(way, elapsed, block.unread_bytes());
            board.joined.push_back(std::mem::take(&mut block));
        }
        drop(taken);
        board = self.lock();
        if is_joined {
            return board;
        }
        board.spare.put(block);
        // One piece of news is this thread's own.
        if self.news() == seen + 1 { self.wait(board) } else { board }
    }

    /// Merges what is ready, without waiting for more, into an empty block.
    fn join(&self, mill: &mut Mill<'p>, block: &mut Block, is_uncached: bool) {
        block.begin_like(mill.taken_bytes, JOINED_BYTES);
        let mut left_bytes = JOINED_BYTES;
        while left_bytes > 0 && !self.advance(mill) {
            let pieces = mill.take(left_bytes);
            if pieces.is_empty() {
                break;
            }
            pieces.iter().for_each(|piece| block.append(piece, is_uncached));
            left_bytes = left_bytes.saturating_sub(pieces.size_bytes());
        }
    }

    /// Puts what is ready to the fronts. Whether the order cannot be told before there is more.
    fn advance(&self, mill: &mut Mill<'p>) -> bool {
        let mut board = self.lock();
        let is_dry = board.advance(mill.fronts);
        board.tell_what_may_go_on(&mut mill.may_go_on);
        is_dry
    }
}

/// What was joined and not handed out, as by an error of who was handed what is before it, comes first in the next pass: its ticket is not above any at
/// the fronts, and of equal ones the first shard's goes first.
impl<W> Drop for Depot<'_, W> {
    fn drop(&mut self) {
        let board = self.board.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mill = self.mill.get_mut().unwrap_or_else(PoisonError::into_inner);
        let Some(first) = mill.fronts.first_mut() else { return };
        for joined in board.joined.drain(..).rev() {
            first.prepend(joined);
        }
    }
}
