//! What was extracted of each shard and not handed out yet, and the k-way merge of it.
//!
//! ```text
//!             fronts: being handed out      backlogs: extracted meanwhile
//!   shard 0   [ t=3 | t=9 | t=12 ... ]      [ t=31 | ... ] [ ... ]   --+
//!   shard 1   [ t=4 | t=5 .......... ]      [ t=24 | ... ]           --+-- heap -> 3 | 4 5 | 7 | 9
//!   shard 2   [ t=7 ................ ]                               --+
//! ```
//!
//! The engine's walk over a shard goes from record to record. A **run** is what the packets of one
//! record became, and its ticket is the record's. Runs of one shard come in the order of tickets,
//! so the merge of all shards is the order that one shard would have given.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::IoSlice;
use std::ops::Range;

use crate::read::block_pool::BlockPool;

/// A longer run is cut, so that a reader that wants little gets about what it wants.
const RUN_BYTES: usize = 16 << 10;

#[derive(Clone, Copy, Debug)]
struct Run {
    ticket: u64,
    /// Where it ends in the block's bytes.
    end: usize,
}

/// Packets of one shard on their way out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    pub(crate) bytes: Vec<u8>,
    runs: Vec<Run>,
    /// The next run to be handed out.
    next: usize,
    /// Where the bytes begin that were not handed out: within the next run, if a part of that was
    /// taken back.
    start: usize,
}

impl Block {
    pub(crate) fn is_empty(&self) -> bool {
        self.next == self.runs.len()
    }

    pub(crate) fn clear(&mut self) {
        self.bytes.clear();
        self.runs.clear();
        (self.next, self.start) = (0, 0);
    }

    /// The bytes that were appended since the last call are packets of the record with this ticket.
    #[inline]
    pub(crate) fn end_run(&mut self, ticket: u64) {
        let end = self.bytes.len();
        let before_last = self.runs.iter().rev().nth(1).map_or(0, |run| run.end);
        match self.runs.last_mut() {
            Some(run) if run.ticket == ticket && run.end - before_last < RUN_BYTES => run.end = end,
            _ => self.runs.push(Run { ticket, end }),
        }
    }

    /// Removes what was appended since the last [`end_run`](Self::end_run).
    pub(crate) fn discard_unfinished(&mut self) {
        self.bytes.truncate(self.runs.last().map_or(0, |run| run.end));
    }

    fn head(&self) -> Option<u64> {
        self.runs.get(self.next).map(|run| run.ticket)
    }

    /// Hands out the first run and those behind it up to `limit`, about `max_bytes`: where they
    /// lie.
    fn take_until(&mut self, limit: u64, max_bytes: usize) -> Range<usize> {
        let start = self.start;
        self.next += 1;
        while self.runs.get(self.next).is_some_and(|run| run.ticket <= limit)
            && self.runs[self.next - 1].end - start < max_bytes
        {
            self.next += 1;
        }
        self.start = self.runs[self.next - 1].end;
        start..self.start
    }

    /// What was handed out from `start` on is handed out again.
    fn take_back(&mut self, start: usize) {
        self.start = start;
        self.next = self.runs.partition_point(|run| run.end <= start);
    }
}

/// What comes behind the front of one shard.
#[derive(Clone, Debug, Default)]
pub(crate) struct Backlog {
    /// The shard may have more below the cut of the pass.
    pub(crate) has_more: bool,
    /// What was extracted, in order.
    pub(crate) blocks: VecDeque<Block>,
}

impl Backlog {
    /// Whether something may come behind what is at the front.
    pub(crate) fn may_go_on(&self) -> bool {
        self.has_more || !self.blocks.is_empty()
    }
}

/// What was extracted from a buffer and not handed out. One pass at a time has it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) fronts: Vec<Block>,
    pub(crate) backlogs: Vec<Backlog>,
    pub(crate) block_pool: BlockPool,
}

impl Reading {
    pub(crate) fn resize(&mut self, num_shards: usize) {
        self.fronts.resize_with(num_shards, Block::default);
        self.backlogs.resize_with(num_shards, Backlog::default);
    }
}

/// The merge of the fronts.
#[derive(Default)]
pub(crate) struct Merge {
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    pieces: Vec<(usize, Range<usize>)>,
}

impl Merge {
    /// Takes about `max_bytes` off the fronts in the order of tickets, at least one run if there is
    /// one. Ends at a front that is used up if more may come behind it, which `may_go_on` says of a
    /// shard.
    pub(crate) fn take<'a>(
        &'a mut self,
        fronts: &'a mut [Block],
        may_go_on: impl Fn(usize) -> bool,
        max_bytes: usize,
    ) -> Pieces<'a> {
        self.pieces.clear();
        self.heap.clear();
        let heads =
            fronts.iter().enumerate().filter_map(|(shard, front)| Some(Reverse((front.head()?, shard))));
        self.heap.extend(heads);
        let mut bytes = 0;
        while bytes < max_bytes
            && let Some(Reverse((_, shard))) = self.heap.pop()
        {
            let limit = self.heap.peek().map_or(u64::MAX, |&Reverse((ticket, _))| ticket);
            let front = &mut fronts[shard];
            let piece = front.take_until(limit, max_bytes - bytes);
            bytes += piece.len();
            self.pieces.push((shard, piece));
            match front.head() {
                Some(ticket) => self.heap.push(Reverse((ticket, shard))),
                // The shard's next ticket may be the lowest of all: it must be known first.
                None if may_go_on(shard) => break,
                None => {}
            }
        }
        Pieces { fronts, list: &self.pieces }
    }

    /// Takes back the last `bytes` of what was taken last, or all of it; returns how many.
    pub(crate) fn put_back(&mut self, fronts: &mut [Block], bytes: usize) -> usize {
        let mut left = bytes;
        while left > 0
            && let Some((shard, piece)) = self.pieces.pop()
        {
            let back = left.min(piece.len());
            fronts[shard].take_back(piece.end - back);
            left -= back;
        }
        bytes - left
    }
}

/// Pieces of the merged stream, in order.
#[derive(Clone, Copy)]
pub struct Pieces<'a> {
    fronts: &'a [Block],
    list: &'a [(usize, Range<usize>)],
}

/// How many pieces are given to the system in one call.
const MAX_SLICES: usize = 256;

impl<'a> Pieces<'a> {
    /// The pieces. Each has whole packets.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let fronts = self.fronts;
        self.list.iter().map(move |(shard, range)| &fronts[*shard].bytes[range.clone()])
    }

    /// Bytes of all of them.
    pub fn size_bytes(&self) -> usize {
        self.list.iter().map(|(_, range)| range.len()).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// Gives all of them that are not empty to `out`, many in one call, as the system's vectored
    /// writes take them.
    ///
    /// # Errors
    /// The first of `out`.
    pub fn write_slices<E>(&self, mut out: impl FnMut(&mut [IoSlice<'_>]) -> Result<(), E>) -> Result<(), E> {
        let mut pieces = self.iter().filter(|piece| !piece.is_empty());
        loop {
            let mut slices = [IoSlice::new(&[]); MAX_SLICES];
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(&mut pieces) {
                *slice = IoSlice::new(piece);
                count += 1;
            }
            if count == 0 {
                return Ok(());
            }
            out(&mut slices[..count])?;
        }
    }
}
