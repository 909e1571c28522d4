//! How much of its size a buffer of many shards keeps, against what one ring of the size keeps. No
//! time is measured.

use super::team::ring;
use crate::measure::{Options, Series, WrongAnswer};
use crate::report::Measurement;
use crate::workload::minstd::Minstd;
use crate::workload::record_bytes;
use crate::workload::rings::buffer;
use std::convert::Infallible;
use watershed_engine::{ChunkId, ChunkInfo, Packet, ProducerId, TraceBuffer, WriterId};
use watershed_shards::{Committer, ShardedBuffer};

const NUM_WRITERS: usize = 16;
/// Looks at what is kept, while the ring is overwritten once.
const LOOKS: usize = 32;

/// Sixteen writers, each on another CPU, in random turns.
pub(super) fn uniform(
    name: &str,
    mb: usize,
    page_bytes: usize,
    options: &Options,
) -> Result<Measurement, WrongAnswer> {
    retention(name, mb, page_bytes, options, |random| random.below(NUM_WRITERS))
}

/// The same, but one writer makes 95% of the data.
pub(super) fn skewed(
    name: &str,
    mb: usize,
    page_bytes: usize,
    options: &Options,
) -> Result<Measurement, WrongAnswer> {
    retention(name, mb, page_bytes, options, |random| match random.below(100) {
        ..95 => 0,
        _ => 1 + random.below(NUM_WRITERS - 1),
    })
}

/// Each chunk is one packet that starts with the number of its commit, and takes between a quarter
/// of a page and a whole one.
struct Trace {
    random: Minstd,
    bytes: Vec<u8>,
    next_ids: [u32; NUM_WRITERS],
    /// Bytes of each record, by commit.
    sizes: Vec<u32>,
    page_bytes: usize,
}

impl Trace {
    fn commit(
        &mut self,
        choose: impl Fn(&mut Minstd) -> usize,
        sharded: &mut Committer,
        bare: &mut TraceBuffer,
    ) -> Result<(), WrongAnswer> {
        let writer = choose(&mut self.random);
        let largest = self.page_bytes - 16;
        let body_bytes = largest / 4 + self.random.below(largest - largest / 4 - 4);
        self.bytes.clear();
        self.bytes.extend([
            body_bytes as u8 | 0x80,
            (body_bytes >> 7) as u8 | 0x80,
            (body_bytes >> 14) as u8,
        ]);
        self.bytes.extend((self.sizes.len() as u64).to_le_bytes());
        self.bytes.resize(3 + body_bytes, 0);
        self.sizes.push(record_bytes(self.bytes.len()) as u32);
        let info = ChunkInfo {
            producer_id_trusted: ProducerId(1 + writer as u32),
            writer_id: WriterId(1),
            chunk_id: ChunkId(self.next_ids[writer]),
            num_fragments: 1,
            complete: true,
            ..ChunkInfo::default()
        };
        self.next_ids[writer] += 1;
        sharded.set_cpu(Some(writer));
        sharded.commit_chunk(&info, &self.bytes).map_err(|error| error.to_string())?;
        bare.copy_chunk_untrusted(&info, self.bytes.as_slice()).map_err(|error| error.to_string())
    }

    /// Bytes of the commits from the newest back to the first that is not there, by what a clone
    /// holds.
    fn newest_whole(&self, sharded: &ShardedBuffer) -> Result<u64, WrongAnswer> {
        let copy = sharded.clone_read_only().map_err(|error| error.to_string())?;
        let number = |packet: &Packet<'_>, out: &mut Vec<u8>| {
            out.extend_from_slice(&packet.slices()[0][..8]);
            true
        };
        let mut kept = Vec::new();
        let Ok(()) = copy.read_pass(number).write_all(|pieces| -> Result<(), Infallible> {
            pieces.iter().for_each(|piece| kept.extend_from_slice(piece));
            Ok(())
        });
        let numbers: Vec<u64> =
            kept.as_chunks().0.iter().map(|bytes: &[u8; 8]| u64::from_le_bytes(*bytes)).collect();
        if !numbers.is_sorted() {
            return Err("packets do not come out in the order of commits".into());
        }
        let expected = (0..self.sizes.len() as u64).rev();
        let suffix = numbers.iter().rev().zip(expected).take_while(|(kept, expected)| **kept == *expected);
        Ok(suffix.map(|(&kept, _)| u64::from(self.sizes[kept as usize])).sum())
    }
}

fn retention(
    name: &str,
    mb: usize,
    page_bytes: usize,
    options: &Options,
    choose: impl Fn(&mut Minstd) -> usize,
) -> Result<Measurement, WrongAnswer> {
    let mb = options.size(mb, mb.min(16));
    let sharded = ring(mb << 20, NUM_WRITERS, page_bytes)?;
    let mut committer = sharded.committer().ok_or("no committer")?;
    let mut bare = buffer(mb << 20)?;
    let mut trace =
        Trace { random: Minstd::new(42), bytes: Vec::new(), next_ids: [0; _], sizes: Vec::new(), page_bytes };
    let commits = (mb << 20) * 8 / 5 / page_bytes;
    for _ in 0..2 * commits {
        trace.commit(&choose, &mut committer, &mut bare)?;
    }
    let (mut kept, mut whole) = (Vec::new(), Vec::new());
    for _ in 0..LOOKS {
        for _ in 0..commits / LOOKS {
            trace.commit(&choose, &mut committer, &mut bare)?;
        }
        let (ours, theirs) = (sharded.ledger(), bare.ledger());
        if !ours.is_balanced() || ours.written != theirs.written {
            return Err(format!("{ours:?}, {theirs:?}"));
        }
        kept.push(ours.listed.bytes as f64 / theirs.listed.bytes as f64);
        whole.push(trace.newest_whole(&sharded)? as f64 / theirs.listed.bytes as f64);
    }
    let (kept, whole) = (Series::new(kept), Series::new(whole));
    Ok(Measurement::ratio(name, &kept)
        .with("newest_whole", whole.median())
        .with("newest_whole_min", whole.min())
        .with("shards", sharded.report().layout.num_shards as f64))
}
