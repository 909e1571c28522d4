//! Shards behave like the model in every history: one shard with tickets and cuts, and buffers of
//! many.
//!
//! `WATERSHED_STEPS` makes the histories longer, `WATERSHED_SEED` draws others.

use std::sync::{Arc, Mutex};

use watershed_engine::mem::Region;
use watershed_engine::{
    ChunkId, HugePages, LossReasons, Packet as EnginePacket, ProducerId, Shard, WriterId,
};
use watershed_model::drive::Scope;
use watershed_model::engine::{histograms_of, info_of, ledger_of, packet_of, patch_of, policy_of, stats_of};
use watershed_model::property::{check, check_in};
use watershed_model::subject::Subject;
use watershed_model::{Absorb, Chunk, Histogram, Identity, Ledger, Packet, Patch, Policy, Stats};
use watershed_shards::{Batch, Committer, PatchSet, ShardedBuffer, ShardedConfig, Source};

mod common;

/// One shard: in one ring, or, with `EXTENTS`, in extents of which it takes one after the other and
/// returns none.
struct OneShard<const EXTENTS: bool> {
    shard: Shard,
    region: Arc<Region>,
    next_extent: u32,
    evicted: Arc<Mutex<Vec<Packet>>>,
    ticket: u64,
    cut: u64,
    looks: u64,
}

const EXTENT_BYTES: usize = 128 << 10;

impl<const EXTENTS: bool> OneShard<EXTENTS> {
    fn of(shard: Shard, region: Arc<Region>) -> Self {
        Self { shard, region, next_extent: 0, evicted: Arc::default(), ticket: 0, cut: 0, looks: 0 }
    }
}

fn region(size_bytes: usize) -> Arc<Region> {
    Arc::new(Region::map(size_bytes, HugePages::No).unwrap())
}

fn ids(producer_id: u32, writer_id: u16) -> (ProducerId, WriterId) {
    (ProducerId(producer_id), WriterId(writer_id))
}

impl<const EXTENTS: bool> Subject for OneShard<EXTENTS> {
    const HAS_TICKETS: bool = true;

    fn create(size_bytes: usize, policy: Policy, absorb: Option<Absorb>) -> Self {
        let region = region(size_bytes);
        if EXTENTS {
            return Self::of(Shard::new(Arc::clone(&region), EXTENT_BYTES, 1), region);
        }
        // SAFETY: nobody else touches the region.
        let shard = unsafe { Shard::alone(Arc::clone(&region), policy_of(policy)) };
        let mut this = Self::of(shard, region);
        if let Some(absorb) = absorb {
            let evicted = Arc::clone(&this.evicted);
            this.shard.set_overwrite_sink(Some(Box::new(move |packet: &EnginePacket<'_>| {
                let packet = packet_of(packet);
                let is_absorbed = absorb(&packet);
                evicted.lock().unwrap().push(packet);
                is_absorbed
            })));
        }
        this
    }

    fn set_ticket(&mut self, ticket: u64) {
        self.ticket = ticket;
    }

    fn commit(&mut self, chunk: &Chunk<'_>) -> bool {
        if self.shard.needs_extent(chunk.bytes.len()) {
            // SAFETY: each extent is granted once, to the one shard of the region.
            unsafe { self.shard.grant(self.next_extent) };
            self.next_extent += 1;
        }
        self.shard.copy_chunk_untrusted(&info_of(chunk), chunk.bytes, self.ticket).is_ok()
    }

    fn patch(&mut self, producer: u32, writer: u16, chunk_id: u32, patches: &[Patch], pending: bool) -> bool {
        let (producer, writer) = ids(producer, writer);
        let patches: Vec<_> = patches.iter().map(patch_of).collect();
        self.shard.try_patch(producer, writer, ChunkId(chunk_id), &patches, pending)
    }

    fn end_writer(&mut self, producer_id: u32, writer_id: u16) {
        let (producer, writer) = ids(producer_id, writer_id);
        self.shard.end_writer(producer, writer);
    }

    fn end_producer(&mut self, producer_id: u32) {
        self.shard.end_producer(ProducerId(producer_id));
    }

    fn begin_read(&mut self) {
        self.begin_read_below(u64::MAX);
    }

    fn begin_read_below(&mut self, cut: u64) {
        self.cut = cut;
        self.shard.begin_read();
    }

    fn read_next(&mut self) -> Option<Packet> {
        self.shard.read_next(self.cut).map(|(_, packet)| packet_of(&packet))
    }

    fn return_loss(&mut self, producer_id: u32, writer_id: u16, bits: u32) {
        let (producer, writer) = ids(producer_id, writer_id);
        self.shard.return_loss(producer, writer, LossReasons(bits));
    }

    fn clone_read_only(&self) -> Self {
        let region = region(self.region.size_bytes());
        for range in self.shard.filled() {
            // SAFETY: the new region is nobody else's, and `self` is borrowed.
            unsafe { region.copy_range(&self.region, range) };
        }
        // SAFETY: as above.
        Self::of(unsafe { self.shard.copy_structure(Arc::clone(&region)) }, region)
    }

    fn take_evicted(&mut self) -> Vec<Packet> {
        std::mem::take(&mut self.evicted.lock().unwrap())
    }

    fn stats(&self) -> Stats {
        stats_of(&self.shard.stats())
    }

    fn ledger(&self) -> Ledger {
        ledger_of(&self.shard.ledger())
    }

    fn writer_stats(&self) -> Vec<(u32, u16, Histogram)> {
        histograms_of(self.shard.writer_stats())
    }

    fn size_bytes(&self) -> usize {
        self.region.size_bytes()
    }

    fn used_size_bytes(&self) -> usize {
        self.shard.used_size_bytes()
    }

    /// Checks only every other time: a check updates what reads leave behind.
    fn check(&mut self) -> Result<(), String> {
        self.looks += 1;
        if self.looks.is_multiple_of(2) { self.shard.check() } else { Ok(()) }
    }
}

