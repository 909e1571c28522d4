//! Sizes of chunks by writer.

use std::collections::HashMap;

use crate::hash::KeyState;
use crate::identity::Identities;
use crate::ids::{ClientIdentity, ProducerId, WriterId, ids_of};
use crate::records::NONE;
use crate::sequence::Sequence;

/// Number of buckets: one for each of [`WriterStats::BUCKET_MAX_BYTES`], and one for what is larger.
pub const NUM_BUCKETS: usize = 11;

/// How many chunks of which visible size a writer has committed. Chunks that were refused are not in it; a chunk that grew in place is in it
/// once for each size.
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

/// The bucket of a visible size, of at most 65535 bytes: by the size less one as a float, whose exponent and first bit of the
/// mantissa tell 1, 1.5, 2, 3, 4, 6, ... apart.
#[inline]
fn bucket_of(visible_bytes: usize) -> usize {
    const BY_FLOAT: [u8; 64] = by_float();
    let below = visible_bytes.saturating_sub(1) as u16;
    usize::from(BY_FLOAT[(f32::from(below).to_bits() >> 22) as usize % 64])
}

const fn by_float() -> [u8; 64] {
    let mut buckets = [0; 64];
    let mut octave = 1;
    while octave < 65535 {
        // Each half of an octave is in one bucket; 0, 1 and what else shares a place with another are in the first.
        let mut half = octave;
        while half < 2 * octave {
            let mut bucket = 0;
            while bucket < NUM_BUCKETS - 1 && half >= WriterStats::BUCKET_MAX_BYTES[bucket] {
                bucket += 1;
            }
            buckets[((half as f32).to_bits() >> 22) as usize % 64] = bucket as u8;
            half += octave.div_ceil(2);
        }
        octave *= 2;
    }
    buckets
}

/// Most writers of a trace with many threads stay in one bucket: they get one, the others get all.
#[derive(Clone, Debug)]
struct Entry {
    key: u32,
    identity: u32,
    /// Index into `full`, or [`NONE`] while one bucket is enough.
    full: u32,
    bucket: u32,
    one: Bucket,
}

/// With this bit, a histogram's number is that of all its buckets in `full`; without, that of its entry. As many writers there cannot be.
const ALL_BUCKETS: u32 = 1 << 31;

/// A bucket's count, and in the lower half its sum, of which none comes near to 2^64. They lie side by side, so that a chunk touches one line, and
/// are one number, which is added to in two instructions: a pair would become vector code of six.
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

/// The histograms of a buffer's writers. Nothing is ever taken away: readers want the writers that are gone, too.
#[derive(Clone, Debug, Default)]
pub(crate) struct Histograms {
    index: HashMap<u32, u32, KeyState>,
    entries: Vec<Entry>,
    full: Vec<Full>,
}

impl Histograms {
    /// The number of a writer's histogram, which stays the same.
    #[cold]
    #[inline(never)]
    fn number_of(&mut self, key: u32, identity: u32) -> u32 {
        let number = *self.index.entry(key).or_insert_with(|| {
            self.entries.push(Entry { key, identity, full: NONE, bucket: 0, one: Bucket::default() });
            self.entries.len() as u32 - 1
        });
        self.entries[number as usize].identity = identity;
        number
    }

    /// A hint that histogram `number` will be counted in soon.
    #[inline(always)]
    pub(crate) fn prefetch(&self, number: u32) {
        let place = match number & ALL_BUCKETS {
            0 => self.entries.as_ptr().wrapping_add(number as usize).cast(),
            _ => self.full.as_ptr().wrapping_add((number ^ ALL_BUCKETS) as usize).cast(),
        };
        watershed_simd::prefetch::for_write(place);
    }

    /// Adds a visible size to the histogram of a sequence's writer, which gets one now if it has none.
    #[inline(always)]
    pub(crate) fn count(&mut self, sequence: &mut Sequence, visible_bytes: usize) {
        let bucket = bucket_of(visible_bytes);
        match self.full.get_mut((sequence.histogram ^ ALL_BUCKETS) as usize) {
            Some(full) => full[bucket].add(visible_bytes),
            None => match self.entries.get_mut(sequence.histogram as usize) {
                Some(entry) if entry.bucket == bucket as u32 && entry.full == NONE => {
                    entry.one.add(visible_bytes)
                }
                _ => sequence.histogram = self.count_slowly(sequence, bucket, visible_bytes),
            },
        }
    }

    /// The number of the histogram from now on, in which the size is counted.
    #[inline(never)]
    fn count_slowly(&mut self, sequence: &Sequence, bucket: usize, visible_bytes: usize) -> u32 {
        let mut number = sequence.histogram;
        if number == NONE {
            number = self.number_of(sequence.key, sequence.newest_identity());
        }
        self.add(number, bucket, visible_bytes)
    }

    fn add(&mut self, number: u32, bucket: usize, visible_bytes: usize) -> u32 {
        let entry = &mut self.entries[number as usize];
        if entry.full == NONE {
            if entry.one.count() == 0 || entry.bucket == bucket as u32 {
                entry.bucket = bucket as u32;
                entry.one.add(visible_bytes);
                return number;
            }
            Self::fill(entry, &mut self.full);
        }
        self.full[entry.full as usize][bucket].add(visible_bytes);
        entry.full | ALL_BUCKETS
    }

    /// Gives a writer all buckets.
    #[cold]
    #[inline(never)]
    fn fill(entry: &mut Entry, all: &mut Vec<Full>) {
        let mut full = Full::default();
        full[entry.bucket as usize] = entry.one;
        entry.full = all.len() as u32;
        all.push(full);
    }

    pub(crate) fn memory_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.full.capacity() * size_of::<Full>()
            + self.index.capacity() * 9
    }

    /// All writers that have a chunk in their histogram, in the order of producer and writer.
    pub(crate) fn list(&self, identities: &Identities) -> Vec<WriterStats> {
        let mut list: Vec<WriterStats> =
            self.entries.iter().map(|entry| self.stats_of(entry, identities)).collect();
        list.sort_unstable_by_key(|writer| (writer.producer_id, writer.writer_id));
        list
    }

    fn stats_of(&self, entry: &Entry, identities: &Identities) -> WriterStats {
        let (producer_id, writer_id) = ids_of(entry.key);
        let mut all = Full::default();
        match self.full.get(entry.full as usize) {
            Some(full) => all = *full,
            None => all[entry.bucket as usize] = entry.one,
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
