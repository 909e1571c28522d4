//! Histograms of chunk sizes, one for each writer.

use std::collections::{HashMap, VecDeque};

use crate::ids::{ClientIdentity, ProducerId, WriterId, ids_of};
use crate::index::identities::Identities;
use crate::index::put;
use crate::index::records::NONE;
use crate::index::sequence::Sequence;
use rustc_hash::FxBuildHasher;

/// Number of buckets: one for each of [`WriterStats::BUCKET_MAX_BYTES`], and one for what is
/// larger.
pub const NUM_BUCKETS: usize = 11;

/// How many chunks of which visible size a writer has committed. Refused chunks are not counted; a
/// chunk that grew in place counts once for each size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WriterStats {
    /// Producer of the writer.
    pub producer_id: ProducerId,
    /// The writer.
    pub writer_id: WriterId,
    /// Identity that came with its newest life.
    pub identity: ClientIdentity,
    /// Chunks by bucket.
    pub bucket_count: [u64; NUM_BUCKETS],
    /// Their visible bytes.
    pub bucket_sum: [u64; NUM_BUCKETS],
}

impl WriterStats {
    /// Inclusive upper bounds of the buckets but the last.
    pub const BUCKET_MAX_BYTES: [u64; NUM_BUCKETS - 1] =
        [8, 32, 128, 512, 1024, 2048, 4096, 8192, 12288, 16384];
}

/// The bucket of a visible size of at most 65535 bytes: by its kilobytes, or of a small one by the
/// number of bits of the size less one.
#[inline]
fn bucket_of(visible_bytes: usize) -> usize {
    const BY_BITS: [u8; 11] = [0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4];
    #[rustfmt::skip]
    const BY_KILOBYTES: [u8; 64] = [
        4, 5, 6, 6, 7, 7, 7, 7, 8, 8, 8, 8, 9, 9, 9, 9, 10, 10, 10, 10, 10, 10, 10, 10,
        10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10,
        10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10, 10,
    ];
    let below = visible_bytes.saturating_sub(1) as u16;
    if below < 1024 {
        std::hint::cold_path();
        return BY_BITS[(u16::BITS - below.leading_zeros()) as usize].into();
    }
    BY_KILOBYTES[usize::from(below >> 10)].into()
}

/// Most writers stay in one bucket, which is kept here. The others get all buckets in `full`.
#[derive(Clone, Debug)]
struct Entry {
    key: u64,
    identity: u32,
    /// The bucket while one is enough, then the index into `full` with [`ALL_BUCKETS`].
    place: u32,
    one: Bucket,
}

const _: () = assert!(size_of::<Entry>() == 32);

/// With this bit, a histogram's number is its index in `full`; without, its index in `entries`.
/// There are fewer than 2^31 of both.
const ALL_BUCKETS: u32 = 1 << 31;

/// The count in the upper half, the sum in the lower, which stays far below 2^64. As one number
/// they are in one cache line and added to in two instructions; a pair becomes vector code of six.
#[derive(Clone, Copy, Debug, Default)]
struct Bucket(u128);

impl Bucket {
    #[inline(always)]
    fn add(&mut self, visible_bytes: usize) {
        self.0 += 1 << 64 | visible_bytes as u128;
    }

    fn count(self) -> u64 {
        (self.0 >> 64) as u64
    }

    fn sum(self) -> u64 {
        self.0 as u64
    }
}

type Full = [Bucket; NUM_BUCKETS];

/// So many histograms are kept of writers that are gone: readers want these, too.
const MAX_GONE: usize = 1 << 11;

/// The histograms of a buffer's writers.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histograms {
    /// Of each key a number that says which came first, and its histogram's.
    index: HashMap<u64, (u64, u32), FxBuildHasher>,
    num_made: u64,
    entries: Vec<Entry>,
    full: Vec<Full>,
    free: Vec<u32>,
    free_full: Vec<u32>,
    /// Keys of writers that are gone, the longest first; some may have come back.
    gone: VecDeque<u64>,
}

impl Histograms {
    /// The number of a writer's histogram, which stays the same.
    #[cold]
    #[inline(never)]
    fn number_of(&mut self, key: u64, identity: u32) -> u32 {
        let Histograms { index, num_made, entries, free, .. } = self;
        let (_, number) = *index.entry(key).or_insert_with(|| {
            *num_made += 1;
            let new = Entry { key, identity, place: 0, one: Bucket::default() };
            (*num_made, put(entries, free, new))
        });
        entries[number as usize].identity = identity;
        number
    }

    /// The writer of a key is gone. `is_known` says of another one whether it has come back.
    pub(crate) fn retire(&mut self, key: u64, is_known: impl FnOnce(u64) -> bool) {
        self.gone.push_back(key);
        if self.gone.len() > MAX_GONE
            && let Some(oldest) = self.gone.pop_front()
            && !is_known(oldest)
            && let Some((_, number)) = self.index.remove(&oldest)
        {
            let place = self.entries[number as usize].place;
            self.free_full.extend((place & ALL_BUCKETS != 0).then_some(place ^ ALL_BUCKETS));
            self.free.push(number);
        }
    }

