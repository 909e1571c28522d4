//! What was extracted of each shard and not handed out yet, and its merge.
//!
//! ```text
//!             fronts: being handed out               backs: extracted meanwhile, in blocks
//!   shard 0   [ run t=3 | run t=9 | run t=12 ... ]   [ run t=31 | ... ]      --+
//!   shard 1   [ run t=4 | run t=5 ............. ]    [ run t=24 | ... ]      --+-- heap by ticket --> pieces: 3 | 4 5 | 9 | ...
//!   shard 2   [ run t=7 ...................... ]     [ ]                     --+
//! ```
//!
//! A **run** is what the packets of one turn of the shard's outer walk became: its ticket is that of the record whose turn it was.
//! Runs of one shard come in the order of tickets, so the merge of all is the order that one shard would have given.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::io::{self, IoSlice, Write};
use std::ops::Range;

#[cfg(feature = "parallel")]
mod joined;

#[cfg(feature = "parallel")]
use crate::pace::Ways;
use crate::spare::Spare;

/// A run is cut here, so that a reader who wants little gets about what it wants.
const RUN_BYTES: usize = 16 << 10;

#[derive(Clone, Copy, Debug)]
struct Run {
    ticket: u64,
    /// Where it ends in the block's bytes.
    end: usize,
}

/// Packets on their way out: of one shard, or merged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    pub(crate) bytes: Vec<u8>,
    runs: Vec<Run>,
    /// The next run to be handed out, and where what was not handed out begins: in that run, if a part of it was.
    next: usize,
    start: usize,
    /// The thread of the pass that filled it, in whose core's cache its memory lies.
    pub(crate) filled_by: usize,
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

    /// The bytes that were appended since the last call belong to the turn of `ticket`.
    #[inline]
    pub(crate) fn end_run(&mut self, ticket: u64) {
        let end = self.bytes.len();
        let before_last = self.runs.iter().rev().nth(1).map_or(0, |run| run.end);
        match self.runs.last_mut() {
            Some(run) if run.ticket == ticket && run.end - before_last < RUN_BYTES => run.end = end,
            _ => self.runs.push(Run { ticket, end }),
        }
    }

    fn head(&self) -> Option<u64> {
        self.runs.get(self.next).map(|run| run.ticket)
    }

    /// Hands out the first run and those behind it up to `limit`, about `most_bytes`: where they lie.
    fn take_until(&mut self, limit: u64, most_bytes: usize) -> Range<usize> {
        let start = self.start;
        self.next += 1;
        while self.runs.get(self.next).is_some_and(|run| run.ticket <= limit)
            && self.runs[self.next - 1].end - start < most_bytes
        {
            self.next += 1;
        }
        self.start = self.runs[self.next - 1].end;
        start..self.start
    }

    /// What was handed out from `start` on comes again.
    fn take_back(&mut self, start: usize) {
        self.start = start;
        self.next = self.runs.partition_point(|run| run.end <= start);
    }

    pub(crate) fn unread_bytes(&self) -> usize {
        self.bytes.len() - self.start
    }
}

/// Where the packets of one shard come from.
#[derive(Clone, Debug, Default)]
pub(crate) struct Supply {
    /// The shard may have more below the pass's cut.
    pub(crate) has_more: bool,
    /// What was extracted, in order.
    pub(crate) backs: VecDeque<Block>,
}

impl Supply {
    pub(crate) fn is_needy(&self) -> bool {
        self.has_more && self.backs.is_empty()
    }

    /// Whether something may come behind what is at the front.
    pub(crate) fn may_go_on(&self) -> bool {
        self.has_more || !self.backs.is_empty()
    }

    /// Bytes that were extracted.
    pub(crate) fn ready_bytes(&self) -> usize {
        self.backs.iter().map(Block::unread_bytes).sum()
    }
}

/// What readers share: one pass at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    pub(crate) fronts: Vec<Block>,
    pub(crate) supplies: Vec<Supply>,
    pub(crate) spare: Spare,
    /// Of joining pieces in the cache and past it.
    #[cfg(feature = "parallel")]
    pub(crate) joining: Ways,
}

impl Reading {
    pub(crate) fn resize(&mut self, num_shards: usize) {
        self.fronts.resize_with(num_shards, Block::default);
        self.supplies.resize_with(num_shards, Supply::default);
    }

