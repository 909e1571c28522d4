//! The engine's numbers in the types of `watershed.h`.

use crate::types::{ws_ledger, ws_stats, ws_writer_stats};
use watershed_engine::{BufferStats, Ledger, WriterStats};

impl From<&BufferStats> for ws_stats {
    fn from(stats: &BufferStats) -> Self {
        Self {
            buffer_size: stats.buffer_size,
            bytes_written: stats.bytes_written,
            bytes_overwritten: stats.bytes_overwritten,
            bytes_read: stats.bytes_read,
            padding_bytes_written: stats.padding_bytes_written,
            padding_bytes_cleared: stats.padding_bytes_cleared,
            chunks_written: stats.chunks_written,
            chunks_rewritten: stats.chunks_rewritten,
            chunks_overwritten: stats.chunks_overwritten,
            chunks_discarded: stats.chunks_discarded,
            chunks_read: stats.chunks_read,
            chunks_committed_out_of_order: stats.chunks_committed_out_of_order,
            chunks_relocated: stats.chunks_relocated,
            write_wrap_count: stats.write_wrap_count,
            patches_succeeded: stats.patches_succeeded,
            patches_failed: stats.patches_failed,
            readaheads_succeeded: stats.readaheads_succeeded,
            readaheads_failed: stats.readaheads_failed,
            abi_violations: stats.abi_violations,
            trace_writer_packet_loss: stats.trace_writer_packet_loss,
        }
    }
}

impl From<WriterStats> for ws_writer_stats {
    fn from(stats: WriterStats) -> Self {
        Self {
            producer_id: stats.producer_id.0 as u16,
            writer_id: stats.writer_id.0,
            bucket_count: stats.bucket_count,
            bucket_sum: stats.bucket_sum,
        }
    }
}

impl From<Ledger> for ws_ledger {
    fn from(ledger: Ledger) -> Self {
        Self {
            written: [ledger.written.chunks, ledger.written.bytes],
            read: [ledger.read.chunks, ledger.read.bytes],
            overwritten: [ledger.overwritten.chunks, ledger.overwritten.bytes],
            empty: [ledger.empty.chunks, ledger.empty.bytes],
            damaged: [ledger.damaged.chunks, ledger.damaged.bytes],
            listed: [ledger.listed.chunks, ledger.listed.bytes],
            duplicate_commits: ledger.duplicate_commits,
            forgotten_sequences: ledger.forgotten_sequences,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::*;
    use watershed_engine::{Amount, ChunkFlags, LossReasons};

    #[test]
    fn every_statistic_keeps_its_name() {
        // Each field another value, so that no two can be mixed up.
        let stats = BufferStats {
            buffer_size: 1,
            bytes_written: 2,
            chunks_written: 3,
            bytes_overwritten: 4,
            chunks_overwritten: 5,
            bytes_read: 6,
            chunks_read: 7,
            padding_bytes_written: 8,
            padding_bytes_cleared: 9,
            chunks_rewritten: 10,
            chunks_relocated: 11,
            chunks_discarded: 12,
            chunks_committed_out_of_order: 13,
            write_wrap_count: 14,
            patches_succeeded: 15,
            patches_failed: 16,
            readaheads_succeeded: 17,
            readaheads_failed: 18,
            abi_violations: 19,
            trace_writer_packet_loss: 20,
        };
        let c = ws_stats::from(&stats);
        let named = [
            (c.buffer_size, 1),
            (c.bytes_written, 2),
            (c.chunks_written, 3),
            (c.bytes_overwritten, 4),
            (c.chunks_overwritten, 5),
            (c.bytes_read, 6),
            (c.chunks_read, 7),
            (c.padding_bytes_written, 8),
            (c.padding_bytes_cleared, 9),
            (c.chunks_rewritten, 10),
            (c.chunks_relocated, 11),
            (c.chunks_discarded, 12),
            (c.chunks_committed_out_of_order, 13),
            (c.write_wrap_count, 14),
            (c.patches_succeeded, 15),
            (c.patches_failed, 16),
            (c.readaheads_succeeded, 17),
            (c.readaheads_failed, 18),
            (c.abi_violations, 19),
            (c.trace_writer_packet_loss, 20),
        ];
        assert!(named.iter().all(|(got, expected)| got == expected), "{c:?}");
    }

    #[test]
    fn the_ledger_is_in_chunks_and_bytes() {
        let amount = |chunks| Amount { chunks, bytes: chunks * 100 };
        let ledger = Ledger {
            written: amount(1),
            read: amount(2),
            overwritten: amount(3),
            empty: amount(4),
            damaged: amount(5),
            listed: amount(6),
            duplicate_commits: 7,
            forgotten_sequences: 8,
        };
        let c = ws_ledger::from(ledger);
        let pairs = [c.written, c.read, c.overwritten, c.empty, c.damaged, c.listed];
        assert_eq!(pairs, [[1, 100], [2, 200], [3, 300], [4, 400], [5, 500], [6, 600]]);
        assert_eq!((c.duplicate_commits, c.forgotten_sequences), (7, 8));
    }

    #[test]
    fn constants_are_the_engines() {
        assert_eq!(WS_CHUNK_FIRST_CONTINUES, ChunkFlags::FIRST_CONTINUES.0);
        assert_eq!(WS_CHUNK_LAST_CONTINUES, ChunkFlags::LAST_CONTINUES.0);
        assert_eq!(WS_CHUNK_NEEDS_PATCHING, ChunkFlags::NEEDS_PATCHING.0);
        assert_eq!(WS_LOSS_PRESENT, LossReasons::PRESENT.0);
        assert_eq!(WS_LOSS_READ_GAP, LossReasons::READ_GAP.0);
        assert_eq!(WS_LOSS_CHUNK_CORRUPTED, LossReasons::CHUNK_CORRUPTED.0);
        assert_eq!(WS_LOSS_ORPHAN_CONTINUATION, LossReasons::ORPHAN_CONTINUATION.0);
        assert_eq!(WS_LOSS_REASSEMBLY_GAP, LossReasons::REASSEMBLY_GAP.0);
        assert_eq!(WS_LOSS_REASSEMBLY_BROKEN_CHAIN, LossReasons::REASSEMBLY_BROKEN_CHAIN.0);
        assert_eq!(WS_LOSS_OVERWRITE, LossReasons::OVERWRITE.0);
        assert_eq!(WS_LOSS_WRITER_ABORT, LossReasons::WRITER_ABORT.0);
        assert_eq!(WS_LOSS_SMB_FULL, LossReasons::SMB_FULL.0);
    }
}