/// A buffer of so many shards, in which four writers have as many homes as there are, read and
/// cloned with that one of the pools.
struct Sharded<const SHARDS: usize, const POOL: usize = 0> {
    buffer: ShardedBuffer,
    /// None of a clone.
    committer: Option<Committer>,
    /// Committers that are stopped, by the tickets of the history and by their own.
    stopped: Vec<(u64, u64, Committer)>,
    pass: std::vec::IntoIter<Packet>,
}

impl<const SHARDS: usize, const POOL: usize> Sharded<SHARDS, POOL> {
    fn of(buffer: ShardedBuffer) -> Self {
        let committer = buffer.committer();
        Self { buffer, committer, stopped: Vec::new(), pass: Vec::new().into_iter() }
    }

    fn commit_batch(&mut self, mut batch: Batch<'_>) -> bool {
        let Some(committer) = &mut self.committer else { return false };
        committer.commit(&mut batch).is_ok()
    }
}

fn batch_of<'a>(chunk: &Chunk<'a>) -> Batch<'a> {
    Batch { chunks: vec![(info_of(chunk), Source::Borrowed(chunk.bytes))], ..Batch::default() }
}

impl<const SHARDS: usize, const POOL: usize> Subject for Sharded<SHARDS, POOL> {
    const HAS_TICKETS: bool = true;
    const READS_ALL: bool = true;

    fn create(size_bytes: usize, _: Policy, _: Option<Absorb>) -> Self {
        let config = ShardedConfig { num_shards: Some(SHARDS), ..ShardedConfig::ring(size_bytes) };
        let buffer = ShardedBuffer::create(config).unwrap();
        assert_eq!(buffer.report().layout.num_shards, SHARDS);
        Self::of(buffer)
    }

    fn announce(&mut self, ticket: u64) {
        let mut committer = self.buffer.committer().unwrap();
        let first_ticket = committer.stop_with_ticket();
        self.stopped.push((ticket, first_ticket, committer));
    }

    fn commit_announced(&mut self, ticket: u64, chunk: &Chunk<'_>) -> bool {
        let at = self.stopped.iter().position(|(announced, ..)| *announced == ticket).unwrap();
        let (_, first_ticket, mut committer) = self.stopped.remove(at);
        committer.set_cpu(Some(chunk.writer_id.into()));
        committer.resume_with_ticket(first_ticket, &mut batch_of(chunk)).is_ok()
    }

