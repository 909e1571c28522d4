//! What lies ready of each shard, who extracts from which, and from which next: the rules of a [`crate::depot`], without its threads.

use std::collections::VecDeque;

use crate::blocks::{Block, Supply};
use crate::pace::{Pace, Ways};
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

    /// Whether something may come behind what is at the shard's front.
    fn may_go_on(&self) -> bool {
        self.taken_by.is_some() || self.supply.may_go_on()
    }
}

pub(crate) struct Board<'p> {
    pub(crate) shelves: Vec<Shelf<'p>>,
    pub(crate) spare: &'p mut Spare,
    pub(crate) waits: Vec<Wait>,
    /// What each thread takes to extract a byte.
    pub(crate) paces: Vec<Pace>,
    /// What helpers take to join one, in the cache and past it.
    pub(crate) joining: &'p mut Ways,
    /// What the merging thread takes to hand one out.
    pub(crate) out_pace: Pace,
    /// A shard that has so much has enough.
    pub(crate) most_stock_bytes: usize,
    pub(crate) num_sleepers: usize,
    /// Threads other than the merging one that have begun.
    pub(crate) num_helpers: usize,
    /// Pieces that were put together, in order, before everything that is at the fronts; and whether somebody is at the merge.
    pub(crate) joined: VecDeque<Block>,
    pub(crate) is_mill_taken: bool,
    pub(crate) is_over: bool,
}

