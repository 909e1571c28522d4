//! N shards give what one ring gives: the same packets, in the same order, with the same losses,
//! for every history without eviction.

mod common;

use common::{Bytes, Got, Random, got, info, owned, payload, pools, read_all, read_in_pool, write_packet};
use watershed_engine::{BufferConfig, ChunkId, ChunkInfo, Patch, ProducerId, TraceBuffer, WriterId};
use watershed_shards::{Batch, Committer, PatchSet, ShardedBuffer, ShardedConfig, Source};

/// Large enough for eight extents for each of 64 shards, and for every history here.
const SIZE_BYTES: usize = 64 << 20;

/// One ring, and buffers of several shards that get the same calls.
struct Twins {
    ring: TraceBuffer,
    sharded: Vec<(ShardedBuffer, Committer)>,
    /// Buffers of which a pass, unlike the ring's, ended before the end of every shard: it made
    /// fewer attempts to put packets together.
    made_fewer_attempts: Vec<bool>,
}

impl Twins {
    fn new(has_workers: bool) -> Twins {
        let make = |num_shards: usize| {
            let config = ShardedConfig {
                num_shards: Some(num_shards),
                workers: common::workers(has_workers),
                ..ShardedConfig::ring(SIZE_BYTES)
            };
            let buffer = ShardedBuffer::create(config).unwrap();
            assert_eq!(buffer.report().layout.num_shards, num_shards);
            let committer = buffer.committer().unwrap();
            (buffer, committer)
        };
        Twins {
            ring: TraceBuffer::create(&BufferConfig::ring(SIZE_BYTES)).unwrap(),
            sharded: [1, 2, 3, 8, 64].into_iter().map(make).collect(),
            made_fewer_attempts: vec![false; 5],
        }
    }

    fn commit(
        &mut self,
        chunks: &[(ChunkInfo, Vec<u8>)],
        patches: &[PatchSet],
        ends: &[(u32, Option<u16>)],
        random: &mut Random,
    ) {
        for (info, bytes) in chunks {
            self.ring.copy_chunk_untrusted(info, bytes.as_slice()).unwrap();
        }
        for set in patches {
            let (producer, writer) = (set.producer_id_trusted, set.writer_id);
            self.ring.try_patch(producer, writer, set.chunk_id, &set.patches, set.other_patches_pending);
        }
        for &(producer, writer) in ends {
            if let Some(writer) = writer {
                self.ring.end_writer(ProducerId(producer), WriterId(writer));
            }
        }
        for &(producer, writer) in ends {
            if writer.is_none() {
                self.ring.end_producer(ProducerId(producer));
            }
        }
        for (buffer, committer) in &mut self.sharded {
            // Some shards are locked when the first chunks come, so these are queued; then some of
            // those shards are drained for one budget.
            let shards = 0..buffer.report().layout.num_shards;
            let locked: Vec<usize> = match random.one_in(3) {
                true => shards.filter(|_| random.one_in(2)).collect(),
                false => Vec::new(),
            };
            let (first, last) = chunks.split_at(random.below(chunks.len() as u64 + 1) as usize);
            let stopped: Vec<_> = locked.iter().map(|&shard| buffer.stop_shard(shard)).collect();
            commit(committer, Batch { chunks: sources_of(first, random), ..Batch::default() });
            drop(stopped);
            locked.iter().filter(|_| random.one_in(2)).for_each(|&shard| buffer.drain_once(shard));
            let batch = Batch {
                memory: None,
                chunks: sources_of(last, random),
                patches: patches.to_vec(),
                ended_writers: ends
                    .iter()
                    .filter_map(|&(producer, writer)| Some((ProducerId(producer), WriterId(writer?))))
                    .collect(),
                ended_producers: ends
                    .iter()
                    .filter(|(_, writer)| writer.is_none())
                    .map(|&(producer, _)| ProducerId(producer))
                    .collect(),
            };
            commit(committer, batch);
        }
    }

