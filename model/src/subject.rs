//! What is compared with the model.

use crate::{Absorb, Chunk, Histogram, Ledger, Model, Packet, Patch, Policy, Stats};

/// A trace buffer under test. Each call means what [`Model`]'s call of that name means.
#[expect(missing_docs, reason = "see Model")]
pub trait Subject: Sized {
    /// Whether it is a shard, or made of shards: chunks have tickets, and what is read is below a
    /// cut.
    const HAS_TICKETS: bool = false;
    /// Whether a pass reads ahead, so that packets leave the buffer before they are returned. Its
    /// packets have one slice.
    const READS_ALL: bool = false;
    /// The ticket of the next commit.
    fn set_ticket(&mut self, _ticket: u64) {}
    /// A committer has taken this ticket and not committed its chunk yet.
    fn announce(&mut self, _ticket: u64) {}
    /// The chunk of the committer that announced this ticket.
    fn commit_announced(&mut self, ticket: u64, chunk: &Chunk<'_>) -> bool {
        self.set_ticket(ticket);
        self.commit(chunk)
    }
    /// Starts a pass of what is below a cut.
    fn begin_read_below(&mut self, _cut: u64) {
        self.begin_read();
    }
    fn create(size_bytes: usize, policy: Policy, absorb: Option<Absorb>) -> Self;
    fn commit(&mut self, chunk: &Chunk<'_>) -> bool;
    fn patch(
        &mut self,
        producer_id: u32,
        writer_id: u16,
        chunk_id: u32,
        patches: &[Patch],
        pending: bool,
    ) -> bool;
    fn end_writer(&mut self, producer_id: u32, writer_id: u16);
    fn end_producer(&mut self, producer_id: u32);
    fn begin_read(&mut self);
    fn read_next(&mut self) -> Option<Packet>;
    fn return_loss(&mut self, producer_id: u32, writer_id: u16, bits: u32);
    fn clone_read_only(&self) -> Self;
    fn take_evicted(&mut self) -> Vec<Packet>;
    fn stats(&self) -> Stats;
    fn ledger(&self) -> Ledger;
    /// In the order of the writers' first chunks; a buffer of many shards has an order of its own.
    fn writer_stats(&self) -> Vec<(u32, u16, Histogram)>;
    fn size_bytes(&self) -> usize;
    fn used_size_bytes(&self) -> usize;
    /// Not called on buffers with tickets.
    fn write_offset(&self) -> usize {
        0
    }
    /// The bytes of the buffer; none where they are not laid out as one ring.
    fn ring(&mut self) -> Option<&[u8]> {
        None
    }
    /// A whole pass. A buffer that lends packets holds all of them until the pass ends.
    fn read_all(&mut self) -> Vec<Packet> {
        self.begin_read();
        std::iter::from_fn(|| self.read_next()).collect()
    }
    /// A whole pass of what is below a cut.
    fn read_all_below(&mut self, cut: u64) -> Vec<Packet> {
        self.begin_read_below(cut);
        std::iter::from_fn(|| self.read_next()).collect()
    }
    /// Checks the buffer's own invariants.
    ///
    /// # Errors
    ///
    /// The invariant that is violated.
    fn check(&mut self) -> Result<(), String> {
        Ok(())
    }
}

impl Subject for Model {
    fn set_ticket(&mut self, ticket: u64) {
        Self::set_ticket(self, ticket);
    }

    fn begin_read_below(&mut self, cut: u64) {
        Self::begin_read_below(self, cut);
    }

    fn create(size_bytes: usize, policy: Policy, absorb: Option<Absorb>) -> Self {
        let mut model = Self::new(size_bytes, policy);
        if let Some(absorb) = absorb {
            model.set_overwrite_sink(absorb);
        }
        model
    }

    fn commit(&mut self, chunk: &Chunk<'_>) -> bool {
        Self::commit(self, chunk)
    }

    fn patch(
        &mut self,
        producer_id: u32,
        writer_id: u16,
        chunk_id: u32,
        patches: &[Patch],
        pending: bool,
    ) -> bool {
        Self::patch(self, producer_id, writer_id, chunk_id, patches, pending)
    }

    fn end_writer(&mut self, producer_id: u32, writer_id: u16) {
        Self::end_writer(self, producer_id, writer_id);
    }

    fn end_producer(&mut self, producer_id: u32) {
        Self::end_producer(self, producer_id);
    }

    fn begin_read(&mut self) {
        Self::begin_read(self);
    }

    fn read_next(&mut self) -> Option<Packet> {
        Self::read_next(self)
    }

    fn return_loss(&mut self, producer_id: u32, writer_id: u16, bits: u32) {
        Self::return_loss(self, producer_id, writer_id, bits);
    }

    fn clone_read_only(&self) -> Self {
        Self::clone_read_only(self)
    }

    fn take_evicted(&mut self) -> Vec<Packet> {
        Self::take_evicted(self)
    }

    fn stats(&self) -> Stats {
        Self::stats(self)
    }

    fn ledger(&self) -> Ledger {
        Self::ledger(self)
    }

    fn writer_stats(&self) -> Vec<(u32, u16, Histogram)> {
        Self::writer_stats(self)
    }

    fn size_bytes(&self) -> usize {
        Self::size_bytes(self)
    }

    fn used_size_bytes(&self) -> usize {
        Self::used_size_bytes(self)
    }

    fn write_offset(&self) -> usize {
        Self::write_offset(self)
    }

    fn check(&mut self) -> Result<(), String> {
        Self::check(self);
        Ok(())
    }
}
