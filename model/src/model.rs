//! The buffer as plain collections.
//!
//! ```text
//!   records: offset -> Record             sequences: key -> Sequence
//!   0        1040       1072       used      list: [offset, offset, ...]  ordered by (life, chunk id)
//!   +--------+----------+----------+         last: what was erased last
//!   | data   | padding  | data     |         pending: loss bits for the next packet
//!   +--------+----------+----------+
//!        the records tile [0, used)
//! ```
//!
//! There is no ring and there are no bytes of headers: a record's offset is its key in a map, and a
//! payload is its own vector. Placement is exact, since eviction and statistics follow from it.

use std::collections::BTreeMap;

use crate::record::{Consumption, Data, Ended, Last, Record, Sequence};
use crate::types::{Packet, Policy, is_newer, loss};
use crate::{Histogram, Ledger, Stats};

/// One pass of reading.
#[derive(Clone, Debug)]
pub(crate) struct Pass {
    pub(crate) cursor: usize,
    /// In a shard: tickets from here on are not read.
    pub(crate) cut: Option<u64>,
    pub(crate) walker: Option<Walker>,
}

/// Reads a sequence in its order up to a target.
#[derive(Clone, Debug)]
pub(crate) struct Walker {
    pub(crate) key: u64,
    pub(crate) target: usize,
    pub(crate) mode: Consumption,
}

/// A range of the buffer.
#[derive(Clone, Copy, Debug)]
pub struct Placed<'a> {
    /// Its offset.
    pub offset: usize,
    /// Its length, header and rounding included.
    pub outer_bytes: usize,
    /// The chunk in it; padding has none.
    pub listed: Option<Listed<'a>>,
}

/// A chunk in the buffer.
#[derive(Clone, Copy, Debug)]
pub struct Listed<'a> {
    /// Producer and writer.
    pub key: u64,
    /// Id in the sequence.
    pub chunk_id: u32,
    /// Room for the payload.
    pub reserved_bytes: usize,
    /// Visible bytes.
    pub payload: &'a [u8],
}

/// Decides whether an evicted packet is absorbed; absorbed packets are no loss.
pub type Absorb = fn(&Packet) -> bool;

/// The naive trace buffer.
#[derive(Clone, Debug)]
pub struct Model {
    pub(crate) policy: Policy,
    pub(crate) size: usize,
    pub(crate) used: usize,
    pub(crate) cursor: usize,
    pub(crate) sealed: bool,
    pub(crate) read_only: bool,
    pub(crate) records: BTreeMap<usize, Record>,
    pub(crate) sequences: BTreeMap<u64, Sequence>,
    pub(crate) generation: u64,
    pub(crate) pass: Option<Pass>,
    /// In a shard: the ticket of what is committed next.
    pub(crate) ticket: Option<u64>,
    pub(crate) stats: Stats,
    pub(crate) ledger: Ledger,
    pub(crate) histograms: Vec<(u64, Histogram)>,
    pub(crate) absorb: Option<Absorb>,
    pub(crate) evicted: Vec<Packet>,
}

impl Model {
    /// A buffer of `size_bytes`, rounded up to a multiple of 4096, at least 4096.
    #[must_use]
    pub fn new(size_bytes: usize, policy: Policy) -> Self {
        let size = size_bytes.max(1).next_multiple_of(4096);
        Self {
            policy,
            size,
            used: 0,
            cursor: 0,
            sealed: false,
            read_only: false,
            records: BTreeMap::new(),
            sequences: BTreeMap::new(),
            generation: 0,
            pass: None,
            ticket: None,
            stats: Stats { buffer_size: size as u64, ..Stats::default() },
            ledger: Ledger::default(),
            histograms: Vec::new(),
            absorb: None,
            evicted: Vec::new(),
        }
    }

    /// Attaches an overwrite sink. What it is shown is collected for [`Model::take_evicted`].
    pub fn set_overwrite_sink(&mut self, absorb: Absorb) {
        self.absorb = Some(absorb);
    }

    /// The packets shown to the sink since the last call.
    pub fn take_evicted(&mut self) -> Vec<Packet> {
        std::mem::take(&mut self.evicted)
    }

    /// A copy that can be read only. Counters of reads and of read-aheads start again.
    #[must_use]
    pub fn clone_read_only(&self) -> Self {
        let mut copy = self.clone();
        copy.read_only = true;
        copy.pass = None;
        copy.absorb = None;
        copy.evicted.clear();
        copy.stats.bytes_read = 0;
        copy.stats.chunks_read = 0;
        copy.stats.readaheads_succeeded = 0;
        copy.stats.readaheads_failed = 0;
        copy
    }

