//! One shard of a larger buffer: a trace buffer in extents of a region that several shards use.

use std::ops::Range;
use std::sync::Arc;

use super::TraceBuffer;
use crate::accounts::{BufferStats, Ledger};
use crate::config::{ChunkInfo, FillPolicy, Patch, Refused};
#[cfg(any(test, feature = "testing"))]
use crate::evict::sink::OverwriteSink;
use crate::ids::{ChunkId, LossReasons, ProducerId, WriterId, ids_of};
use crate::index::Index;
use crate::index::histograms::WriterStats;
use crate::packet::Packet;
use crate::ring::Ring;
use crate::ring::extents::Extents;
use crate::ring::mem::Region;
use crate::ring::space::Space;
use crate::ring::tbchunk::outer_bytes;
use crate::write::Writer;
use crate::write::source::ByteSource;

/// A shard. Its owner uses it exclusively. Through it only bytes of extents that were granted to it
/// are touched. A shard that is alone has the whole region as its ring and needs no extents.
///
/// Every chunk comes with a ticket, a number that grows with the order of commits over all shards.
/// In-place recommits keep a record's ticket; relocated and re-admitted records take the new one.
#[derive(Debug)]
pub struct Shard(pub(super) TraceBuffer);

impl Shard {
    /// A shard without extents, of a buffer that has `num_shards`, at least 1. `extent_bytes` must
    /// be a power of two, at least 128 KiB.
    ///
    /// It remembers its part of the 2^20 sequences without records that a buffer remembers.
    pub fn new(region: Arc<Region>, extent_bytes: usize, num_shards: usize) -> Shard {
        assert!(extent_bytes >= 128 << 10, "a chunk of 64 KiB must fit");
        let space = Space::in_extents(region.size_bytes(), extent_bytes);
        let mut shard = Shard::in_ring(Ring::new(region, space), FillPolicy::RingBuffer);
        shard.0.store.index.sequences.max_remembered /= num_shards;
        shard
    }

    /// The one shard of a buffer that has only one: DISCARD, or with a sink, or small.
    ///
    /// # Safety
    /// Nobody else may touch the region's bytes as long as the shard lives.
    pub unsafe fn alone(region: Arc<Region>, policy: FillPolicy) -> Shard {
        let space = Space::new(region.size_bytes());
        Shard::in_ring(Ring::new(region, space), policy)
    }

    fn in_ring(ring: Ring, policy: FillPolicy) -> Shard {
        Shard(TraceBuffer::in_ring(ring, Index::new(true), policy))
    }

    #[inline]
    fn extents(&self) -> Option<&Extents> {
        self.0.store.ring.space.extents()
    }

    /// As [`TraceBuffer::set_overwrite_sink`]; for a shard that is alone, since a sink must see the
    /// order of the whole buffer. The feature `testing`.
    #[cfg(any(test, feature = "testing"))]
    pub fn set_overwrite_sink(&mut self, sink: Option<Box<dyn OverwriteSink>>) {
        self.0.set_overwrite_sink(sink);
    }

    /// The most bytes that records have ever covered. 0 for a shard that has extents.
    pub fn used_size_bytes(&self) -> usize {
        self.0.used_size_bytes()
    }

    /// Whether a chunk of `payload_bytes` may need an extent first: see [`grant`](Self::grant).
    #[inline]
    pub fn needs_extent(&self, payload_bytes: usize) -> bool {
        self.0.store.ring.space.needs_extent(outer_bytes(payload_bytes))
    }

    /// Grants the shard extent number `index`.
    ///
    /// # Safety
    /// Until the shard gives it back, nobody else may touch the extent's bytes. To be called only
    /// when [`needs_extent`](Self::needs_extent) said so.
    pub unsafe fn grant(&mut self, index: u32) {
        self.0.store.ring.space.extents_mut().expect("a shard has extents").grant(index);
    }

    /// Evicts the oldest extent and gives it back. None if the shard has none.
    pub fn evict_oldest_extent(&mut self) -> Option<u32> {
        self.extents()?;
        let TraceBuffer { store, reader, evictor, .. } = &mut self.0;
        evictor.evict_oldest_extent(store, reader)
    }

