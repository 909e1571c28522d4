//! What a buffer reports of itself, what it refuses, and what a clone of it has.

mod common;

use common::{Bytes, info, owned, payload, read_all};
use watershed_engine::{BufferConfig, ChunkInfo, CreateError, FillPolicy, HugePages, Refused};
use watershed_shards::{Batch, CommitError, Reduced, ShardedBuffer, ShardedConfig, Source};

fn config(size_bytes: usize, num_shards: usize) -> ShardedConfig {
    ShardedConfig { num_shards: Some(num_shards), ..ShardedConfig::ring(size_bytes) }
}

#[test]
fn a_buffer_reports_why_it_has_fewer_shards_than_wanted() {
    let discarding =
        BufferConfig { size_bytes: 4 << 20, policy: FillPolicy::Discard, huge_pages: HugePages::No };
    let discarding = ShardedConfig { buffer: discarding, ..config(4 << 20, 4) };
    for (created, num_shards, reduced) in [
        (ShardedBuffer::create(config(4 << 20, 4)), 4, None),
        (ShardedBuffer::create(config(4 << 20, 5)), 4, Some(Reduced::TooSmall)),
        (ShardedBuffer::create(discarding.clone()), 1, Some(Reduced::Discard)),
        (ShardedBuffer::create(ShardedConfig { num_shards: Some(1), ..discarding }), 1, None),
    ] {
        let report = created.unwrap().report();
        assert_eq!((report.layout.num_shards, report.reduced), (num_shards, reduced), "{report:?}");
    }
}

#[test]
fn sizes_are_pages_and_have_a_limit() {
    for (wanted, bytes) in [(0, 4096), (1, 4096), (4096, 4096), (10_000, 12_288)] {
        assert_eq!(ShardedBuffer::create(config(wanted, 2)).unwrap().size_bytes(), bytes);
    }
    let size_bytes = BufferConfig::MAX_SIZE_BYTES + 1;
    let refused = ShardedBuffer::create(config(size_bytes, 2)).unwrap_err();
    assert!(matches!(refused, CreateError::TooLarge { size_bytes: told } if told == size_bytes), "{refused}");
}

/// If one chunk of a batch is wrong, nothing of it is committed, and the batch is unchanged.
#[test]
fn a_batch_with_a_wrong_chunk_is_refused_whole() {
    let buffer = ShardedBuffer::create(config(4 << 20, 2)).unwrap();
    let mut committer = buffer.committer().unwrap();
    let whole = payload(&[b"packet".to_vec()]);
    let long = vec![0; ChunkInfo::MAX_SIZE_BYTES + 1];
    let too_large = Refused::ChunkTooLarge { size_bytes: long.len() };
    for (id, is_owned, bytes, refused) in [
        (0, false, &whole, Refused::ReservedKey),
        (0, true, &whole, Refused::ReservedKey),
        (1, false, &long, too_large),
        (1, true, &long, too_large),
    ] {
        let wrong = if is_owned { owned(Bytes(bytes.clone())) } else { Source::Borrowed(bytes) };
        let chunks =
            vec![(info(1, 1, 0, 1, 0), Source::Borrowed(&whole[..])), (info(id.into(), id, 0, 1, 0), wrong)];
        let mut batch = Batch { chunks, ..Batch::default() };
        assert_eq!(committer.commit(&mut batch), Err(CommitError::Refused(refused)));
        assert_eq!(batch.chunks.len(), 2);
        assert!(!buffer.has_data());
        if let Source::Borrowed(bytes) = batch.chunks[1].1 {
            assert_eq!(committer.commit_chunk(&batch.chunks[1].0, bytes), Err(CommitError::Refused(refused)));
        }
    }
    committer.commit_chunk(&info(1, 1, 0, 1, 0), &long[1..]).expect("as large as a chunk may be");
    assert!(buffer.has_data());
}

#[test]
fn memory_is_that_of_the_ring_and_of_each_writers_metadata() {
    const PRODUCERS: u16 = 200;
    let buffer = ShardedBuffer::create(config(4 << 20, 2)).unwrap();
    let empty = buffer.memory_usage_bytes();
    assert!((4 << 20..5 << 20).contains(&empty), "{empty}");
    let mut committer = buffer.committer().unwrap();
    for producer in 1..=PRODUCERS {
        committer.commit_chunk(&info(producer.into(), 1, 0, 1, 0), &payload(&[b"packet".to_vec()])).unwrap();
    }
    let used = (buffer.memory_usage_bytes() - empty) / usize::from(PRODUCERS);
    // For each producer up to a cache line and a half in the directory, and its sequence.
    assert!((200..1000).contains(&used), "{used} bytes a producer");
}

