//! Threads that start together, each on a core of its own.

use crate::measure::{Lap, WrongAnswer};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use watershed_engine::{BufferConfig, ChunkFlags, ChunkId, ChunkInfo, ClientIdentity, ProducerId, WriterId};
use watershed_shards::{Batch, CommitError, Committer, ShardedBuffer, ShardedConfig, Source};

use crate::workload::SourceChunk;

/// A ring of so many shards; an error if it gets fewer.
pub(super) fn ring(
    size_bytes: usize,
    num_shards: usize,
    page_bytes: usize,
) -> Result<ShardedBuffer, WrongAnswer> {
    let config = ShardedConfig {
        num_shards: Some(num_shards),
        page_bytes,
        buffer: BufferConfig::ring(size_bytes),
        ..ShardedConfig::ring(size_bytes)
    };
    ShardedBuffer::create(config).map_err(|error| error.to_string())
}

/// The same, whose number of shards is what was asked for.
pub(in crate::suites) fn exact_ring(
    size_bytes: usize,
    num_shards: usize,
) -> Result<ShardedBuffer, WrongAnswer> {
    let buffer = ring(size_bytes, num_shards, 4096)?;
    match buffer.report().layout.num_shards {
        got if got == num_shards => Ok(buffer),
        got => Err(format!("{got} shards, not {num_shards}")),
    }
}

/// Runs `work` for each member on a thread of its own, pinned to its core. The lap lasts from the
/// moment when all have started until the last is done; its units are those of one member.
pub(super) fn race<T: Send>(units: u64, members: &mut [T], work: impl Fn(&mut T) + Sync) -> Lap {
    race_on(0, units, members, work)
}

/// The same, with the first member on core number `first_rank`, counted from the last.
pub(super) fn race_on<T: Send>(
    first_rank: usize,
    units: u64,
    members: &mut [T],
    work: impl Fn(&mut T) + Sync,
) -> Lap {
    let times = times_of(first_rank, members, |_| (), work);
    let first = times.iter().map(|time| time.0).min().expect("a member");
    let last = times.iter().map(|time| time.1).max().expect("a member");
    Lap { elapsed: last - first, units }
}

/// The same, after each member has done `warm_up` in its thread; the time is the mean of the
/// members' own, so that a member which the system stops for a moment does not count for all. The
/// first member runs on core number `first_rank`, counted from the last.
pub(super) fn warm_race<T: Send>(
    first_rank: usize,
    units: u64,
    members: &mut [T],
    warm_up: impl Fn(&mut T) + Sync,
    work: impl Fn(&mut T) + Sync,
) -> Lap {
    let times = times_of(first_rank, members, warm_up, work);
    let sum: Duration = times.iter().map(|time| time.1 - time.0).sum();
    Lap { elapsed: sum / times.len() as u32, units }
}