    /// Makes it a shard, in which reads go by tickets: that of the next commit.
    pub fn set_ticket(&mut self, ticket: u64) {
        self.ticket = Some(ticket);
    }

    /// Something changes: a read pass ends, and in a shard it looks again where it is.
    pub(crate) fn end_read_pass(&mut self) {
        self.pass = self.pass.take().filter(|pass| pass.cut.is_some());
        if let Some(pass) = &mut self.pass {
            pass.walker = None;
        }
    }

    /// Refuses everything but reading from now on.
    pub fn set_read_only(&mut self) {
        self.read_only = true;
    }

    /// BufferStats.
    #[must_use]
    pub fn stats(&self) -> Stats {
        self.stats
    }

    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> Ledger {
        self.ledger
    }

    /// `(producer, writer)` of every writer with a histogram, in the order of their first chunks.
    #[must_use]
    pub fn writer_stats(&self) -> Vec<(u32, u16, Histogram)> {
        self.histograms.iter().map(|&(key, h)| ((key >> 16) as u32, key as u16, h)).collect()
    }

    /// Counts a visible size in a writer's histogram, which is made now if there is none.
    pub(crate) fn count_size(&mut self, key: u64, visible_bytes: usize) {
        let position = self.histograms.iter().position(|(other, _)| *other == key);
        let at = position.unwrap_or_else(|| {
            self.histograms.push((key, Histogram::default()));
            self.histograms.len() - 1
        });
        self.histograms[at].1.add(visible_bytes);
    }