    /// Reads everything, in one pass or in two.
    fn read(&mut self, all: bool, random: &mut Random) -> Vec<Got> {
        self.ring.begin_read();
        let mut expected = Vec::new();
        while let Some(packet) = self.ring.read_next() {
            expected.push(got(&packet));
        }
        if !all {
            // A second pass, as below, so that attempts to put packets together are counted alike.
            self.ring.begin_read();
            assert!(self.ring.read_next().is_none());
        }
        for ((buffer, _), made_fewer) in self.sharded.iter().zip(&mut self.made_fewer_attempts) {
            let num = buffer.report().layout.num_shards;
            let pool = pools()[random.below(3) as usize];
            let mut list = Vec::new();
            if !all {
                // The rest of a pass that is given up comes first in the next one.
                let (mut bytes, mut pass) = (Vec::new(), buffer.read_pass(write_packet).with_pool(pool));
                pass.write_up_to(1, |pieces| pieces.write_to(&mut bytes)).unwrap();
                drop(pass);
                list = common::parse(&bytes);
                // A shard whose block is full is not read to its end, nor is one after the end of a
                // pass that has a pool.
                let block_bytes = ((1_usize << 20) / num).max(64 << 10);
                *made_fewer |= pool.is_some() || bytes.len() + buffer.extracted_bytes() >= block_bytes;
            }
            list.extend(read_in_pool(buffer, pool));
            assert_eq!(list.len(), expected.len(), "{num} shards");
            for (index, (ours, theirs)) in list.iter().zip(&expected).enumerate() {
                assert_eq!(ours, theirs, "{num} shards, packet {index} of {}", expected.len());
            }
        }
        expected
    }

    /// Statistics are the same, except wraps and padding.
    fn compare_stats(&self) {
        let mut expected = self.ring.stats();
        (expected.padding_bytes_written, expected.padding_bytes_cleared, expected.write_wrap_count) =
            (0, 0, 0);
        for ((buffer, _), made_fewer) in self.sharded.iter().zip(&self.made_fewer_attempts) {
            let mut stats = buffer.stats();
            (stats.padding_bytes_written, stats.padding_bytes_cleared) = (0, 0);
            if *made_fewer {
                stats.readaheads_failed = expected.readaheads_failed;
            }
            assert_eq!(stats, expected, "{:?}", buffer.report().layout);
            let ledger = buffer.ledger();
            assert!(ledger.is_balanced());
            assert_eq!(ledger, self.ring.ledger());
            buffer.check().unwrap();
        }
    }

    fn compare_clones(&self) {
        let mut ring = self.ring.clone_read_only().unwrap();
        ring.begin_read();
        let expected: Vec<Got> = std::iter::from_fn(|| ring.read_next().map(|packet| got(&packet))).collect();
        for (buffer, _) in &self.sharded {
            let copy = buffer.clone_read_only().unwrap();
            assert!(copy.committer().is_none());
            assert_eq!(read_all(&copy), expected);
            assert_eq!(read_all(&copy), []);
        }
    }
}

fn commit(committer: &mut Committer, mut batch: Batch<'_>) {
    committer.commit(&mut batch).unwrap();
    assert!(batch.is_empty());
}

/// The chunks' bytes, borrowed or not: all of them, none, or some.
fn sources_of<'a>(chunks: &'a [(ChunkInfo, Vec<u8>)], random: &mut Random) -> Vec<(ChunkInfo, Source<'a>)> {
    let owned_of_three = random.below(4);
    let mut source = |bytes: &'a Vec<u8>| match random.below(3) < owned_of_three {
        true => owned(Bytes(bytes.clone())),
        false => Source::Borrowed(bytes),
    };
    chunks.iter().map(|(info, bytes)| (*info, source(bytes))).collect()
}

/// A writer that behaves as an SDK's does: packets over several chunks, patches, scrapes of the
/// chunk it is at, lost chunks.
#[derive(Default)]
struct Writer {
    next_id: u32,
    /// The last chunk ends with a packet that goes on.
    is_open: bool,
    /// Chunks that wait for patches.
    unpatched: Vec<u32>,
    /// A chunk that was scraped and is not complete yet: its bodies so far.
    scraped: Option<(ChunkInfo, Vec<Vec<u8>>)>,
    packets: u32,
    /// What a packet has besides its text.
    most_filling_bytes: u64,
}

/// One of five producers. Their numbers have the same low half.
fn number(i: u64) -> u32 {
    1 + ((i as u32 % 5) << 16)
}

impl Writer {
    fn body(&mut self, random: &mut Random, producer: u32, writer: u16) -> Vec<u8> {
        self.packets += 1;
        let mut body = format!("{producer}/{writer}#{} ", self.packets).into_bytes();
        let len = body.len() + random.below(self.most_filling_bytes.max(1)) as usize;
        body.resize(len, b'.');
        body
    }

