//! Commits to a shard whose engine has panicked: they are refused, whatever else is in the batch,
//! and a writer that ends leaves that shard.

mod common;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread;

use common::{
    Got, commit_at, commit_batch, info, is_free, panics, payload, read_all, shared_chunk, shared_memory,
    watched,
};
use watershed_engine::{ChunkId, ChunkInfo, Patch, ProducerId, WriterId};
use watershed_shards::{Batch, Committer, Homes, PatchSet, ShardedBuffer, ShardedConfig, Source};
use watershed_smb::Smb;

const SHARDS: usize = 4;

fn buffer(has_workers: bool) -> ShardedBuffer {
    let config = ShardedConfig {
        num_shards: Some(SHARDS),
        workers: common::workers(has_workers),
        ..ShardedConfig::ring(4 << 20)
    };
    ShardedBuffer::create(config).unwrap()
}

/// What a batch has for healthy shards is carried out, whatever the shards are doing.
#[test]
fn only_the_chunks_for_a_poisoned_shard_are_refused() {
    const WRITERS: u16 = SHARDS as u16;
    for (has_workers, is_stopped) in [(false, false), (false, true), (true, false)] {
        let buffer = buffer(has_workers);
        let mut committer = buffer.committer().unwrap();
        let smb = shared_memory(16);
        let body = |writer: u16, id: u32| vec![writer as u8 + 16 * id as u8; 100];
        (0..SHARDS).for_each(|cpu| assert!(commit_at(&mut committer, 1 + cpu, cpu, 0)));
        // Each shard has an engine then, whatever its workers do.
        buffer.stats();
        for shard in [1, 2] {
            assert!(panics(|| buffer.panic_in_shard(shard)));
        }
        let discarded = buffer.stats().chunks_discarded;
        let stopped = is_stopped.then(|| [0, 1].map(|shard| buffer.stop_shard(shard)));
        let chunks = (0..12).map(|page| {
            let (writer, id) = (1 + page as u16 % WRITERS, 1 + page as u32 / u32::from(WRITERS));
            shared_chunk(&smb, page, (1, writer, id), body(writer, id))
        });
        let patch = PatchSet {
            producer_id_trusted: ProducerId(1),
            writer_id: WriterId(1),
            chunk_id: ChunkId(1),
            patches: vec![Patch { offset_untrusted: 4, data: [9; 4] }],
            other_patches_pending: false,
        };
        let patches = vec![PatchSet { writer_id: WriterId(2), ..patch.clone() }, patch];
        let mut batch =
            Batch { memory: Some(smb.clone()), chunks: chunks.collect(), patches, ..Batch::default() };
        assert_eq!(commit_batch(&mut committer, &mut batch), 6, "three of each poisoned shard");
        assert!(batch.is_empty() && batch.memory.is_none());
        drop(stopped);

        let stats = buffer.stats();
        assert_eq!(stats.chunks_discarded, discarded + 6);
        assert_eq!((stats.patches_succeeded, stats.patches_failed), (1, 1));
        assert!(is_free(&smb, 16), "the producer has all chunks back");
        let read: Vec<_> = read_all(&buffer).into_iter().filter(|got| got.bytes.len() == 100).collect();
        let expected = (1..4).flat_map(|id| [1, 4].map(|writer| (writer, body(writer, id)[0])));
        assert!(read.iter().map(|got| (got.writer_id, got.bytes[99])).eq(expected));
        assert!(read.iter().all(|got| got.loss == 0));
        assert!(read[0].bytes.windows(4).any(|bytes| bytes == [9; 4]), "patched");
    }
}

/// Also if the only healthy shard has far more sequences than the mean of all.
#[test]
fn a_new_sequence_never_goes_to_a_poisoned_shard() {
    for homes in [Homes::CommittingCpu, Homes::RoundRobin] {
        let config = ShardedConfig { num_shards: Some(SHARDS), homes, ..ShardedConfig::ring(4 << 20) };
        let buffer = ShardedBuffer::create(config).unwrap();
        let mut committer = buffer.committer().unwrap();
        (0..SHARDS).for_each(|cpu| assert!(commit_at(&mut committer, 1 + cpu, cpu, 0)));
        for shard in [0, 1, 3] {
            assert!(panics(|| buffer.panic_in_shard(shard)));
        }
        for writer in 10..200 {
            assert!(commit_at(&mut committer, writer, writer % SHARDS, 0), "writer {writer}");
        }
        assert_eq!(buffer.shard_stats()[2].1.listed.chunks, 191);
    }
}