    /// Gives back extents in which nothing is listed.
    pub fn take_emptied(&mut self) -> impl Iterator<Item = u32> + '_ {
        let TraceBuffer { store, reader, evictor, .. } = &mut self.0;
        if store.ring.space.extents().is_some() {
            evictor.trim(store, reader);
        }
        store.ring.space.extents_mut().into_iter().flat_map(Extents::take_emptied)
    }

    /// The last ticket of the oldest extent: all that is newer is in other extents. None if there
    /// is none.
    #[inline]
    pub fn oldest_ticket(&self) -> Option<u64> {
        Some(self.extents()?.oldest_ticket()?.min(self.newest_ticket()))
    }

    /// The largest ticket so far; 0 if there was none.
    pub fn newest_ticket(&self) -> u64 {
        self.0.store.index.newest_ticket()
    }

    /// How many extents the shard has.
    pub fn num_extents(&self) -> usize {
        self.extents().map_or(0, |extents| extents.iter().len())
    }

    /// Bytes of extents that were evicted.
    pub fn evicted_bytes(&self) -> u64 {
        self.extents().map_or(0, Extents::evicted_bytes)
    }

    /// As [`TraceBuffer::copy_chunk_untrusted`]; a read pass goes on afterwards.
    ///
    /// # Errors
    /// As there.
    ///
    /// # Panics
    /// If the shard needs an extent that was not granted.
    #[inline(always)]
    pub fn copy_chunk_untrusted<S: ByteSource + ?Sized>(
        &mut self,
        info: &ChunkInfo,
        source: &S,
        ticket: u64,
    ) -> Result<(), Refused> {
        self.0.store.index.set_ticket(ticket);
        self.0.copy_chunk_untrusted(info, source)
    }

    /// As [`TraceBuffer::try_patch`].
    pub fn try_patch(
        &mut self,
        producer: ProducerId,
        writer: WriterId,
        chunk: ChunkId,
        patches: &[Patch],
        other_patches_pending: bool,
    ) -> bool {
        self.0.try_patch(producer, writer, chunk, patches, other_patches_pending)
    }

    /// As [`TraceBuffer::end_writer`].
    pub fn end_writer(&mut self, producer: ProducerId, writer: WriterId) {
        self.0.end_writer(producer, writer);
    }

    /// As [`TraceBuffer::end_producer`].
    pub fn end_producer(&mut self, producer: ProducerId) {
        self.0.end_producer(producer);
    }

    /// Goes on for the writers of another shard, whose place this one takes: of a chunk that is
    /// committed there and again here, only what a reader cannot get there is read here. Returns
    /// the sequences that are remembered: not those that are known here, which stay as they are.
    pub fn remember_from(&mut self, other: &mut Shard) -> impl Iterator<Item = (ProducerId, WriterId)> {
        let TraceBuffer { store, reader, .. } = &mut other.0;
        reader.flush(store);
        let keys = self.0.store.index.remember_from(&mut store.index, &store.ring);
        keys.into_iter().map(ids_of)
    }

    /// Sequences that are not known any more: they may get another home.
    pub fn take_dropped(&mut self) -> impl Iterator<Item = (ProducerId, WriterId)> + '_ {
        self.0.store.index.take_dropped().map(ids_of)
    }

    /// Whether [`take_dropped`](Self::take_dropped) has any.
    #[inline]
    pub fn has_dropped(&self) -> bool {
        !self.0.store.index.sequences.dropped.is_empty()
    }

    /// Number of sequences that have records.
    #[inline]
    pub fn num_live_sequences(&self) -> usize {
        self.0.store.index.sequences.num_live()
    }

    /// Starts a read pass at the oldest data. Sequences that stalled are tried again.
    pub fn begin_read(&mut self) {
        self.0.begin_read();
    }

    /// The next packet of records with tickets below `cut`, and the ticket of the record at which
    /// it comes. The packet is consumed.
    ///
    /// Commits and patches may come between two packets of a pass.
    #[inline]
    pub fn read_next(&mut self, cut: u64) -> Option<(u64, Packet<'_>)> {
        self.0.reader.next_below(&mut self.0.store, cut)
    }

    /// As [`TraceBuffer::return_loss`].
    pub fn return_loss(&mut self, producer: ProducerId, writer: WriterId, loss: LossReasons) {
        self.0.return_loss(producer, writer, loss);
    }

    /// What was counted here. `buffer_size` is that of the region; wraps are not counted.
    pub fn stats(&self) -> BufferStats {
        self.0.stats()
    }

    /// Where every record went.
    pub fn ledger(&self) -> Ledger {
        self.0.ledger()
    }

    /// The histogram of every writer, in the order of their first chunks.
    pub fn writer_stats(&self) -> impl ExactSizeIterator<Item = WriterStats> + use<> {
        self.0.writer_stats()
    }

    /// What is kept beside the payload, in bytes. The feature `testing`.
    #[cfg(any(test, feature = "testing"))]
    pub fn metadata_bytes(&self) -> usize {
        self.0.metadata_bytes()
    }

    /// Ranges of the region in which records of this shard lie.
    pub fn filled(&self) -> Vec<Range<usize>> {
        let Some(extents) = self.extents() else {
            return std::iter::once(0..self.0.used_size_bytes()).collect();
        };
        let cursor = self.0.write_offset();
        let filled = |index| {
            let extent = extents.range_of(index);
            extent.start..if extent.contains(&cursor) { cursor } else { extent.end }
        };
        extents.iter().map(filled).collect()
    }

    /// A read-only copy in another region of the same size, without the bytes: the caller has
    /// copied what is [`filled`](Self::filled) to the same offsets.
    ///
    /// # Safety
    /// Nobody else may touch these bytes of `region` as long as the copy lives.
    pub unsafe fn copy_structure(&self, region: Arc<Region>) -> Shard {
        Shard(self.0.copy_read_only(region))
    }

    /// For a shard that has panicked: nothing that it knows is used any more. What was listed
    /// counts as damaged, what comes is discarded and counted. Returns its extents, which it does
    /// not touch any more. `region` is the shard's.
    pub fn give_up(&mut self, region: Arc<Region>) -> Vec<u32> {
        let extents = self.0.store.ring.space.extents_mut().map_or_else(Vec::new, Extents::take_all);
        let mut empty = Shard::in_ring(Ring::new(region, Space::new(0)), FillPolicy::Discard);
        empty.0.writer = Writer::sealed();
        empty.0.store.accounts = self.0.store.accounts;
        empty.0.store.accounts.give_up_listed();
        // Not dropped: its parts may contradict each other.
        std::mem::forget(std::mem::replace(self, empty));
        extents
    }
}