    /// Bytes that were extracted and not handed out.
    pub(crate) fn unread_bytes(&self) -> usize {
        let ready = self.supplies.iter().map(Supply::ready_bytes).sum::<usize>();
        ready + self.fronts.iter().map(Block::unread_bytes).sum::<usize>()
    }

    /// Puts what is behind to the front where that is empty. Whether some shard has nothing at its front and may have more: then the
    /// order cannot be told before more of it is extracted.
    pub(crate) fn advance(&mut self) -> bool {
        let mut is_dry = false;
        for (front, supply) in self.fronts.iter_mut().zip(&mut self.supplies) {
            if front.is_empty() {
                self.spare.put(std::mem::take(front));
                match supply.backs.pop_front() {
                    Some(block) => *front = block,
                    None => is_dry |= supply.has_more,
                }
            }
        }
        is_dry
    }
}

/// The merge of the fronts.
#[derive(Default)]
pub(crate) struct Merge {
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    pieces: Vec<(usize, Range<usize>)>,
}

impl Merge {
    /// Takes about `most_bytes` off the fronts in the order of tickets: until one of them may go on elsewhere. At least one run if there is one.
    ///
    /// `may_go_on` tells whether something may come behind what is at a shard's front.
    pub(crate) fn take<'a>(
        &'a mut self,
        fronts: &'a mut [Block],
        may_go_on: impl Fn(usize) -> bool,
        most_bytes: usize,
    ) -> Pieces<'a> {
        self.pieces.clear();
        self.heap.clear();
        let heads =
            fronts.iter().enumerate().filter_map(|(shard, front)| Some(Reverse((front.head()?, shard))));
        self.heap.extend(heads);
        let mut bytes = 0;
        while bytes < most_bytes
            && let Some(Reverse((_, shard))) = self.heap.pop()
        {
            let limit = self.heap.peek().map_or(u64::MAX, |&Reverse((ticket, _))| ticket);
            let front = &mut fronts[shard];
            let piece = front.take_until(limit, most_bytes - bytes);
            bytes += piece.len();
            self.pieces.push((shard, piece));
            match front.head() {
                Some(ticket) => self.heap.push(Reverse((ticket, shard))),
                // More of it may come next: nothing can be said of the order before it is there.
                None if may_go_on(shard) => break,
                None => {}
            }
        }
        Pieces::new(fronts, &self.pieces)
    }

    /// Puts the last `bytes` of what was taken last back.
    pub(crate) fn put_back(&mut self, fronts: &mut [Block], mut bytes: usize) {
        while bytes > 0
            && let Some((shard, piece)) = self.pieces.pop()
        {
            let back = bytes.min(piece.len());
            fronts[shard].take_back(piece.end - back);
            bytes -= back;
        }
    }
}

/// Pieces of the merged stream, in order.
#[derive(Clone, Copy)]
pub struct Pieces<'a> {
    fronts: &'a [Block],
    list: &'a [(usize, Range<usize>)],
}

/// How many pieces are given to the system in one call.
const MOST_SLICES: usize = 256;

impl<'a> Pieces<'a> {
    /// Parts of `fronts`, by their places there.
    pub(crate) fn new(fronts: &'a [Block], list: &'a [(usize, Range<usize>)]) -> Pieces<'a> {
        Pieces { fronts, list }
    }

    /// The pieces.
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

    /// Writes all of them, many in one call.
    ///
    /// # Errors
    /// What the writer says; how much was written is then not known.
    pub fn write_to(&self, out: &mut impl Write) -> io::Result<()> {
        let mut pieces = self.iter();
        loop {
            let mut slices = [IoSlice::new(&[]); MOST_SLICES];
            let mut count = 0;
            for (slice, piece) in slices.iter_mut().zip(&mut pieces) {
                *slice = IoSlice::new(piece);
                count += 1;
            }
            if count == 0 {
                return Ok(());
            }
            write_all(out, &mut slices[..count])?;
        }
    }
}

fn write_all(out: &mut impl Write, mut slices: &mut [IoSlice<'_>]) -> io::Result<()> {
    while !slices.is_empty() {
        match out.write_vectored(slices) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => IoSlice::advance_slices(&mut slices, written),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}
