//! Reading by one thread: what the merge costs.

use super::overhead::{Both, on_a_core, percent_more};
use super::team::{Writers, exact_ring};
use crate::measure::{LapResult, Options, WrongAnswer, timed};
use crate::report::Measurement;
use crate::workload::blocks::{count_frames, packet_writer};
use crate::workload::{SourceChunk, protobuf};
use rayon::ThreadPool;
use std::convert::Infallible;
use watershed_shards::{Pieces, ShardedBuffer};

/// The buffer, and the chunks that it takes without losing anything.
fn sizes(options: &Options) -> (usize, usize) {
    options.size((128 << 20, 32_000), (16 << 20, 2_400))
}

/// A buffer whose shards have equal parts of the data, by writers of their own.
pub(super) struct Filled<'a> {
    pub(super) buffer: ShardedBuffer,
    writers: Vec<Writers<'a>>,
}

impl<'a> Filled<'a> {
    pub(super) fn new(
        options: &Options,
        num_shards: usize,
        chunks: &'a [SourceChunk],
    ) -> Result<Filled<'a>, WrongAnswer> {
        let buffer = exact_ring(sizes(options).0, num_shards)?;
        let writers = (0..8)
            .map(|cpu| {
                let mut writers = Writers::new(&buffer, chunks, 1 + cpu as u16, 1);
                writers.committer.set_cpu(Some(cpu));
                writers
            })
            .collect();
        Ok(Filled { buffer, writers })
    }

    /// Chunks of the eight writers in turns. How many packets they hold.
    pub(super) fn fill(&mut self, options: &Options) -> Result<u64, WrongAnswer> {
        let before = self.buffer.ledger();
        let rounds = sizes(options).1 / 8;
        let mut packets = 0;
        for _ in 0..rounds {
            for writers in &mut self.writers {
                packets += writers.next_packets();
                writers.commit(1, 1);
            }
        }
        let ledger = self.buffer.ledger();
        if ledger.overwritten != before.overwritten || ledger.listed.chunks != rounds as u64 * 8 {
            return Err(format!("the buffer is filled with {ledger:?}"));
        }
        let shards = self.buffer.shard_stats();
        let most = shards.iter().map(|(_, ledger)| ledger.listed.chunks).max().unwrap_or(0);
        match most * shards.len() as u64 == ledger.listed.chunks {
            true => Ok(packets),
            false => {
                Err(format!("of {} chunks in {} shards, one has {most}", ledger.listed.chunks, shards.len()))
            }
        }
    }
}

/// Reads everything untimed, without a pool and with this one, and looks at each frame. How many
/// bytes there are.
pub(super) fn verify(
    options: &Options,
    filled: &mut Filled<'_>,
    pool: Option<&ThreadPool>,
) -> Result<u64, WrongAnswer> {
    let mut sizes = [0; 2];
    for (size, pool) in sizes.iter_mut().zip([None, pool]) {
        let expected = filled.fill(options)?;
        let mut bytes = Vec::new();
        read_all(&filled.buffer, pool, |pieces| pieces.write_to(&mut bytes))
            .map_err(|error| error.to_string())?;
        match count_frames(&bytes)? {
            frames if frames == expected => *size = bytes.len() as u64,
            frames => return Err(format!("{frames} frames are read, not {expected}")),
        }
    }
    if sizes[0] == sizes[1] { Ok(sizes[0]) } else { Err(format!("{sizes:?} bytes are read")) }
}

pub(super) fn read_all<E>(
    buffer: &ShardedBuffer,
    pool: Option<&ThreadPool>,
    out: impl FnMut(Pieces<'_>) -> Result<(), E>,
) -> Result<(), E> {
    buffer.read_pass(packet_writer()).with_pool(pool).write_all(out)
}

/// A lap of reading into blocks, framed and stamped as for a file. The blocks are what comes out;
/// nobody copies them.
pub(super) fn into_blocks(
    options: &Options,
    filled: &mut Filled<'_>,
    pool: Option<&ThreadPool>,
    expected_bytes: u64,
) -> LapResult {
    let packets = filled.fill(options)?;
    let (lap, bytes) = timed(packets, || {
        let mut bytes = 0;
        let Ok(()) = read_all(&filled.buffer, pool, |pieces| -> Result<(), Infallible> {
            bytes += pieces.size_bytes() as u64;
            Ok(())
        });
        bytes
    });
    if bytes == expected_bytes {
        Ok(lap)
    } else {
        Err(format!("{bytes} bytes are read, not {expected_bytes}"))
    }
}

/// Eight shards against one with the same data, both by one thread.
pub(super) fn merge_overhead(options: &Options) -> Result<Measurement, WrongAnswer> {
    let chunks = protobuf::track_events(100);
    let (mut eight, mut one) = (Filled::new(options, 8, &chunks)?, Filled::new(options, 1, &chunks)?);
    let bytes = verify(options, &mut eight, None)?;
    match verify(options, &mut one, None)? {
        of_one if of_one == bytes => {}
        of_one => return Err(format!("{bytes} bytes of eight shards, {of_one} of one")),
    }
    let contest = Both(
        || into_blocks(options, &mut eight, None, bytes),
        || into_blocks(options, &mut one, None, bytes),
    );
    let [merged, single] = on_a_core(move || contest.run(options))?;
    Ok(Measurement::percent("merge_overhead_8", &percent_more(&merged, &single))
        .with("ns_per_packet", merged.median())
        .with("one_shard_ns", single.median()))
}
