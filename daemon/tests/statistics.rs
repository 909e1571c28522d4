//! The statistics of a session over the sockets: every field of the schema, with what is true.

mod support;

use support::{Consumer, Producer, TestDaemon, config, numbers};
use watershed_wire::ipc::ConsumerMethod;
use watershed_wire::protos::trace_config::TraceFilter;
use watershed_wire::protos::trace_stats::{BufferStats, FilterStats, FinalFlushOutcome, WriterStats};
use watershed_wire::protos::{GetTraceStatsRequest, GetTraceStatsResponse, TraceConfig, TraceStats};

/// Of the first writer and of the second; each chunk has one packet.
const CHUNKS: [u64; 2] = [10, 3];
/// A chunk in the buffer: a header of 16 bytes, and 3 bytes that are filled up to 16.
const CHUNK_BYTES: u64 = 32;
const PAYLOAD_BYTES: u64 = 3;

/// Of packets the time (8), the sequence (10) and the user (3).
fn filter() -> TraceFilter {
    let words = [1 << 3 | 3, 1, 0, 3 << 3 | 1, 8 << 3 | 1, 10 << 3 | 1, 0_u32];
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    let hash = bytes
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3));
    let mut bytecode = Vec::new();
    for word in words.iter().chain([&(hash as u32)]) {
        prost::encoding::encode_varint(u64::from(*word), &mut bytecode);
    }
    TraceFilter { bytecode: Some(bytecode), ..Default::default() }
}

fn stats(consumer: &mut Consumer) -> TraceStats {
    let request = GetTraceStatsRequest {};
    let reply: GetTraceStatsResponse = consumer.0.ask(ConsumerMethod::GetTraceStats, &request).unwrap();
    reply.trace_stats.unwrap()
}

/// Serves the producer until the session is over.
fn end(consumer: &mut Consumer, producer: &mut Producer) {
    support::settle("the session is over", || {
        producer.serve_now();
        consumer.state().tracing_sessions[0].state() == "DISABLED"
    });
}

#[test]
fn every_field_says_what_happened() {
    let daemon = TestDaemon::start(1);
    let (mut producer, mut consumer, _other) = (daemon.producer(), daemon.consumer(), daemon.producer());
    let of_nobody = protos_source("of.nobody");
    let mut asked = TraceConfig { trace_filter: Some(filter()), ..config() };
    asked.data_sources.push(of_nobody);
    asked.data_sources[0].producer_name_filter = vec!["test".to_owned()];
    consumer.enable(&asked);
    producer.serve_until(|producer| !producer.buffers.is_empty());
    (1..=CHUNKS[0]).for_each(|number| producer.write(1, number));
    producer.next_chunk_id = 0;
    (1..=CHUNKS[1]).for_each(|number| producer.write(2, number));
    producer.sync();
    consumer.disable();
    end(&mut consumer, &mut producer);
    let packets = consumer.read();
    let total = CHUNKS[0] + CHUNKS[1];
    assert_eq!(numbers(&packets).len() as u64, total);

    // Without `..`: a field that is new has to be looked at here.
    let TraceStats {
        buffer_stats,
        producers_connected,
        producers_seen,
        data_sources_registered,
        data_sources_seen,
        tracing_sessions,
        total_buffers,
        chunks_discarded,
        patches_discarded,
        invalid_packets,
        filter_stats,
        flushes_requested,
        flushes_succeeded,
        flushes_failed,
        final_flush_outcome,
        chunk_payload_histogram_def,
        writer_stats,
        commit_stats,
        data_sources_not_offered,
    } = stats(&mut consumer);
    assert_eq!((producers_connected, producers_seen), (Some(2), Some(2)));
    assert_eq!((data_sources_registered, data_sources_seen), (Some(2), Some(2)));
    assert_eq!((tracing_sessions, total_buffers), (Some(1), Some(1)));
    assert_eq!((chunks_discarded, patches_discarded, invalid_packets), (Some(0), Some(0), Some(0)));
    assert_eq!((flushes_requested, flushes_succeeded, flushes_failed), (Some(0), Some(0), Some(0)));
    assert_eq!(final_flush_outcome, None, "the consumer has stopped it");
    assert_eq!(data_sources_not_offered, ["of.nobody"]);
    assert!(commit_stats.unwrap().worker_turns() > 0);
    let [buffer] = &buffer_stats[..] else { panic!("{buffer_stats:?}") };
    let size = buffer.buffer_size.filter(|size| *size >= 4096 << 10);
    assert_eq!(
        *buffer,
        BufferStats {
            bytes_written: Some(total * CHUNK_BYTES),
            chunks_written: Some(total),
            bytes_read: Some(total * CHUNK_BYTES),
            chunks_read: Some(total),
            readaheads_succeeded: Some(0),
            buffer_size: Some(size.expect("what was asked for")),
            chunks_overwritten: Some(0),
            write_wrap_count: Some(0),
            patches_succeeded: Some(0),
            patches_failed: Some(0),
            readaheads_failed: Some(0),
            abi_violations: Some(0),
            chunks_rewritten: Some(0),
            chunks_committed_out_of_order: Some(0),
            bytes_overwritten: Some(0),
            padding_bytes_written: Some(0),
            padding_bytes_cleared: Some(0),
            chunks_discarded: Some(0),
            trace_writer_packet_loss: Some(0),
            chunks_relocated: Some(0),
            shards_poisoned: None,
            chunks_lost_in_poisoned_shards: None,
        }
    );
    check_writers(&writer_stats, &chunk_payload_histogram_def);
    check_filter(&filter_stats.expect("there is a filter"), packets.len() as u64);
}