fn end(committer: &mut Committer, ended_writers: &[u16], ended_producers: &[u32]) {
    let ended_writers = ended_writers.iter().map(|&id| (ProducerId(1), WriterId(id))).collect();
    let ended_producers = ended_producers.iter().map(|&id| ProducerId(id)).collect();
    let mut batch = Batch { ended_writers, ended_producers, ..Batch::default() };
    assert_eq!(commit_batch(committer, &mut batch), 0);
}

/// Workers may still be at it.
fn wait_until_gone(buffer: &ShardedBuffer, producer: u32, writer: u16) {
    watched("end of a sequence", || {
        while buffer.has_sequence(ProducerId(producer), WriterId(writer)) {
            // Every owner of a shard releases the homes of sequences that have left.
            buffer.ledger();
        }
    });
}

#[test]
fn a_writer_that_ends_leaves_a_poisoned_shard() {
    for has_workers in [false, true] {
        let buffer = buffer(has_workers);
        let mut committer = buffer.committer().unwrap();
        (1..=4).for_each(|writer| assert!(commit_at(&mut committer, writer, 1, 7)));
        assert!(commit_at(&mut committer, 5, 2, 7));
        let bytes = payload(&[b"other".to_vec()]);
        let other = info(2, 1, 0, 1, 0);
        committer.set_cpu(Some(0));
        assert_eq!(commit_batch(&mut committer, &mut Batch::of_chunk(other, &bytes)), 0);
        buffer.stats();
        assert!(panics(|| buffer.panic_in_shard(1)));

        // An end of a producer that has nothing in the poisoned shard goes there with one that has.
        end(&mut committer, &[1], &[2]);
        wait_until_gone(&buffer, 1, 1);
        assert!(buffer.has_sequence(ProducerId(2), WriterId(1)), "it is not read yet");
        assert!(commit_at(&mut committer, 1, 1, 0), "the writer's number comes back");
        assert!(!commit_at(&mut committer, 2, 1, 8));
        end(&mut committer, &[], &[1]);
        (2..=4).for_each(|writer| wait_until_gone(&buffer, 1, writer));
        let is_known = |&writer: &u16| buffer.has_sequence(ProducerId(1), WriterId(writer));
        assert!([1, 5].iter().all(is_known), "they are not read yet");
        (2..=4).for_each(|writer| assert!(commit_at(&mut committer, writer, 1, 0)));

        let read = read_all(&buffer);
        assert!(read.iter().all(|got| got.loss == 0));
        let writers = |producer| {
            let of = read.iter().filter(move |got| got.producer_id == producer);
            of.map(|got| got.writer_id).collect::<Vec<_>>()
        };
        assert_eq!((writers(1), writers(2)), (vec![5, 1, 2, 3, 4], vec![1]));
    }
}

/// Rounds of a producer, and after how many of them one of its writers ends.
const ROUNDS: u32 = 600;
const LIFE_ROUNDS: u32 = 30;
/// A producer uses its pages in turn, those of some rounds.
const PAGES: usize = 16 * SHARDS;

/// A producer with a writer for each shard, which commits while a shard panics.
struct Producer {
    id: u32,
    committer: Committer,
    smb: Smb,
    next_page: usize,
    /// The life of each writer, and its next chunk.
    next: [(u32, u32); SHARDS],
    chunks: usize,
    refused: usize,
}

impl Producer {
    fn new(buffer: &ShardedBuffer, id: u32) -> Producer {
        let (committer, smb) = (buffer.committer().unwrap(), shared_memory(PAGES));
        let mut new =
            Producer { id, committer, smb, next_page: 0, next: Default::default(), chunks: 0, refused: 0 };
        for cpu in 0..SHARDS {
            new.committer.set_cpu(Some(cpu));
            new.commit(cpu..cpu + 1);
        }
        new
    }

    /// Commits a chunk of each of these writers in one batch. Returns how many were refused.
    fn commit(&mut self, writers: std::ops::Range<usize>) -> usize {
        let chunks: Vec<_> = writers.map(|writer| self.next_chunk(writer)).collect();
        self.chunks += chunks.len();
        let mut batch = Batch { memory: Some(self.smb.clone()), chunks, ..Batch::default() };
        let refused = commit_batch(&mut self.committer, &mut batch);
        self.refused += refused;
        refused
    }

