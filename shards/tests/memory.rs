//! What is left of writers and connections that are gone: next to nothing, whatever their number.

mod common;

use common::{info, payload, read_all};
use watershed_engine::{ChunkId, ChunkInfo, ClientIdentity, ProducerId, WriterId};
use watershed_shards::{Batch, ShardedBuffer, ShardedConfig};

const WRITERS: u16 = 10;

/// Bytes that the process has in memory.
#[cfg(target_os = "linux")]
fn resident_bytes() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split_whitespace().nth(1).unwrap().parse().unwrap();
    pages * watershed_engine::mem::page_size_bytes()
}

#[cfg(not(target_os = "linux"))]
fn resident_bytes() -> usize {
    0
}

/// A million connections of ten writers each take half a minute in a release build:
/// `WATERSHED_CONNECTIONS=1000000`.
#[test]
fn writers_and_connections_that_are_gone_leave_nothing() {
    const MOST: usize = 32 << 20;
    let connections = std::env::var("WATERSHED_CONNECTIONS").map_or(5_000, |n| n.parse().unwrap());
    for (size_bytes, num_shards) in [(1 << 20, 1), (4 << 20, 4)] {
        let config = ShardedConfig { num_shards: Some(num_shards), ..ShardedConfig::ring(size_bytes) };
        let buffer = ShardedBuffer::create(config).unwrap();
        let before = resident_bytes();
        let mut committer = buffer.committer().unwrap();
        let bytes = payload(&[b"the only packet".to_vec()]);
        let mut num_read = 0;
        for connection in 1..=connections {
            let pid = connection as i32;
            let mut batch = Batch { ended_producers: vec![ProducerId(connection)], ..Batch::default() };
            for writer in 1..=WRITERS {
                let info = ChunkInfo {
                    producer_id_trusted: ProducerId(connection),
                    identity_trusted: ClientIdentity { uid: 1, pid, machine_id: 0 },
                    writer_id: WriterId(writer),
                    chunk_id: ChunkId(0),
                    num_fragments: 1,
                    complete: true,
                    ..ChunkInfo::default()
                };
                committer.set_cpu(Some(usize::from(writer)));
                committer.commit_chunk(&info, &bytes).unwrap();
                batch.ended_writers.push((ProducerId(connection), WriterId(writer)));
            }
            committer.commit(&mut batch).unwrap();
            if connection % 100 == 0 {
                num_read += read_all(&buffer).len() as u32;
            }
        }
        assert_eq!(num_read, connections * u32::from(WRITERS));
        let beside = buffer.memory_usage_bytes() - size_bytes;
        let resident = resident_bytes().saturating_sub(before);
        println!(
            "{connections} connections, {num_shards} shards: {beside} bytes beside, {resident} resident"
        );
        // A small run must do with a quarter. It took 20 MB when homes were in a tree.
        assert!(beside < MOST / 4, "{beside} bytes beside the ring");
        assert!(resident < MOST, "{resident} bytes resident");
        let histograms = buffer.writer_stats();
        assert!(histograms.len() >= 1 << 11, "the newest are kept");
        assert!(histograms.iter().all(|stats| stats.bucket_count[1] == 1));
        assert!(histograms.iter().any(|stats| stats.identity.pid == connections as i32));
    }
}

/// The shards of a buffer share the number of sequences without records that are remembered.
#[test]
fn what_is_remembered_is_bounded_for_the_whole_buffer() {
    const SHARDS: usize = 256;
    const MOST: u32 = (1 << 20) / SHARDS as u32;
    const FORGOTTEN: u32 = 100;
    let config = ShardedConfig { num_shards: Some(SHARDS), ..ShardedConfig::ring(SHARDS << 20) };
    let buffer = ShardedBuffer::create(config).unwrap();
    assert_eq!(buffer.report().layout.num_shards, SHARDS);
    let mut committer = buffer.committer().unwrap();
    committer.set_cpu(Some(0));
    let bytes = payload(&[b"the only packet".to_vec()]);
    for producer in 1..=MOST + FORGOTTEN {
        committer.commit_chunk(&info(producer, 1, 0, 1, 0), &bytes).unwrap();
        if producer % 4 == 0 {
            assert_eq!(read_all(&buffer).len(), 4);
        }
    }
    assert_eq!(buffer.shard_stats()[0].0.chunks_written, u64::from(MOST + FORGOTTEN), "all in one shard");
    assert_eq!(buffer.ledger().forgotten_sequences, u64::from(FORGOTTEN));
    let is_known = |producer| buffer.has_sequence(ProducerId(producer), WriterId(1));
    assert!(!is_known(FORGOTTEN) && is_known(FORGOTTEN + 1), "the oldest are forgotten");
}