impl<'p> Board<'p> {
    /// A board of shards that each aim for `most_stock_bytes`, for so many threads.
    pub(crate) fn new(
        supplies: &'p mut [Supply],
        spare: &'p mut Spare,
        joining: &'p mut Ways,
        most_stock_bytes: usize,
        num_threads: usize,
    ) -> Board<'p> {
        let shelf = |supply: &'p mut Supply| {
            let ready_bytes = supply.ready_bytes();
            Shelf { supply, ready_bytes, front_bytes: 0, taken_by: None, heir: None }
        };
        let shelves = supplies.iter_mut().map(shelf).collect();
        let (waits, paces) = (Vec::new(), vec![Pace::default(); num_threads]);
        Board {
            shelves,
            spare,
            waits,
            paces,
            joining,
            out_pace: Pace::default(),
            most_stock_bytes,
            num_sleepers: 0,
            num_helpers: 0,
            joined: VecDeque::new(),
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
            let pace = |thread: usize| self.paces[thread].ns_per_byte();
            other.is_some_and(|other| pace(thread) > MUCH_SLOWER * pace(other))
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

    /// Whether pieces are to be put together before they are handed out: where a helper is done sooner with all that can be done for a byte than the
    /// merging thread hands one out. What the fastest takes counts, because extraction slows down where the merging thread reads the same blocks, as
    /// it does while nobody joins.
    pub(crate) fn wants_joined(&self) -> bool {
        let is_slower = |fastest| self.out_pace.ns_per_byte() > fastest + self.joining.ns_per_byte();
        self.num_helpers > 0 && self.fastest_ns().is_some_and(is_slower)
    }

    /// What the fastest thread takes to extract a byte.
    fn fastest_ns(&self) -> Option<f32> {
        let known = self.paces.iter().filter(|pace| pace.is_known()).map(|pace| pace.ns_per_byte());
        known.min_by(f32::total_cmp)
    }

    /// Whether a helper shall put pieces together, if it can.
    pub(crate) fn lacks_joined(&self) -> bool {
        self.wants_joined() && !self.is_mill_taken && self.joined.len() < MOST_JOINED
    }

    /// Whether a helper shall do so even if there is something to extract: all shards have a block for it.
    pub(crate) fn joins_first(&self) -> bool {
        let is_ready = |shelf: &Shelf<'_>| shelf.ready_bytes > 0 || !shelf.may_go_on();
        self.lacks_joined() && self.shelves.iter().all(is_ready)
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
        may_go_on.extend(self.shelves.iter().map(Shelf::may_go_on));
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
                    None => is_dry |= shelf.may_go_on(),
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
    use crate::blocks::Reading;
    use std::time::Duration;

    fn pace(ns_per_byte: u64) -> Pace {
        let mut pace = Pace::default();
        pace.note(Duration::from_nanos(ns_per_byte), 1);
        pace
    }

    /// A board over shards of which each has more, and so many bytes in stock of 1000.
    fn board<'p>(reading: &'p mut Reading, stocks: &[usize]) -> Board<'p> {
        reading.resize(stocks.len());
        let Reading { supplies, spare, joining, .. } = reading;
        supplies.iter_mut().for_each(|supply| supply.has_more = true);
        let mut board = Board::new(supplies, spare, joining, 1000, 3);
        board.shelves.iter_mut().zip(stocks).for_each(|(shelf, &bytes)| shelf.ready_bytes = bytes);
        board.paces.fill(pace(10));
        board
    }

    #[test]
    fn the_free_shard_that_has_least_is_next_and_a_full_one_never() {
        let mut reading = Reading::default();
        let mut board = board(&mut reading, &[500, 100, 1000, 0]);
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
        let mut reading = Reading::default();
        let mut board = board(&mut reading, &[600, 300]);
        board.shelves[0].taken_by = Some(0);
        assert_eq!(board.choose(1), Some(1), "as fast");
        board.paces[1] = pace(15);
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
        let mut reading = Reading::default();
        let mut board = board(&mut reading, &[600, 300]);
        board.shelves[0].taken_by = Some(0);
        board.paces[1] = pace(15);
        assert_eq!(board.choose(1), None);
        board.put(0, Block::default(), false);
        assert_eq!(board.choose(1), Some(1));
    }

    #[test]
    fn a_sleeper_is_woken_for_a_shard_that_is_half_empty_and_free() {
        let mut reading = Reading::default();
        let mut board = board(&mut reading, &[501, 501]);
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
        let mut reading = Reading::default();
        let mut board = board(&mut reading, &[1000, 1000]);
        let tells = |board: &Board<'_>| (board.lacks_joined(), board.has_low_stock());
        board.out_pace = pace(21);
        assert_eq!(tells(&board), (false, false), "there is nobody");
        board.num_helpers = 1;
        assert_eq!(tells(&board), (true, true));
        board.is_mill_taken = true;
        assert_eq!(tells(&board), (false, false), "somebody sees to it");
        board.is_mill_taken = false;
        board.joined.extend(vec![Block::default(); MOST_JOINED / 2 + 1]);
        assert_eq!(tells(&board), (true, false), "who is awake may join more");
        board.joined.extend(vec![Block::default(); MOST_JOINED / 2]);
        assert_eq!(tells(&board), (false, false), "it is enough");
    }

    #[test]
    fn joined_is_what_takes_longer_to_hand_out_than_to_extract_and_to_join() {
        let mut reading = Reading::default();
        let mut board = board(&mut reading, &[500, 0]);
        board.num_helpers = 1;
        let note = |board: &mut Board<'_>, way, ns| board.joining.note(way, Duration::from_nanos(ns), 1);
        board.paces = vec![Pace::default(), pace(90), pace(10)];
        note(&mut board, 0, 30);
        for (ns, expected) in [(10, false), (11, true), (90, true)] {
            board.out_pace = pace(ns);
            assert_eq!(board.wants_joined(), expected, "nobody knows what to join takes: {ns}");
        }
        note(&mut board, 1, 5);
        for (ns, expected) in [(15, false), (16, true)] {
            board.out_pace = pace(ns);
            assert_eq!(board.wants_joined(), expected, "{ns}");
        }
        assert!(!board.joins_first(), "a shard has nothing ready");
        board.shelves[1].front_bytes = 100;
        assert!(!board.joins_first(), "nor has it now");
        board.shelves[1].ready_bytes = 100;
        assert!(board.joins_first());
        (board.shelves[1].ready_bytes, board.shelves[1].supply.has_more) = (0, false);
        assert!(board.joins_first(), "nothing more will come of it");
        board.is_mill_taken = true;
        assert!(!board.joins_first(), "somebody sees to it");
        board.is_mill_taken = false;
        board.joined.extend(vec![Block::default(); MOST_JOINED]);
        assert!(!board.joins_first(), "it is enough");
        board.joined.clear();
        board.shelves[1].taken_by = Some(0);
        assert!(!board.joins_first(), "somebody may find something");
        board.shelves[1].taken_by = None;
        board.paces.fill(Pace::default());
        assert!(!board.wants_joined(), "nobody has extracted anything");
    }
}