    fn step(&mut self, random: &mut Random, (producer, writer): (u32, u16)) -> Vec<(ChunkInfo, Vec<u8>)> {
        if let Some((scraped, mut bodies)) = self.scraped.take() {
            // The chunk comes again: complete, or scraped a second time.
            bodies.push(self.body(random, producer, writer));
            let complete = !random.one_in(4);
            let info = ChunkInfo { complete, num_fragments: bodies.len() as u16, ..scraped };
            let bytes = payload(&bodies);
            if !complete {
                self.scraped = Some((info, bodies));
            }
            return vec![(info, bytes)];
        }
        if random.one_in(20) {
            self.next_id += 1 + random.below(2) as u32;
        }
        let mut flags = u8::from(self.is_open);
        let mut bodies: Vec<Vec<u8>> = Vec::new();
        for _ in 0..1 + random.below(6) {
            bodies.push(self.body(random, producer, writer));
        }
        self.is_open = random.one_in(3);
        if self.is_open {
            flags |= 2;
            if random.one_in(2) {
                flags |= 4;
                self.unpatched.push(self.next_id);
            }
        }
        let mut info = info(producer, writer, self.next_id, bodies.len(), flags);
        self.next_id += 1;
        let bytes = payload(&bodies);
        if !self.is_open && random.one_in(6) {
            info.complete = false;
            self.scraped = Some((info, bodies));
        }
        vec![(info, bytes)]
    }

    fn patch(&mut self, random: &mut Random, (producer, writer): (u32, u16)) -> Option<PatchSet> {
        let index = random.below(self.unpatched.len().max(1) as u64) as usize;
        let chunk = (index < self.unpatched.len()).then(|| self.unpatched.remove(index))?;
        Some(PatchSet {
            producer_id_trusted: ProducerId(producer),
            writer_id: WriterId(writer),
            chunk_id: ChunkId(chunk),
            patches: vec![Patch { offset_untrusted: 2, data: *b"ABCD" }],
            other_patches_pending: false,
        })
    }
}

fn run_history(seed: u64, steps: usize, has_workers: bool) {
    let mut random = Random(seed);
    let mut twins = Twins::new(has_workers);
    let keys: Vec<(u32, u16)> = (0..40).map(|i| (number(i.into()), 1 + i / 5)).collect();
    let mut writers: Vec<Writer> = keys.iter().map(|_| Writer::default()).collect();
    let mut packets = 0;
    for _ in 0..steps {
        let mut chunks = Vec::new();
        let mut patches = Vec::new();
        let mut ends = Vec::new();
        // Sometimes more chunks than a budget has.
        let (num_chunks, most_filling_bytes) =
            if random.one_in(15) { (100, 10) } else { (1 + random.below(5), 300) };
        for _ in 0..num_chunks {
            let at = random.below(keys.len() as u64) as usize;
            writers[at].most_filling_bytes = most_filling_bytes;
            chunks.extend(writers[at].step(&mut random, keys[at]));
            if random.one_in(2) {
                let at = random.below(keys.len() as u64) as usize;
                patches.extend(writers[at].patch(&mut random, keys[at]));
            }
        }
        // A scrape finds chunks in any order.
        if random.one_in(4) {
            for i in (1..chunks.len()).rev() {
                chunks.swap(i, random.below(i as u64 + 1) as usize);
            }
        }
        if random.one_in(30) {
            let at = random.below(keys.len() as u64) as usize;
            ends.push((keys[at].0, Some(keys[at].1)));
            writers[at] = Writer { packets: writers[at].packets, ..Writer::default() };
        }
        if random.one_in(120) {
            let producer = number(random.below(5));
            ends.push((producer, None));
            for (writer, key) in writers.iter_mut().zip(&keys) {
                if key.0 == producer {
                    *writer = Writer { packets: writer.packets, ..Writer::default() };
                }
            }
        }
        twins.commit(&chunks, &patches, &ends, &mut random);
        if random.one_in(15) {
            packets += {
                let all = random.one_in(2);
                twins.read(all, &mut random).len()
            };
        }
        if random.one_in(60) {
            twins.compare_clones();
        }
        if random.one_in(10) {
            twins.compare_stats();
        }
    }
    packets += twins.read(true, &mut random).len();
    twins.compare_stats();
    assert!(packets > steps, "the history has content");
}

#[test]
fn n_shards_are_one_ring() {
    let seeds: u64 =
        std::env::var("WATERSHED_ORACLE_SEEDS").ok().and_then(|text| text.parse().ok()).unwrap_or(6);
    for seed in 0..seeds {
        run_history(seed, 300, false);
    }
}

#[test]
fn n_shards_with_workers_are_one_ring() {
    run_history(1000, 150, true);
}