/// A clone has what was committed before its cut, whatever comes later, and so has a clone of it.
#[test]
fn a_clone_ends_at_its_cut() {
    let config = ShardedConfig { workers: common::workers(true), ..config(4 << 20, 2) };
    let buffer = ShardedBuffer::create(config).unwrap();
    let [mut committer, mut slow] = [(); 2].map(|()| buffer.committer().unwrap());
    let bodies = [0_u8, 1, 2].map(|id| payload(&[vec![id]]));
    committer.commit_chunk(&info(1, 1, 0, 1, 0), &bodies[0]).unwrap();
    let ticket = slow.stop_with_ticket();
    committer.commit_chunk(&info(1, 1, 1, 1, 0), &bodies[1]).unwrap();
    let copy = buffer.clone_read_only().unwrap();
    slow.resume_with_ticket(ticket, &mut Batch::of_chunk(info(2, 1, 0, 1, 0), &bodies[2])).unwrap();
    let copies = [copy.clone_read_only().unwrap(), copy];
    for copy in &copies {
        let read: Vec<Vec<u8>> = read_all(copy).into_iter().map(|got| got.bytes).collect();
        assert_eq!(read, [[0]], "what is after the slow one's ticket is behind the cut");
        assert_eq!(read_all(copy), []);
    }
    let read: Vec<Vec<u8>> = read_all(&buffer).into_iter().map(|got| got.bytes).collect();
    assert_eq!(read, [[0], [2], [1]], "by the tickets");
}

/// Makes ready what is wanted, page by page.
fn prefault_all(buffer: &ShardedBuffer, ahead_bytes: usize) -> usize {
    let pages = std::iter::repeat_with(|| buffer.prefault_ahead(ahead_bytes));
    pages.take_while(|&bytes| bytes != 0).inspect(|&bytes| assert!(bytes <= 2 << 20)).sum()
}

/// Prefaulting goes ahead of the first lap, changes nothing that is read, and ends with the lap.
#[test]
fn pages_are_made_ready_ahead_of_the_first_lap_alone() {
    const AHEAD: usize = 4 << 20;
    for (num_shards, waits_until_due) in [(1, false), (4, false), (4, true)] {
        let buffer = ShardedBuffer::create(config(32 << 20, num_shards)).unwrap();
        let mut ready = prefault_all(&buffer, AHEAD);
        assert!(ready <= 2 << 20, "an empty buffer takes one page: {ready} bytes");
        let mut committer = buffer.committer().unwrap();
        let bytes = payload(&[vec![7; 32 << 10]]);
        let mut num_due = 0;
        for id in 0..1500 {
            let chunks = vec![(info(1, 1, id, 1, 0), Source::Borrowed(&bytes[..]))];
            committer.commit(&mut Batch { chunks, ..Batch::default() }).unwrap();
            let is_due = buffer.is_prefault_due(AHEAD / 2);
            num_due += u32::from(is_due);
            if waits_until_due && !is_due {
                continue;
            }
            let now = prefault_all(&buffer, AHEAD);
            assert!(!buffer.is_prefault_due(AHEAD / 2), "it is ready");
            assert_eq!(buffer.prefault_ahead(AHEAD), 0, "it is ready");
            ready += now;
        }
        assert!(ready <= buffer.size_bytes());
        // Nothing where the system has no huge pages, or no such call.
        if ready != 0 {
            assert!(ready > buffer.size_bytes() - AHEAD, "{ready} bytes");
            assert!(!waits_until_due || num_due > 4, "due {num_due} times");
        }
        let num_packets = read_all(&buffer).len();
        assert!((800..1024).contains(&num_packets), "{num_packets} packets of a full ring");
    }
}

/// Where huge pages are slow plain ones are made ready likewise, and records are where they were.
#[test]
fn a_buffer_goes_on_with_plain_pages() {
    const AHEAD: usize = 4 << 20;
    for num_shards in [1, 4] {
        let buffer = ShardedBuffer::create(config(32 << 20, num_shards)).unwrap();
        let mut ready = prefault_all(&buffer, AHEAD);
        let mut committer = buffer.committer().unwrap();
        let bytes = payload(&[vec![7; 32 << 10]]);
        for id in 0..600 {
            if id % 200 == 10 {
                buffer.use_plain_pages();
            }
            let chunks = vec![(info(1, 1, id, 1, 0), Source::Borrowed(&bytes[..]))];
            committer.commit(&mut Batch { chunks, ..Batch::default() }).unwrap();
            ready += prefault_all(&buffer, AHEAD);
            assert!(!buffer.is_prefault_due(AHEAD), "it is ready");
        }
        // Nothing where the system has no huge pages, or no such call.
        assert!(ready == 0 || ready > 600 << 15, "{ready} bytes");
        let read = read_all(&buffer);
        assert!(read.len() == 600 && read.iter().all(|got| got.bytes == vec![7; 32 << 10]));
    }
}