    fn next_chunk(&mut self, writer: usize) -> (ChunkInfo, Source<'static>) {
        let (life, id) = self.next[writer];
        self.next[writer].1 += 1;
        let body = format!("{life}/{id}").into_bytes();
        let page = self.next_page;
        self.next_page = (page + 1) % PAGES;
        // It may be queued. Whoever reads drains it.
        while !self.smb.snapshot(page).unwrap().is_free() {
            thread::yield_now();
        }
        shared_chunk(&self.smb, page, (self.id, 1 + writer as u16, id), body)
    }

    fn end(&mut self, writer: usize) {
        let ended_writers = vec![(ProducerId(self.id), WriterId(1 + writer as u16))];
        let mut batch = Batch { ended_writers, ..Batch::default() };
        assert_eq!(commit_batch(&mut self.committer, &mut batch), 0);
        self.next[writer] = (self.next[writer].0 + 1, 0);
    }

    /// Half of the rounds come when the shard is poisoned.
    fn run(&mut self, rounds_done: &AtomicU32, is_poisoned: &AtomicBool) {
        for round in 0..ROUNDS {
            while round == ROUNDS / 2 && !is_poisoned.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            self.commit(0..SHARDS);
            if round % LIFE_ROUNDS == 0 {
                self.end((round / LIFE_ROUNDS) as usize % SHARDS);
            }
            rounds_done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// What was read of each writer is in order, and of those in healthy shards it is all.
    fn check(&self, read: &[Got]) {
        for writer in 0..SHARDS {
            let is_of_it = |got: &&Got| got.producer_id == self.id && got.writer_id == 1 + writer as u16;
            let numbers = read.iter().filter(is_of_it).map(|got| {
                assert_eq!(got.loss, 0);
                let text = String::from_utf8_lossy(&got.bytes);
                let (life, id) = text.split_once('/').unwrap();
                (life.parse::<u32>().unwrap(), id.parse::<u32>().unwrap())
            });
            let numbers: Vec<_> = numbers.collect();
            assert!(numbers.is_sorted_by(|a, b| a < b), "writer {writer}: {numbers:?}");
            if writer != 1 {
                let is_next = |two: &[(u32, u32)]| two[1] == (two[0].0, two[0].1 + 1) || two[1].1 == 0;
                assert!(numbers[0] == (0, 0) && numbers.windows(2).all(is_next), "{numbers:?}");
                assert_eq!(numbers.len(), 1 + ROUNDS as usize);
            }
        }
    }
}

/// Each chunk is in its shard, or discarded and counted, and free again.
#[test]
fn commits_while_a_shard_panics_are_carried_out_or_refused() {
    const PRODUCERS: u32 = 3;
    for has_workers in [false, true] {
        let buffer = buffer(has_workers);
        let (rounds_done, is_poisoned) = (AtomicU32::new(0), AtomicBool::new(false));
        let mut read = Vec::new();
        let mut producers: Vec<Producer> = (1..=PRODUCERS).map(|id| Producer::new(&buffer, id)).collect();
        thread::scope(|scope| {
            let spawn = |producer| scope.spawn(|| Producer::run(producer, &rounds_done, &is_poisoned));
            let threads: Vec<_> = producers.iter_mut().map(spawn).collect();
            while threads.iter().any(|thread| !thread.is_finished()) {
                read.extend(read_all(&buffer));
                let is_time = rounds_done.load(Ordering::Relaxed) > PRODUCERS * ROUNDS / 4;
                if is_time && !is_poisoned.load(Ordering::Relaxed) {
                    is_poisoned.store(panics(|| buffer.panic_in_shard(1)), Ordering::Relaxed);
                }
            }
        });
        read.extend(read_all(&buffer));
        let (stats, ledger) = (buffer.stats(), buffer.ledger());
        assert!(ledger.is_balanced() && ledger.listed.chunks == 0, "{ledger:?}");
        let sum = |of: fn(&Producer) -> usize| producers.iter().map(of).sum::<usize>() as u64;
        assert_eq!(stats.chunks_written + stats.chunks_discarded, sum(|producer| producer.chunks));
        let refused = sum(|producer| producer.refused);
        assert!((1..=stats.chunks_discarded).contains(&refused), "{refused}");
        assert_eq!(read.len() as u64, stats.chunks_written - ledger.damaged.chunks);
        for producer in &mut producers {
            assert!(is_free(&producer.smb, PAGES));
            producer.check(&read);
            end(&mut producer.committer, &[], &[producer.id]);
        }
        (1..=PRODUCERS).for_each(|id| wait_until_gone(&buffer, id, 2));
        assert!(producers.iter_mut().all(|producer| producer.commit(0..SHARDS) == 0));
    }
}