    /// Size after rounding.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        self.size
    }

    /// High-water mark of the bytes ever covered by records.
    #[must_use]
    pub fn used_size_bytes(&self) -> usize {
        self.used
    }

    /// Where the next record goes.
    #[must_use]
    pub fn write_offset(&self) -> usize {
        self.cursor
    }

    /// Every record in the order of places.
    pub fn placed(&self) -> impl Iterator<Item = Placed<'_>> {
        self.records.iter().map(|(&offset, record)| {
            let listed = record.data.as_ref().map(|data| Listed {
                key: data.key,
                chunk_id: data.chunk_id,
                reserved_bytes: data.reserved,
                payload: &data.payload,
            });
            Placed { offset, outer_bytes: record.outer, listed }
        })
    }

    /// Whether the ids that a sequence lists in its newest life still have one order with this one
    /// among them. Ids forged more than 2^31 apart have none, and where such a chunk belongs is not
    /// defined (spec, trace-buffer 2.3).
    #[must_use]
    pub fn has_one_order(&self, producer_id: u32, writer_id: u16, chunk_id: u32) -> bool {
        let Some(sequence) = self.sequences.get(&crate::key_of(producer_id, writer_id)) else {
            return true;
        };
        let listed =
            sequence.list.iter().map(|&offset| self.data(offset)).filter(|data| data.life == sequence.life);
        let others: Vec<_> = listed.map(|data| data.chunk_id).filter(|&other| other != chunk_id).collect();
        others.is_sorted_by_key(|&other| is_newer(other, chunk_id))
            && others.iter().all(|&other| other != chunk_id.wrapping_add(1 << 31))
    }

    pub(crate) fn data(&self, offset: usize) -> &Data {
        self.records[&offset].data.as_ref().expect("a listed record holds a chunk")
    }

    pub(crate) fn data_mut(&mut self, offset: usize) -> &mut Data {
        let record = self.records.get_mut(&offset).expect("a listed offset is a record's");
        record.data.as_mut().expect("a listed record holds a chunk")
    }

    pub(crate) fn sequence(&self, key: u64) -> &Sequence {
        &self.sequences[&key]
    }

    pub(crate) fn sequence_mut(&mut self, key: u64) -> &mut Sequence {
        self.sequences.get_mut(&key).expect("a record's sequence exists")
    }

    /// Gives loss bits back to a sequence, of a packet that its reader threw away. Nobody hears of
    /// them if the sequence is gone: its producer has ended, and it has neither records nor losses.
    pub fn return_loss(&mut self, producer_id: u32, writer_id: u16, bits: u32) {
        if let Some(sequence) = self.sequences.get_mut(&crate::key_of(producer_id, writer_id)) {
            let is_gone = sequence.ended == Some(Ended::Producer)
                && sequence.list.is_empty()
                && sequence.pending_loss == 0;
            sequence.pending_loss |= if is_gone { 0 } else { bits };
        }
    }

    pub(crate) fn add_loss(&mut self, key: u64, bits: u32) {
        self.sequence_mut(key).pending_loss |= bits | loss::PRESENT;
    }

    /// Takes the record at the front of a sequence out of the list and turns it into padding.
    pub(crate) fn erase_front(&mut self, key: u64) {
        let offset = self.sequence_mut(key).list.remove(0);
        let record = self.records.get_mut(&offset).expect("a listed offset is a record's");
        let outer = record.outer;
        let data = record.data.take().expect("a listed record holds a chunk");

        self.ledger.listed.chunks -= 1;
        self.ledger.listed.bytes -= outer as u64;
        match data.drained_by {
            _ if data.payload.is_empty() => self.ledger.empty.add(outer),
            _ if !data.is_drained() => self.ledger.damaged.add(outer),
            Some(Consumption::Evict) => self.ledger.overwritten.add(outer),
            _ => self.ledger.read.add(outer),
        }

        let sequence = self.sequence_mut(key);
        let erased = Last {
            life: data.life,
            chunk_id: data.chunk_id,
            payload_bytes: data.payload.len(),
            incomplete: data.incomplete,
        };
        match sequence.last {
            // It never goes backwards, when an eviction took newer ids than the chunk that was
            // being written.
            Some(last) if last.life == data.life && is_newer(last.chunk_id, data.chunk_id) => {}
            _ => sequence.last = Some(erased),
        }
        if data.cut {
            self.add_loss(key, loss::CHUNK_CORRUPTED);
        }
        if data.aborted {
            self.add_loss(key, loss::WRITER_ABORT);
        }
    }

    /// Reports ids that are missing before the front record, once.
    pub(crate) fn arrive_at_front(&mut self, key: u64) {
        let sequence = self.sequence(key);
        let (offset, last) = (sequence.list[0], sequence.last);
        let data = self.data_mut(offset);
        let Some(last) = last.filter(|last| last.life == data.life) else {
            return;
        };
        let is_gap = is_newer(data.chunk_id, last.chunk_id) && data.chunk_id != last.chunk_id.wrapping_add(1);
        if is_gap && !data.gap_accounted {
            data.gap_accounted = true;
            self.add_loss(key, loss::READ_GAP);
        }
    }

    /// What must hold after every step, whatever was committed.
    ///
    /// # Panics
    ///
    /// If it does not.
    pub fn check(&self) {
        let mut end = 0;
        let mut on_boundary = self.cursor == self.used;
        let mut listed = crate::Amount::default();
        for (&offset, record) in &self.records {
            assert_eq!(offset, end, "records tile the used part");
            on_boundary |= offset == self.cursor;
            end = offset + record.outer;
            if let Some(data) = &record.data {
                listed.add(record.outer);
                assert!(data.consumed <= data.payload.len() && data.payload.len() <= data.reserved);
            }
        }
        assert_eq!(end, self.used);
        assert!(on_boundary, "the cursor is a boundary");
        assert_eq!(listed, self.ledger.listed);
        let in_lists: usize = self.sequences.values().map(|sequence| sequence.list.len()).sum();
        assert_eq!(in_lists as u64, listed.chunks, "each chunk is in the list of its sequence, once");
        for (&key, sequence) in &self.sequences {
            assert!(sequence.list.iter().all(|&offset| self.data(offset).key == key));
            for pair in sequence.list.windows(2) {
                let (a, b) = (self.data(pair[0]), self.data(pair[1]));
                assert!(pair[0] != pair[1]);
                assert!(a.life < b.life || a.life == b.life && !is_newer(a.chunk_id, b.chunk_id));
            }
        }
        let l = &self.ledger;
        let sum = |f: fn(&crate::Amount) -> u64| {
            [l.read, l.overwritten, l.empty, l.damaged, l.listed].iter().map(f).sum::<u64>()
        };
        assert_eq!(l.written.chunks, sum(|a| a.chunks));
        assert_eq!(l.written.bytes, sum(|a| a.bytes));
        assert_eq!(l.written.bytes, self.stats.bytes_written);
        assert_eq!(l.written.chunks, self.stats.chunks_written);
    }
}
