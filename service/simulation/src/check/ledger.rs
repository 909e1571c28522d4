//! What a session was given, writer by writer: what it owes to whoever reads it.

use std::collections::{BTreeMap, BTreeSet};

use crate::packet::WriterKey;

/// A chunk that was committed.
#[derive(Clone, Debug)]
pub(crate) struct CommittedChunk {
    /// How manieth of its producer.
    pub(crate) ordinal: u64,
    /// The packets whose last byte is in it.
    pub(crate) serials: Vec<u64>,
    pub(crate) is_unpatched: bool,
}

/// One writer's part.
#[derive(Clone, Debug, Default)]
pub(crate) struct Sequence {
    /// The first packet that was written for the session, and the one behind the last.
    pub(crate) first_serial: u64,
    pub(crate) next_serial: u64,
    chunks: Vec<CommittedChunk>,
    unpatched: BTreeSet<u64>,
}

impl Sequence {
    /// Packets that have been committed as a whole: those before the first chunk that waits for its
    /// patches.
    pub(crate) fn owed(&self) -> impl DoubleEndedIterator<Item = u64> + '_ {
        let end = self.unpatched.first().copied().unwrap_or(u64::MAX);
        let whole = self.chunks.partition_point(|chunk| chunk.ordinal < end);
        self.chunks[..whole].iter().flat_map(|chunk| chunk.serials.iter().copied())
    }
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) sequences: BTreeMap<WriterKey, Sequence>,
}

impl Ledger {
    /// A packet is being written. Scraping may take it from here on.
    pub(crate) fn written(&mut self, writer: WriterKey, serial: u64) {
        let sequence = self
            .sequences
            .entry(writer)
            .or_insert_with(|| Sequence { first_serial: serial, ..Sequence::default() });
        sequence.next_serial = serial + 1;
    }

    pub(crate) fn committed(&mut self, writer: WriterKey, chunk: CommittedChunk) {
        let sequence = self.sequences.entry(writer).or_default();
        if chunk.is_unpatched {
            sequence.unpatched.insert(chunk.ordinal);
        }
        sequence.chunks.push(chunk);
    }

    pub(crate) fn patched(&mut self, writer: WriterKey, ordinal: u64) {
        if let Some(sequence) = self.sequences.get_mut(&writer) {
            sequence.unpatched.remove(&ordinal);
        }
    }
}
