//! What lies ready of each shard, who extracts from which, and from which next: the rules of a [`crate::depot`], without its threads.

use std::collections::VecDeque;

use crate::blocks::{Block, Supply};
use crate::read::Wait;
use crate::spare::Spare;

/// A thread that takes so many times as long as another is worth an exchange.
const MUCH_SLOWER: f32 = 1.125;

/// The thread that merges.
pub(crate) const MERGER: usize = 0;

/// So many blocks of pieces that were put together lie ready at most.
const MOST_JOINED: usize = 6;

/// What one shard has in stock.
pub(crate) struct Shelf<'p> {
    pub(crate) supply: &'p mut Supply,
    /// Bytes that lie ready in `supply`, and those at the shard's front when the merging thread last told of them.
    ready_bytes: usize,
    front_bytes: usize,
    /// Who extracts from the shard.
    pub(crate) taken_by: Option<usize>,
    /// Who waits to be the next at it.
    heir: Option<usize>,
}

impl Shelf<'_> {
    fn stock_bytes(&self) -> usize {
        self.ready_bytes + self.front_bytes
    }
}

pub(crate) struct Board<'p> {
    pub(crate) shelves: Vec<Shelf<'p>>,
    pub(crate) spare: &'p mut Spare,
    pub(crate) waits: Vec<Wait>,
    /// What each thread takes for a byte, in nanoseconds, of late.
    pub(crate) paces: Vec<f32>,
    /// A shard that has so much has enough.
    pub(crate) most_stock_bytes: usize,
    pub(crate) num_sleepers: usize,
    /// Helpers that find nothing to extract, those that join included.
    pub(crate) num_idle: usize,
    /// Pieces that were put together, in order, before everything that is at the fronts; whether somebody shall join more, and whether somebody is
    /// at the merge.
    pub(crate) joined: VecDeque<Block>,
    pub(crate) wants_joined: bool,
    pub(crate) is_mill_taken: bool,
    pub(crate) is_over: bool,
}

impl<'p> Board<'p> {
    /// A board of shards that each aim for `most_stock_bytes`, for so many threads.
    pub(crate) fn new(
        supplies: &'p mut [Supply],
        spare: &'p mut Spare,
        most_stock_bytes: usize,
        num_threads: usize,
    ) -> Board<'p> {
        let shelf = |supply: &'p mut Supply| {
            let ready_bytes = supply.ready_bytes();
            Shelf { supply, ready_bytes, front_bytes: 0, taken_by: None, heir: None }
        };
        let shelves = supplies.iter_mut().map(shelf).collect();
        let (waits, paces) = (Vec::new(), vec![0.0; num_threads]);
        Board {
            shelves,
            spare,
            waits,
            paces,
            most_stock_bytes,
            num_sleepers: 0,
            num_idle: 0,
            joined: VecDeque::new(),
            wants_joined: false,
            is_mill_taken: false,
            is_over: false,
        }
    }

    /// From which shard `thread` shall extract: of those that nobody is at, the one that has least. None if there is nothing to be done
    /// before there is news.
    pub(crate) fn choose(&mut self, thread: usize) -> Option<usize> {
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

    /// Whether somebody without anything to extract shall put pieces together.
    pub(crate) fn lacks_joined(&self) -> bool {
        self.wants_joined && !self.is_mill_taken && self.joined.len() < MOST_JOINED
    }

    /// Whether somebody who sleeps would find enough to do.
    pub(crate) fn has_low_stock(&self) -> bool {
        if self.lacks_joined() && self.joined.len() <= MOST_JOINED / 2 {
            return true;
        }
        let is_low = |shelf: &Shelf<'_>| shelf.stock_bytes() <= self.most_stock_bytes / 2;
        self.shelves.iter().any(|shelf| shelf.supply.has_more && shelf.taken_by.is_none() && is_low(shelf))
    }

    /// Tells of each shard whether something may come behind its front.
    pub(crate) fn tell_what_may_go_on(&self, may_go_on: &mut Vec<bool>) {
        may_go_on.clear();
        may_go_on
            .extend(self.shelves.iter().map(|shelf| shelf.taken_by.is_some() || shelf.supply.may_go_on()));
    }

    /// A thread that does something else now comes first nowhere.
    pub(crate) fn disinherit(&mut self, thread: usize) {
        self.shelves
            .iter_mut()
            .filter(|shelf| shelf.heir == Some(thread))
            .for_each(|shelf| shelf.heir = None);
    }

    pub(crate) fn put(&mut self, shard: usize, block: Block, has_more: bool) {
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
    pub(crate) fn advance(&mut self, fronts: &mut [Block]) -> bool {
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

    /// A board over shards of which each has more, and so many bytes in stock of 1000.
    fn board<'p>(supplies: &'p mut [Supply], spare: &'p mut Spare, stocks: &[usize]) -> Board<'p> {
        supplies.iter_mut().for_each(|supply| supply.has_more = true);
        let mut board = Board::new(supplies, spare, 1000, 3);
        board.shelves.iter_mut().zip(stocks).for_each(|(shelf, &bytes)| shelf.ready_bytes = bytes);
        board.paces.fill(1.0);
        board
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

    #[test]
    fn a_sleeper_is_woken_for_a_shard_that_is_half_empty_and_free() {
        let (mut supplies, mut spare) = (vec![Supply::default(); 2], Spare::default());
        let mut board = board(&mut supplies, &mut spare, &[501, 501]);
        assert!(!board.has_low_stock());
        board.shelves[1].ready_bytes = 400;
        board.shelves[1].front_bytes = 101;
        assert!(!board.has_low_stock(), "what is being handed out counts");
        board.shelves[1].front_bytes = 100;
        assert!(board.has_low_stock());
        board.shelves[1].taken_by = Some(0);
        assert!(!board.has_low_stock(), "somebody sees to it");
        board.put(1, Block::default(), false);
        assert!(!board.has_low_stock(), "there is nothing more");
    }

    #[test]
    fn a_sleeper_is_woken_to_join_before_all_that_was_joined_is_used_up() {
        let (mut supplies, mut spare) = (vec![Supply::default(); 2], Spare::default());
        let mut board = board(&mut supplies, &mut spare, &[1000, 1000]);
        let tells = |board: &Board<'_>| (board.lacks_joined(), board.has_low_stock());
        assert_eq!(tells(&board), (false, false), "nobody wants it");
        board.wants_joined = true;
        assert_eq!(tells(&board), (true, true));
        board.is_mill_taken = true;
        assert_eq!(tells(&board), (false, false), "somebody sees to it");
        board.is_mill_taken = false;
        board.joined.extend(vec![Block::default(); MOST_JOINED / 2 + 1]);
        assert_eq!(tells(&board), (true, false), "who is awake may join more");
        board.joined.extend(vec![Block::default(); MOST_JOINED / 2]);
        assert_eq!(tells(&board), (false, false), "it is enough");
    }
}
