//! Statistics of a session: of its buffers, its writers, its flushes, and of the service.

use watershed_engine::BufferStats;
use watershed_shards::{Poisoned, Statistics};
use watershed_wire::protos;
use watershed_wire::protos::trace_stats;

use crate::ids::{ConsumerId, SessionId};
use crate::service::Service;

/// Inclusive upper bounds of the buckets of chunk payload sizes, in bytes; one bucket for larger
/// ones follows.
const HISTOGRAM_BOUNDS_BYTES: [i64; 10] = [8, 32, 128, 512, 1024, 2048, 4096, 8192, 12288, 16384];

impl Service {
    /// Statistics of the consumer's session as they are now, `None` if it has none. Waits for
    /// threads that own a shard: for shells that may do so.
    pub fn trace_stats(&mut self, consumer_id: ConsumerId) -> Option<protos::TraceStats> {
        let session_id = self.session_of(consumer_id)?;
        let of_buffers = self.look_now(session_id);
        self.stats_from(session_id, of_buffers)
    }

    /// The session's statistics, with those of its buffers, in their order.
    pub(super) fn stats_from(
        &mut self,
        session_id: SessionId,
        of_buffers: Vec<Statistics>,
    ) -> Option<protos::TraceStats> {
        self.warn_of_poisoned(session_id);
        let (producers, sources, sessions) = (self.producers.len(), self.sources.len(), self.sessions.len());
        let (direct_chunks, direct_patches) = self.direct.discarded();
        let session = self.sessions.get(&session_id)?;
        let histograms = !session.config.builtin().disable_chunk_usage_histograms();
        let mut buffer_stats = Vec::with_capacity(of_buffers.len());
        let mut writer_stats = Vec::new();
        for (index, statistics) in of_buffers.into_iter().enumerate() {
            buffer_stats.push(of_buffer(&statistics.buffer, statistics.poisoned));
            for writer in statistics.writers.iter().filter(|_| histograms) {
                // Without a number: of a sequence that is forgotten.
                let Some(sequence_id) = session.sequences.table().id_of(writer.producer_id, writer.writer_id)
                else {
                    continue;
                };
                writer_stats.push(trace_stats::WriterStats {
                    sequence_id: Some(u64::from(sequence_id)),
                    buffer: Some(index as u32),
                    chunk_payload_histogram_counts: writer.bucket_count.to_vec(),
                    chunk_payload_histogram_sum: writer.bucket_sum.iter().map(|sum| *sum as i64).collect(),
                });
            }
        }
        Some(protos::TraceStats {
            buffer_stats,
            producers_connected: Some(producers as u32),
            producers_seen: Some(self.counters.producers_seen),
            data_sources_registered: Some(sources as u32),
            data_sources_seen: Some(self.counters.last_instance_id),
            tracing_sessions: Some(sessions as u32),
            total_buffers: Some(self.buffers.len() as u32),
            chunks_discarded: Some(self.counters.chunks_discarded + direct_chunks),
            patches_discarded: Some(self.counters.patches_discarded + direct_patches),
            invalid_packets: Some(session.counters.invalid_packets),
            filter_stats: session.filtering.stats(),
            flushes_requested: Some(session.counters.flushes_requested),
            flushes_succeeded: Some(session.counters.flushes_succeeded),
            flushes_failed: Some(session.counters.flushes_failed),
            final_flush_outcome: session.counters.final_flush_outcome.map(i32::from),
            chunk_payload_histogram_def: if histograms {
                HISTOGRAM_BOUNDS_BYTES.to_vec()
            } else {
                Vec::new()
            },
            writer_stats,
            commit_stats: Some(self.commit_counts().to_proto()),
            data_sources_not_offered: session.config.not_offered(),
        })
    }
}

fn of_buffer(stats: &BufferStats, poisoned: Poisoned) -> trace_stats::BufferStats {
    let has_poisoned = poisoned.shards > 0;
    trace_stats::BufferStats {
        bytes_written: Some(stats.bytes_written),
        chunks_written: Some(stats.chunks_written),
        chunks_overwritten: Some(stats.chunks_overwritten),
        write_wrap_count: Some(stats.write_wrap_count),
        patches_succeeded: Some(stats.patches_succeeded),
        patches_failed: Some(stats.patches_failed),
        readaheads_succeeded: Some(stats.readaheads_succeeded),
        readaheads_failed: Some(stats.readaheads_failed),
        abi_violations: Some(stats.abi_violations),
        chunks_rewritten: Some(stats.chunks_rewritten),
        chunks_committed_out_of_order: Some(stats.chunks_committed_out_of_order),
        buffer_size: Some(stats.buffer_size),
        bytes_overwritten: Some(stats.bytes_overwritten),
        bytes_read: Some(stats.bytes_read),
        padding_bytes_written: Some(stats.padding_bytes_written),
        padding_bytes_cleared: Some(stats.padding_bytes_cleared),
        chunks_read: Some(stats.chunks_read),
        chunks_discarded: Some(stats.chunks_discarded),
        trace_writer_packet_loss: Some(stats.trace_writer_packet_loss),
        chunks_relocated: Some(stats.chunks_relocated),
        shards_poisoned: has_poisoned.then_some(poisoned.shards),
        chunks_lost_in_poisoned_shards: has_poisoned.then_some(poisoned.chunks),
    }
}