fn protos_source(name: &str) -> watershed_wire::protos::trace_config::DataSource {
    let config =
        watershed_wire::protos::DataSourceConfig { name: Some(name.to_owned()), ..Default::default() };
    watershed_wire::protos::trace_config::DataSource { config: Some(config), ..Default::default() }
}

fn check_writers(writers: &[WriterStats], bounds: &[i64]) {
    assert_eq!(writers.len(), CHUNKS.len(), "{writers:?}");
    for (writer, chunks) in writers.iter().zip(CHUNKS) {
        assert_eq!(writer.buffer, Some(0));
        assert!(writer.sequence_id() > 1, "1 is the service's own");
        let (counts, sums) =
            (&writer.chunk_payload_histogram_counts[..], &writer.chunk_payload_histogram_sum[..]);
        assert_eq!((counts.len(), sums.len()), (bounds.len() + 1, bounds.len() + 1), "{writer:?}");
        assert!(bounds[0] >= PAYLOAD_BYTES as i64);
        assert_eq!((counts[0], counts.iter().sum::<u64>()), (chunks, chunks), "{writer:?}");
        let bytes = (chunks * PAYLOAD_BYTES) as i64;
        assert_eq!((sums[0], sums.iter().sum::<i64>()), (bytes, bytes), "{writer:?}");
    }
}

fn check_filter(filter: &FilterStats, packets: u64) {
    let FilterStats {
        input_packets,
        input_bytes,
        output_bytes,
        errors,
        time_taken_ns,
        bytes_discarded_per_buffer,
    } = filter;
    assert_eq!(*input_packets, Some(packets - 1), "all but the statistics");
    assert!(*output_bytes > Some(0) && output_bytes < input_bytes, "{filter:?}");
    assert_eq!(*errors, Some(0));
    assert!(*time_taken_ns > Some(0), "{filter:?}");
    assert!(bytes_discarded_per_buffer[..] > [0_u64][..], "{filter:?}");
}

/// What becomes of flushes, and of the last one.
#[test]
fn flushes_are_counted_by_what_became_of_them() {
    for (answers, outcome) in
        [(true, FinalFlushOutcome::FinalFlushSucceeded), (false, FinalFlushOutcome::FinalFlushFailed)]
    {
        let daemon = TestDaemon::start(1);
        let (mut producer, mut consumer) = (daemon.producer(), daemon.consumer());
        let short = TraceConfig { duration_ms: Some(1_000), flush_timeout_ms: Some(100), ..config() };
        consumer.enable(&short);
        producer.serve_until(|producer| !producer.buffers.is_empty());
        assert!(consumer.flush_with(&mut producer));
        producer.write(1, 1);
        if answers {
            end(&mut consumer, &mut producer);
        } else {
            support::settle("the session is over", || {
                consumer.state().tracing_sessions[0].state() == "DISABLED"
            });
        }
        let stats = stats(&mut consumer);
        let failed = u64::from(!answers);
        let flushes = (stats.flushes_requested(), stats.flushes_succeeded(), stats.flushes_failed());
        assert_eq!(flushes, (2, 2 - failed, failed), "answers: {answers}");
        assert_eq!(stats.final_flush_outcome(), outcome);
    }
}
