//! The engine as a [`Subject`]. No other file here uses the engine.

use std::cell::RefCell;
use std::sync::{Arc, Mutex};

use watershed_engine as engine;

use crate::subject::Subject;
use crate::{Absorb, Amount, Chunk, Histogram, Identity, Ledger, Packet, Patch, Policy, Stats};

/// One engine.
#[derive(Debug)]
pub struct Engine {
    /// The buffer itself.
    pub buffer: engine::TraceBuffer,
    evicted: Arc<Mutex<Vec<Packet>>>,
    commits: u64,
    looks: u64,
}

/// A payload that another process might change: it fails when a byte is fetched twice, except for
/// those that the engine reads in place.
struct Fetched<'a> {
    bytes: &'a [u8],
    is_shared: bool,
    was_fetched: RefCell<Vec<bool>>,
}

impl engine::ByteSource for Fetched<'_> {
    fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        let range = offset_bytes..offset_bytes + dst.len();
        for was_fetched in &mut self.was_fetched.borrow_mut()[range.clone()] {
            assert!(!*was_fetched, "a byte was fetched twice, it may differ the second time");
            *was_fetched = true;
        }
        dst.copy_from_slice(&self.bytes[range]);
    }

    fn shared_bytes(&self) -> Option<engine::SharedBytes<'_>> {
        self.is_shared.then(|| self.bytes.into())
    }
}

impl Engine {
    /// A live one.
    #[must_use]
    pub fn of(buffer: engine::TraceBuffer) -> Self {
        Self { buffer, evicted: Arc::default(), commits: 0, looks: 0 }
    }
}

/// A packet as the model has it.
#[must_use]
pub fn packet_of(packet: &engine::Packet<'_>) -> Packet {
    let identity = packet.identity;
    Packet {
        producer_id: packet.producer_id.0,
        writer_id: packet.writer_id.0,
        identity: Identity { uid: identity.uid, pid: identity.pid, machine_id: identity.machine_id },
        loss: packet.loss.0,
        slices: packet.slices().iter().map(|slice| slice.to_vec()).collect(),
    }
}

fn amount_of(amount: engine::Amount) -> Amount {
    Amount { chunks: amount.chunks, bytes: amount.bytes }
}

/// What a buffer does when it is full.
#[must_use]
pub fn policy_of(policy: Policy) -> engine::FillPolicy {
    match policy {
        Policy::Ring => engine::FillPolicy::RingBuffer,
        Policy::Discard => engine::FillPolicy::Discard,
    }
}

/// A chunk's header.
#[must_use]
pub fn info_of(chunk: &Chunk<'_>) -> engine::ChunkInfo {
    let identity = chunk.identity;
    engine::ChunkInfo {
        producer_id_trusted: engine::ProducerId(chunk.producer_id),
        identity_trusted: engine::ClientIdentity {
            uid: identity.uid,
            pid: identity.pid,
            machine_id: identity.machine_id,
        },
        writer_id: engine::WriterId(chunk.writer_id),
        chunk_id: engine::ChunkId(chunk.chunk_id),
        num_fragments: chunk.num_fragments,
        flags: engine::ChunkFlags(chunk.flags),
        complete: chunk.complete,
    }
}

/// A patch.
#[must_use]
pub fn patch_of(patch: &Patch) -> engine::Patch {
    engine::Patch { offset_untrusted: patch.offset, data: patch.data }
}

/// BufferStats.
#[must_use]
pub fn stats_of(stats: &engine::BufferStats) -> Stats {
    let engine::BufferStats {
        buffer_size,
        bytes_written,
        chunks_written,
        bytes_overwritten,
        chunks_overwritten,
        bytes_read,
        chunks_read,
        padding_bytes_written,
        padding_bytes_cleared,
        chunks_rewritten,
        chunks_relocated,
        chunks_discarded,
        chunks_committed_out_of_order,
        write_wrap_count,
        patches_succeeded,
        patches_failed,
        readaheads_succeeded,
        readaheads_failed,
        abi_violations,
        trace_writer_packet_loss,
    } = *stats;
    Stats {
        buffer_size,
        bytes_written,
        chunks_written,
        bytes_overwritten,
        chunks_overwritten,
        bytes_read,
        chunks_read,
        padding_bytes_written,
        padding_bytes_cleared,
        chunks_rewritten,
        chunks_relocated,
        chunks_discarded,
        chunks_committed_out_of_order,
        write_wrap_count,
        patches_succeeded,
        patches_failed,
        readaheads_succeeded,
        readaheads_failed,
        abi_violations,
        trace_writer_packet_loss,
    }
}