    fn commit(&mut self, chunk: &Chunk<'_>) -> bool {
        let Some(committer) = &mut self.committer else { return false };
        committer.set_cpu(Some(chunk.writer_id.into()));
        self.commit_batch(batch_of(chunk))
    }

    fn patch(&mut self, producer: u32, writer: u16, chunk_id: u32, patches: &[Patch], pending: bool) -> bool {
        let before = self.buffer.stats().patches_failed;
        let (producer_id_trusted, writer_id) = ids(producer, writer);
        let set = PatchSet {
            producer_id_trusted,
            writer_id,
            chunk_id: ChunkId(chunk_id),
            patches: patches.iter().map(patch_of).collect(),
            other_patches_pending: pending,
        };
        self.commit_batch(Batch { patches: vec![set], ..Batch::default() });
        self.buffer.stats().patches_failed == before
    }

    fn end_writer(&mut self, producer_id: u32, writer_id: u16) {
        self.commit_batch(Batch { ended_writers: vec![ids(producer_id, writer_id)], ..Batch::default() });
    }

    fn end_producer(&mut self, producer_id: u32) {
        self.commit_batch(Batch { ended_producers: vec![ProducerId(producer_id)], ..Batch::default() });
    }

    fn begin_read(&mut self) {
        let got = common::read_in_pool(&self.buffer, common::pools()[POOL]).into_iter().map(|got| Packet {
            producer_id: got.producer_id,
            writer_id: got.writer_id,
            identity: Identity {
                uid: got.identity.uid,
                pid: got.identity.pid,
                machine_id: got.identity.machine_id,
            },
            loss: got.loss,
            slices: vec![got.bytes],
        });
        self.pass = got.collect::<Vec<_>>().into_iter();
    }

    fn read_next(&mut self) -> Option<Packet> {
        self.pass.next()
    }

    fn return_loss(&mut self, _: u32, _: u16, _: u32) {}

    fn clone_read_only(&self) -> Self {
        Self::of(self.buffer.clone_read_only().unwrap())
    }

    fn take_evicted(&mut self) -> Vec<Packet> {
        Vec::new()
    }

    fn stats(&self) -> Stats {
        stats_of(&self.buffer.stats())
    }

    fn ledger(&self) -> Ledger {
        ledger_of(&self.buffer.ledger())
    }

    fn writer_stats(&self) -> Vec<(u32, u16, Histogram)> {
        histograms_of(self.buffer.writer_stats().into_iter())
    }

    fn size_bytes(&self) -> usize {
        self.buffer.size_bytes()
    }

    fn used_size_bytes(&self) -> usize {
        0
    }

    fn check(&mut self) -> Result<(), String> {
        self.buffer.check()
    }
}

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

fn seed() -> u64 {
    number_from("WATERSHED_SEED", 1)
}

fn steps(default: u64) -> u64 {
    number_from("WATERSHED_STEPS", default)
}

#[test]
fn a_shard_in_one_ring_is_like_the_model() {
    check::<OneShard<false>>(steps(2_000), seed());
}

#[test]
fn a_shard_in_extents_is_like_the_model() {
    check_in::<OneShard<true>>(Scope::Packets { size_bytes: 256 << 20 }, steps(1_500), seed());
}

#[test]
fn many_shards_are_like_the_model() {
    // As large as eight extents for each of 64 shards, and as histories here.
    let scope = Scope::Packets { size_bytes: 256 << 20 };
    check_in::<Sharded<1>>(scope, steps(150), seed());
    check_in::<Sharded<2>>(scope, steps(150), seed());
    check_in::<Sharded<3>>(scope, steps(150), seed());
    check_in::<Sharded<8>>(scope, steps(150), seed());
    check_in::<Sharded<64>>(scope, steps(150), seed());
    check_in::<Sharded<2, 1>>(scope, steps(150), seed());
    check_in::<Sharded<8, 2>>(scope, steps(150), seed());
}
