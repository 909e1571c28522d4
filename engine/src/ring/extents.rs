//! A queue of extents in place of one ring: how a shard uses the memory that all shards share.
//!
//! ```text
//!   region of the whole buffer, cut into extents of one size (a power of two)
//!   | other's | ours, oldest | free | ours | other's | ours, newest: =====>cursor       |
//!
//!   records, oldest first:  [ those of the oldest extent | ... | those of the newest ]
//! ```
//!
//! Extents are granted from outside ([`Shard::grant`](crate::Shard::grant)). They go back when no
//! record in them is listed any more, or when the oldest is evicted. A record never spans two; what
//! is left of an extent that is too small for the next record becomes padding.
//!
//! Padding in an extent that was given back stays in the list of records until it reaches the
//! front, or fills a block of records. It is never read.

use std::collections::VecDeque;
use std::ops::Range;

/// Above every ticket.
const OPEN: u64 = u64::MAX;

/// The extents that a shard has.
#[derive(Clone, Debug, Default)]
pub(crate) struct Extents {
    /// Log2 of the size of an extent.
    shift: u32,
    /// Ours, oldest first: index and last ticket. The last is the open one, whose ticket is
    /// [`OPEN`].
    order: VecDeque<(u32, u64)>,
    /// The next to be opened, granted before it is needed.
    granted: Option<u32>,
    /// Listed records in each extent of the region; allocated at the first grant.
    listed: Vec<u32>,
    num_extents: usize,
    /// Extents with nothing listed, which we do not use any more.
    emptied: Vec<u32>,
    evicted_bytes: u64,
}

impl Extents {
    pub(super) fn new(size_bytes: usize, extent_bytes: usize) -> Extents {
        assert!(extent_bytes.is_power_of_two());
        let shift = extent_bytes.trailing_zeros();
        Extents { shift, num_extents: size_bytes >> shift, ..Extents::default() }
    }

    #[inline]
    fn index_of(&self, offset: usize) -> usize {
        offset >> self.shift
    }

    /// The bytes of an extent.
    #[inline]
    pub(crate) fn range_of(&self, index: u32) -> Range<usize> {
        let start = (index as usize) << self.shift;
        start..start + (1 << self.shift)
    }

    /// The first byte behind the extent in which `offset` lies.
    #[inline]
    pub(crate) fn end_of(&self, offset: usize) -> usize {
        (self.index_of(offset) + 1) << self.shift
    }

    /// Ours, oldest first.
    pub(crate) fn iter(&self) -> impl DoubleEndedIterator<Item = u32> + ExactSizeIterator + '_ {
        self.order.iter().map(|&(index, _)| index)
    }

    /// Whether the oldest extent is also the open one.
    pub(crate) fn has_one(&self) -> bool {
        self.order.len() == 1
    }

    /// The last ticket of the oldest extent; above every ticket if that is open.
    pub(crate) fn oldest_ticket(&self) -> Option<u64> {
        self.order.front().map(|&(_, ticket)| ticket)
    }

    /// Bytes of extents that were evicted.
    pub(crate) fn evicted_bytes(&self) -> u64 {
        self.evicted_bytes
    }

    /// Whether an extent is there to be opened.
    #[inline]
    pub(crate) fn has_granted(&self) -> bool {
        self.granted.is_some()
    }

    /// Keeps an extent for when it is needed.
    pub(crate) fn grant(&mut self, index: u32) {
        debug_assert!(self.granted.is_none() && !self.has_listed(index));
        if self.listed.is_empty() {
            self.listed = vec![0; self.num_extents];
        }
        self.granted = Some(index);
    }

    /// Opens the extent that was granted. The newest ticket is the last of the one before it,
    /// unless that was sealed before: an open one is given back when it has been read empty.
    pub(super) fn open_granted(&mut self, newest_ticket: u64) -> Range<usize> {
        let index = self.granted.take().expect("the caller has granted an extent before the commit");
        if let Some((_, ticket)) = self.order.back_mut() {
            *ticket = newest_ticket.min(*ticket);
        }
        self.order.push_back((index, OPEN));
        self.range_of(index)
    }

    /// A record in the extent of `offset` is listed from now on.
    #[inline]
    pub(crate) fn note_listed(&mut self, offset: usize) {
        let index = self.index_of(offset);
        self.listed[index] += 1;
    }

    /// So many records in the extent of `offset` are not listed any more.
    #[inline]
    pub(crate) fn note_erased(&mut self, offset: usize, records: u32) {
        let index = self.index_of(offset);
        self.listed[index] -= records;
    }

    /// The number of listed records in an extent, to be counted down by an eviction.
    pub(crate) fn listed_mut(&mut self, index: u32) -> &mut u32 {
        &mut self.listed[index as usize]
    }

    /// Whether an extent has a listed record.
    pub(crate) fn has_listed(&self, index: u32) -> bool {
        self.listed.get(index as usize).is_some_and(|&listed| listed != 0)
    }

    /// Whether each extent counts as many listed records as are there.
    #[cfg(any(test, feature = "testing"))]
    pub(crate) fn agrees_with(&self, offsets: impl Iterator<Item = usize>) -> bool {
        let mut counted = vec![0; self.listed.len()];
        offsets.for_each(|offset| counted[self.index_of(offset)] += 1);
        counted == self.listed
    }

    /// Gives up the oldest extent, which was evicted.
    pub(crate) fn pop_evicted(&mut self) {
        self.order.pop_front();
        self.evicted_bytes += 1 << self.shift;
    }

    /// Collects extents with nothing listed.
    pub(crate) fn collect_emptied(&mut self) {
        let Extents { order, listed, emptied, .. } = self;
        order.retain(|&(index, _)| {
            let has_listed = listed[index as usize] != 0;
            if !has_listed {
                emptied.push(index);
            }
            has_listed
        });
    }

    /// Gives all of them up. Each extent is in one of the lists at most, at any moment.
    pub(crate) fn take_all(&mut self) -> Vec<u32> {
        self.order
            .drain(..)
            .map(|(index, _)| index)
            .chain(self.granted.take())
            .chain(self.emptied.drain(..))
            .collect()
    }

    /// Those that were collected, for the pool.
    pub(crate) fn take_emptied(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.emptied.drain(..)
    }
}