    /// Numbers of identities: all that are in use, and perhaps others.
    pub(crate) fn identities(&self) -> impl Iterator<Item = u32> + '_ {
        self.entries.iter().map(|entry| entry.identity)
    }

    /// Prefetches histogram `number`, which will be counted in soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self, number: u32) {
        let address = match number & ALL_BUCKETS {
            0 => self.entries.as_ptr().wrapping_add(number as usize).cast(),
            _ => self.full.as_ptr().wrapping_add((number ^ ALL_BUCKETS) as usize).cast(),
        };
        watershed_simd::prefetch::for_write(address);
    }

    /// Adds a visible size to the histogram of a sequence's writer, which gets one now if it has
    /// none.
    #[inline(always)]
    pub(crate) fn count(&mut self, sequence: &mut Sequence, visible_bytes: usize) {
        let bucket = bucket_of(visible_bytes);
        match self.full.get_mut((sequence.histogram ^ ALL_BUCKETS) as usize) {
            Some(full) => full[bucket].add(visible_bytes),
            None => match self.entries.get_mut(sequence.histogram as usize) {
                Some(entry) if entry.place == bucket as u32 => entry.one.add(visible_bytes),
                _ => sequence.histogram = self.count_slowly(sequence, bucket, visible_bytes),
            },
        }
    }

    /// Counts a size, and returns the number of the histogram from now on.
    #[inline(never)]
    fn count_slowly(&mut self, sequence: &Sequence, bucket: usize, visible_bytes: usize) -> u32 {
        let mut number = sequence.histogram;
        if number == NONE {
            number = self.number_of(sequence.key, sequence.identity);
        }
        self.add(number, bucket, visible_bytes)
    }

    fn add(&mut self, number: u32, bucket: usize, visible_bytes: usize) -> u32 {
        let entry = &mut self.entries[number as usize];
        if entry.place & ALL_BUCKETS == 0 {
            if entry.one.count() == 0 || entry.place == bucket as u32 {
                entry.place = bucket as u32;
                entry.one.add(visible_bytes);
                return number;
            }
            Self::fill(entry, &mut self.full, &mut self.free_full);
        }
        self.full[(entry.place ^ ALL_BUCKETS) as usize][bucket].add(visible_bytes);
        entry.place
    }

    /// Gives a writer all buckets.
    #[cold]
    #[inline(never)]
    fn fill(entry: &mut Entry, all: &mut Vec<Full>, free: &mut Vec<u32>) {
        let mut full = Full::default();
        full[entry.place as usize] = entry.one;
        entry.place = put(all, free, full) | ALL_BUCKETS;
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.full.capacity() * size_of::<Full>()
            + self.index.capacity() * 25
            + (self.free.capacity() + self.free_full.capacity()) * 4
            + self.gone.capacity() * 8
    }

    /// All writers that have a chunk in their histogram, in the order of their first chunks.
    pub(crate) fn list(&self, identities: &Identities) -> Vec<WriterStats> {
        let mut made: Vec<_> = self.index.values().collect();
        made.sort_unstable();
        made.into_iter()
            .map(|&(_, number)| self.stats_of(&self.entries[number as usize], identities))
            .collect()
    }

    fn stats_of(&self, entry: &Entry, identities: &Identities) -> WriterStats {
        let (producer_id, writer_id) = ids_of(entry.key);
        let mut all = Full::default();
        match self.full.get((entry.place ^ ALL_BUCKETS) as usize) {
            Some(full) => all = *full,
            None => all[entry.place as usize] = entry.one,
        }
        let (bucket_count, bucket_sum) = (all.map(Bucket::count), all.map(Bucket::sum));
        let identity = identities.get(entry.identity);
        WriterStats { producer_id, writer_id, identity, bucket_count, bucket_sum }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_are_inclusive() {
        for (bucket, &max) in WriterStats::BUCKET_MAX_BYTES.iter().enumerate() {
            assert_eq!(bucket_of(max as usize), bucket);
            assert_eq!(bucket_of(max as usize + 1), bucket + 1);
        }
        for size in 0..=65535 {
            let expected = WriterStats::BUCKET_MAX_BYTES.iter().filter(|&&max| size as u64 > max).count();
            assert_eq!(bucket_of(size), expected, "{size}");
        }
    }

    #[test]
    fn the_second_bucket_keeps_the_first() {
        let mut identities = Identities::default();
        let identity = identities.intern(ClientIdentity::default());
        let mut histograms = Histograms::default();
        let number = histograms.number_of(7, identity);
        let mut now = number;
        for size in [5, 6, 100, 7] {
            now = histograms.add(number, bucket_of(size), size);
        }
        assert_eq!((number, now), (0, ALL_BUCKETS), "its buckets have a number of their own");
        let list = histograms.list(&identities);
        assert_eq!((list[0].bucket_count[0], list[0].bucket_sum[0]), (3, 18));
        assert_eq!((list[0].bucket_count[2], list[0].bucket_sum[2]), (1, 100));
    }
}
