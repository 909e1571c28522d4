//! What is counted: BufferStats and the ledger.

/// BufferStats, each field with its name in the trace format. Bytes are outer bytes of records
/// (header and rounding included) unless the name says padding. Source of the meanings: spec,
/// trace-buffer 2.12, with the differences in `docs/differences.md`. Bytes and records of one kind
/// are not neighbours: pairs become vector code of three times the instructions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct BufferStats {
    /// Size of the buffer after rounding.
    pub buffer_size: u64,
    /// Records written, relocated and re-admitted ones included.
    pub bytes_written: u64,
    /// Records whose last unread byte went in an eviction.
    pub bytes_overwritten: u64,
    /// Records whose last unread byte was read; each record counts once.
    pub bytes_read: u64,
    /// Padding that was made because a record ended inside an older one.
    pub padding_bytes_written: u64,
    /// Padding, and records that had been read or evicted before, that new records have covered.
    pub padding_bytes_cleared: u64,
    /// [`bytes_written`](Self::bytes_written) in records.
    pub chunks_written: u64,
    /// [`bytes_overwritten`](Self::bytes_overwritten) in records.
    pub chunks_overwritten: u64,
    /// [`bytes_read`](Self::bytes_read) in records.
    pub chunks_read: u64,
    /// Records that grew in place.
    pub chunks_rewritten: u64,
    /// Scraped, read and then completed records that moved to the write position.
    pub chunks_relocated: u64,
    /// Chunks refused: the buffer is sealed, or the id is older than what was consumed.
    pub chunks_discarded: u64,
    /// Records that were not inserted at the end of their sequence.
    pub chunks_committed_out_of_order: u64,
    /// How often writing began again at the buffer's start.
    pub write_wrap_count: u64,
    /// Patches that were written.
    pub patches_succeeded: u64,
    /// Calls for patches that were refused.
    pub patches_failed: u64,
    /// Packets over several chunks that were found complete, in reads and in evictions.
    pub readaheads_succeeded: u64,
    /// Look-aheads that failed or have to wait.
    pub readaheads_failed: u64,
    /// Chunks with missing or malformed fragments, chunks larger than the buffer, and recommits
    /// that retract something.
    pub abi_violations: u64,
    /// Records at whose end the writer gave up a packet.
    pub trace_writer_packet_loss: u64,
}

impl BufferStats {
    #[inline]
    pub(crate) fn note_overwritten(&mut self, outer_bytes: usize) {
        self.chunks_overwritten += 1;
        self.bytes_overwritten += outer_bytes as u64;
    }
}

/// A number of records and their outer bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Amount {
    /// Records.
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

/// Where every record went. A record is booked once, when it is erased.
///
/// At any time `written = read + overwritten + empty + damaged + listed`, in chunks and in bytes:
/// see [`Ledger::is_balanced`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ledger {
    /// Records that were made.
    pub written: Amount,
    /// Erased; a read took the last byte.
    pub read: Amount,
    /// Erased; an eviction took the last byte.
    pub overwritten: Amount,
    /// Erased; never had a visible byte.
    pub empty: Amount,
    /// Erased with bytes that could not be parsed.
    pub damaged: Amount,
    /// Not erased, whether their bytes have been read or not.
    pub listed: Amount,
    /// Commits of a chunk that was consumed before in the same length: no loss.
    pub duplicate_commits: u64,
    /// Empty sequences that were forgotten: a gap after them goes unseen.
    pub forgotten_sequences: u64,
}

impl Ledger {
    /// Whether every record that was written is accounted for.
    pub fn is_balanced(&self) -> bool {
        let parts = [self.read, self.overwritten, self.empty, self.damaged, self.listed];
        self.written.chunks == parts.iter().map(|amount| amount.chunks).sum::<u64>()
            && self.written.bytes == parts.iter().map(|amount| amount.bytes).sum::<u64>()
    }
}

/// Where a listed record is booked when it is erased, and where it is until then. Those that change
/// together are not neighbours, as in [`BufferStats`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Account {
    Read,
    Listed,
    Empty,
    Overwritten,
    Damaged,
}

/// What a buffer counts: the statistics, and the ledger in separate arrays of records and bytes,
/// for the reason that [`BufferStats`] has.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Accounts {
    pub(crate) stats: BufferStats,
    chunks: [u64; 5],
    bytes: [u64; 5],
    /// Chunks that were committed again in the length in which they were consumed.
    pub(crate) duplicate_commits: u64,
}

impl Accounts {
    pub(crate) fn new(buffer_size: usize) -> Accounts {
        let stats = BufferStats { buffer_size: buffer_size as u64, ..BufferStats::default() };
        Accounts { stats, ..Accounts::default() }
    }

    /// A record was written.
    #[inline(always)]
    pub(crate) fn note_written(&mut self, outer_bytes: usize) {
        self.stats.chunks_written += 1;
        self.stats.bytes_written += outer_bytes as u64;
        self.chunks[Account::Listed as usize] += 1;
        self.bytes[Account::Listed as usize] += outer_bytes as u64;
    }

    /// A listed record is erased.
    #[inline(always)]
    pub(crate) fn move_listed(&mut self, account: Account, outer_bytes: usize) {
        self.move_many(account, 1, outer_bytes);
    }

    /// `chunks` listed records of `outer_bytes` in all are erased.
    #[inline(always)]
    pub(crate) fn move_many(&mut self, account: Account, chunks: usize, outer_bytes: usize) {
        let (chunks, bytes) = (chunks as u64, outer_bytes as u64);
        self.chunks[Account::Listed as usize] -= chunks;
        self.bytes[Account::Listed as usize] -= bytes;
        self.chunks[account as usize] += chunks;
        self.bytes[account as usize] += bytes;
    }

    /// What was listed is damaged; also if a change of these numbers was not completed.
    pub(crate) fn give_up_listed(&mut self) {
        let written = [self.stats.chunks_written, self.stats.bytes_written];
        for (parts, written) in [&mut self.chunks, &mut self.bytes].into_iter().zip(written) {
            (parts[Account::Listed as usize], parts[Account::Damaged as usize]) = (0, 0);
            parts[Account::Damaged as usize] = written.saturating_sub(parts.iter().sum());
        }
    }

    fn amount(&self, account: Account) -> Amount {
        Amount { chunks: self.chunks[account as usize], bytes: self.bytes[account as usize] }
    }

    pub(crate) fn ledger(&self, forgotten_sequences: u64) -> Ledger {
        Ledger {
            written: Amount { chunks: self.stats.chunks_written, bytes: self.stats.bytes_written },
            read: self.amount(Account::Read),
            overwritten: self.amount(Account::Overwritten),
            empty: self.amount(Account::Empty),
            damaged: self.amount(Account::Damaged),
            listed: self.amount(Account::Listed),
            duplicate_commits: self.duplicate_commits,
            forgotten_sequences,
        }
    }
}