/// The ledger.
#[must_use]
pub fn ledger_of(ledger: &engine::Ledger) -> Ledger {
    Ledger {
        written: amount_of(ledger.written),
        read: amount_of(ledger.read),
        overwritten: amount_of(ledger.overwritten),
        empty: amount_of(ledger.empty),
        damaged: amount_of(ledger.damaged),
        listed: amount_of(ledger.listed),
        duplicate_commits: ledger.duplicate_commits,
        forgotten_sequences: ledger.forgotten_sequences,
    }
}

/// The histograms of all writers, in the order given.
#[must_use]
pub fn histograms_of(writers: impl Iterator<Item = engine::WriterStats>) -> Vec<(u32, u16, Histogram)> {
    writers
        .map(|w| (w.producer_id.0, w.writer_id.0, Histogram { count: w.bucket_count, sum: w.bucket_sum }))
        .collect()
}

impl Subject for Engine {
    fn create(size_bytes: usize, policy: Policy, absorb: Option<Absorb>) -> Self {
        let config =
            engine::BufferConfig { size_bytes, policy: policy_of(policy), huge_pages: engine::HugePages::No };
        let mut this = Self::of(engine::TraceBuffer::create(&config).expect("memory for a small buffer"));
        if let Some(absorb) = absorb {
            let evicted = Arc::clone(&this.evicted);
            this.buffer.set_overwrite_sink(Some(Box::new(move |packet: &engine::Packet<'_>| {
                let packet = packet_of(packet);
                let is_absorbed = absorb(&packet);
                evicted.lock().expect("no sink panics").push(packet);
                is_absorbed
            })));
        }
        this
    }

    fn commit(&mut self, chunk: &Chunk<'_>) -> bool {
        let info = info_of(chunk);
        self.commits += 1;
        // The three kinds of sources, in turns.
        let result = if self.commits.is_multiple_of(3) {
            self.buffer.copy_chunk_untrusted(&info, chunk.bytes)
        } else {
            let was_fetched = RefCell::new(vec![false; chunk.bytes.len()]);
            let is_shared = self.commits % 3 == 1;
            self.buffer.copy_chunk_untrusted(&info, &Fetched { bytes: chunk.bytes, is_shared, was_fetched })
        };
        result.is_ok()
    }

    fn patch(
        &mut self,
        producer_id: u32,
        writer_id: u16,
        chunk_id: u32,
        patches: &[Patch],
        pending: bool,
    ) -> bool {
        let patches: Vec<_> = patches.iter().map(patch_of).collect();
        let (producer, writer) = (engine::ProducerId(producer_id), engine::WriterId(writer_id));
        self.buffer.try_patch(producer, writer, engine::ChunkId(chunk_id), &patches, pending)
    }

    fn end_writer(&mut self, producer_id: u32, writer_id: u16) {
        self.buffer.end_writer(engine::ProducerId(producer_id), engine::WriterId(writer_id));
    }

    fn end_producer(&mut self, producer_id: u32) {
        self.buffer.end_producer(engine::ProducerId(producer_id));
    }

    fn begin_read(&mut self) {
        self.buffer.begin_read();
    }

    fn read_next(&mut self) -> Option<Packet> {
        self.buffer.read_next().map(|packet| packet_of(&packet))
    }

    fn return_loss(&mut self, producer_id: u32, writer_id: u16, bits: u32) {
        let (producer, writer) = (engine::ProducerId(producer_id), engine::WriterId(writer_id));
        self.buffer.return_loss(producer, writer, engine::LossReasons(bits));
    }

    fn read_all(&mut self) -> Vec<Packet> {
        let held: Vec<_> = self.buffer.read_pass().collect();
        held.iter().map(packet_of).collect()
    }

    /// Checks only every other time: the check applies what reads defer, which otherwise would
    /// never stay deferred for long.
    fn check(&mut self) -> Result<(), String> {
        self.looks += 1;
        if self.looks.is_multiple_of(2) { self.buffer.check() } else { Ok(()) }
    }

    fn clone_read_only(&self) -> Self {
        Self::of(self.buffer.clone_read_only().expect("memory for a small buffer"))
    }

    fn take_evicted(&mut self) -> Vec<Packet> {
        std::mem::take(&mut self.evicted.lock().expect("no sink panics"))
    }

    fn stats(&self) -> Stats {
        stats_of(&self.buffer.stats())
    }

    fn ledger(&self) -> Ledger {
        ledger_of(&self.buffer.ledger())
    }

    fn writer_stats(&self) -> Vec<(u32, u16, Histogram)> {
        histograms_of(self.buffer.writer_stats())
    }

    fn size_bytes(&self) -> usize {
        self.buffer.size_bytes()
    }

    fn used_size_bytes(&self) -> usize {
        self.buffer.used_size_bytes()
    }

    fn write_offset(&self) -> usize {
        self.buffer.write_offset()
    }

    fn ring(&mut self) -> Option<&[u8]> {
        Some(self.buffer.ring())
    }
}