/// When each member began its work, and when it was done. All have warmed up before the first
/// begins, and they do that together, too: a thread that is alone for a moment takes over memory of
/// the other's shard, as it should, and then the other has to get it back from that core's cache.
fn times_of<T: Send>(
    first_rank: usize,
    members: &mut [T],
    warm_up: impl Fn(&mut T) + Sync,
    work: impl Fn(&mut T) + Sync,
) -> Vec<(Instant, Instant)> {
    let cores = core_affinity::get_core_ids().unwrap_or_default();
    let (size, started, ready) = (members.len(), AtomicUsize::new(0), AtomicUsize::new(0));
    let meet = |arrived: &AtomicUsize| {
        arrived.fetch_add(1, Ordering::AcqRel);
        while arrived.load(Ordering::Acquire) < size {
            std::hint::spin_loop();
        }
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = members
            .iter_mut()
            .enumerate()
            .map(|(rank, member)| {
                // The last cores first: interrupts prefer the first.
                let core = cores.iter().rev().cycle().nth(first_rank + rank).copied();
                let (warm_up, work, meet, started, ready) = (&warm_up, &work, &meet, &started, &ready);
                scope.spawn(move || {
                    core.map(core_affinity::set_for_current);
                    meet(started);
                    warm_up(member);
                    meet(ready);
                    let start = Instant::now();
                    work(member);
                    (start, Instant::now())
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("a member that ends")).collect()
    })
}

/// Runs `work` on the core where a race of one runs.
pub(super) fn alone<T: Send>(units: u64, member: &mut T, work: impl Fn(&mut T) + Sync) -> Lap {
    race(units, std::slice::from_mut(member), work)
}

/// Entries that keep two threads' lists of ids out of one cache line.
const APART: usize = 32;

/// Endless chunks of some writers: writers and chunks in turns.
pub(super) struct Feed<'a> {
    chunks: &'a [SourceChunk],
    /// Writer ids are `first..first + count`.
    first: u16,
    count: usize,
    /// By writer, with [`APART`] entries on both sides that nobody uses.
    next_ids: Vec<u32>,
    /// Which writer and which chunk come next.
    which: usize,
    at: usize,
}

impl<'a> Feed<'a> {
    pub(super) fn new(chunks: &'a [SourceChunk], first: u16, count: usize) -> Feed<'a> {
        Feed { chunks, first, count, next_ids: vec![0; count + 2 * APART], which: 0, at: 0 }
    }

    // Without a division, which takes as long as some of what is measured.
    #[inline]
    pub(super) fn next(&mut self) -> (ChunkInfo, &'a [u8]) {
        let (which, chunk) = (self.which, &self.chunks[self.at]);
        self.which = if which + 1 == self.count { 0 } else { which + 1 };
        self.at = if self.at + 1 == self.chunks.len() { 0 } else { self.at + 1 };
        let chunk_id = self.next_ids[APART + which];
        self.next_ids[APART + which] = chunk_id.wrapping_add(1);
        (info(self.first + which as u16, chunk_id, chunk), &chunk.bytes)
    }
}

/// A thread's writers and its way into a buffer.
pub(in crate::suites) struct Writers<'a> {
    pub(super) committer: Committer,
    feed: Feed<'a>,
}

impl<'a> Writers<'a> {
    pub(in crate::suites) fn new(
        buffer: &ShardedBuffer,
        chunks: &'a [SourceChunk],
        first: u16,
        count: usize,
    ) -> Writers<'a> {
        Writers { committer: buffer.committer().expect("no clone"), feed: Feed::new(chunks, first, count) }
    }

    /// Packets in the chunk that comes next.
    pub(super) fn next_packets(&self) -> u64 {
        self.feed.chunks[self.feed.at].packets.into()
    }

    /// Commits so many chunks, `batch` at a time.
    pub(in crate::suites) fn commit(&mut self, count: usize, batch: usize) {
        let mut list = Batch::default();
        for _ in 0..count / batch {
            for _ in 0..batch {
                let (info, bytes) = self.feed.next();
                list.chunks.push((info, Source::Borrowed(bytes)));
            }
            while let Err(error) = self.committer.commit(&mut list) {
                wait_for_room(error);
            }
        }
    }
}

/// What a caller does who was handed a batch back: another thread evicts from this shard, or was
/// stopped by the system while it did.
#[cold]
fn wait_for_room(error: CommitError) {
    match error {
        CommitError::QueueFull(_) => std::thread::yield_now(),
        CommitError::Refused(_) | CommitError::NoMemory | CommitError::Poisoned(_) => panic!("{error}"),
    }
}

/// The description of a complete chunk of a writer, whose producer has the same number.
#[inline]
pub(super) fn info(writer: u16, chunk_id: u32, chunk: &SourceChunk) -> ChunkInfo {
    ChunkInfo {
        producer_id_trusted: ProducerId(writer.into()),
        identity_trusted: ClientIdentity { uid: 1000, pid: 4242, machine_id: 0 },
        writer_id: WriterId(writer),
        chunk_id: ChunkId(chunk_id),
        num_fragments: chunk.fragments,
        flags: ChunkFlags(chunk.flags),
        complete: true,
    }
}

/// What a buffer must say of itself when `commits` chunks have been written and none was read.
pub(in crate::suites) fn check_written(buffer: &ShardedBuffer, commits: u64) -> Result<(), WrongAnswer> {
    let (stats, ledger) = (buffer.stats(), buffer.ledger());
    if !ledger.is_balanced() || stats.abi_violations != 0 || stats.chunks_discarded != 0 {
        return Err(format!("{ledger:?}, {stats:?}"));
    }
    match stats.chunks_written {
        written if written == commits => Ok(()),
        written => Err(format!("{written} chunks are written, not {commits}")),
    }
}
