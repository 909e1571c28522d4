//! What is counted: BufferStats, the ledger, and histograms of writers (spec, trace-buffer 2.12).

/// BufferStats, each field by its own name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[expect(missing_docs, reason = "the spec defines each field")]
pub struct Stats {
    pub buffer_size: u64,
    pub bytes_written: u64,
    pub chunks_written: u64,
    pub bytes_overwritten: u64,
    pub chunks_overwritten: u64,
    pub bytes_read: u64,
    pub chunks_read: u64,
    pub padding_bytes_written: u64,
    pub padding_bytes_cleared: u64,
    pub chunks_rewritten: u64,
    pub chunks_relocated: u64,
    pub chunks_discarded: u64,
    pub chunks_committed_out_of_order: u64,
    pub write_wrap_count: u64,
    pub patches_succeeded: u64,
    pub patches_failed: u64,
    pub readaheads_succeeded: u64,
    pub readaheads_failed: u64,
    pub abi_violations: u64,
    pub trace_writer_packet_loss: u64,
}

/// An amount of records and their outer bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Number of records.
    pub chunks: u64,
    /// Outer bytes.
    pub bytes: u64,
}

impl Amount {
    pub(crate) fn add(&mut self, outer_bytes: usize) {
        self.chunks += 1;
        self.bytes += outer_bytes as u64;
    }
}

/// Where every record went. `written` is the sum of the other five, in chunks and in bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Records made.
    pub written: Amount,
    /// Erased after their last byte was read.
    pub read: Amount,
    /// Erased after their last byte was overwritten.
    pub overwritten: Amount,
    /// Erased, and had no visible byte.
    pub empty: Amount,
    /// Erased with bytes that no fragment claims.
    pub damaged: Amount,
    /// Not erased.
    pub listed: Amount,
    /// Commits of a chunk that was consumed with the same size.
    pub duplicate_commits: u64,
    /// Empty sequences that were forgotten.
    pub forgotten_sequences: u64,
}

/// Inclusive upper bounds of all buckets but the last.
pub const BUCKET_MAX_BYTES: [u64; 10] = [8, 32, 128, 512, 1024, 2048, 4096, 8192, 12288, 16384];

/// Visible sizes of one writer's chunks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Number of chunks of each bucket.
    pub count: [u64; 11],
    /// Their bytes.
    pub sum: [u64; 11],
}

impl Histogram {
    pub(crate) fn add(&mut self, visible_bytes: usize) {
        let size = visible_bytes as u64;
        let bucket = BUCKET_MAX_BYTES.iter().position(|&max| size <= max).unwrap_or(10);
        self.count[bucket] += 1;
        self.sum[bucket] += size;
    }
}
