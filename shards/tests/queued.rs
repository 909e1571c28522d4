//! What waits in queues: chunks in shared memory with their memory, patches with their chunks.

mod common;

use std::sync::Arc;

use common::{info, payload, read_all, round_robin, taken};
use watershed_engine::{ChunkId, Patch, ProducerId, WriterId};
use watershed_shards::{Batch, PatchSet, Source};
use watershed_smb::{PageLayout, SharedMemory, Smb};

/// A buffer that is dropped with work queued: producers get their chunks back, also of a batch that
/// was begun, that has other sources, or whose committer lives on.
#[test]
fn a_dropped_buffer_frees_the_chunks_in_its_queues() {
    const PAGES: usize = 48;
    for (is_mixed, num_drains, keeps_committer) in
        [(false, 0, false), (false, 1, true), (true, 0, true), (true, 1, false)]
    {
        let buffer = round_robin(1, 4);
        let mut committer = buffer.committer().unwrap();
        let smb = Smb::new(Arc::new(SharedMemory::anonymous(PAGES * 4096).unwrap()), 4096).unwrap();
        let stopped = buffer.stop_shard(0);
        for batch in 0..4 {
            let pages = batch * PAGES / 4..(batch + 1) * PAGES / 4;
            let chunks = pages.map(|page| {
                (info(1, 2, page as u32, 1, 0), taken(&smb, page, 2, page as u32, &payload(&[vec![7; 9]])))
            });
            let mut batch = Batch { memory: Some(smb.clone()), chunks: chunks.collect(), ..Batch::default() };
            if is_mixed {
                batch.chunks.push((info(1, 3, 0, 1, 0), Source::Borrowed(b"\x01.")));
            }
            committer.commit(&mut batch).unwrap();
        }
        drop(stopped);
        (0..num_drains).for_each(|_| buffer.drain_once(0));
        let acquire_all = || std::iter::from_fn(|| smb.try_acquire(0, PageLayout::Div1).ok()).count();
        let freed_by_drain = acquire_all();
        assert!((num_drains..=32 * num_drains).contains(&freed_by_drain), "{freed_by_drain}");
        let kept = keeps_committer.then_some(committer);
        drop(buffer);
        assert_eq!(freed_by_drain + acquire_all(), PAGES);
        drop(kept);
        let memory = Arc::downgrade(smb.memory());
        drop(smb);
        assert!(memory.upgrade().is_none(), "the memory was dropped");
    }
}

/// Chunks in shared memory for two shards, in a batch that also ends a writer: a share for each,
/// with the memory.
#[test]
fn shares_for_several_shards_have_the_memory() {
    let buffer = round_robin(2, 4);
    let mut committer = buffer.committer().unwrap();
    let smb = Smb::new(Arc::new(SharedMemory::anonymous(4 * 4096).unwrap()), 4096).unwrap();
    let chunks = (0..4_u16).map(|n| {
        let writer = 1 + n % 2;
        let source = taken(&smb, n.into(), 2, (n / 2).into(), &payload(&[vec![b'0' + n as u8; 3]]));
        (info(1, writer, (n / 2).into(), 1, 0), source)
    });
    let mut batch = Batch {
        memory: Some(smb.clone()),
        chunks: chunks.collect(),
        ended_writers: vec![(ProducerId(1), WriterId(1))],
        ..Batch::default()
    };
    committer.commit(&mut batch).unwrap();
    assert!(buffer.shard_stats().iter().all(|(stats, _)| stats.chunks_written == 2));
    let bodies: Vec<Vec<u8>> = read_all(&buffer).into_iter().map(|got| got.bytes).collect();
    assert_eq!(bodies, [b"000", b"111", b"222", b"333"]);
    let memory = Arc::downgrade(smb.memory());
    drop((batch, smb));
    assert!(memory.upgrade().is_none(), "the memory was dropped");
}

/// Patches are queued with the chunks of their batch, also where chunks alone would be queued by a
/// faster path.
#[test]
fn patches_wait_with_the_chunks_of_their_batch() {
    const WAITS_FOR_PATCHES: u8 = 4;
    let buffer = round_robin(1, 4);
    let mut committer = buffer.committer().unwrap();
    let smb = Smb::new(Arc::new(SharedMemory::anonymous(3 * 4096).unwrap()), 4096).unwrap();
    let mut commit = |id: u32, flags: u8, patches: Vec<PatchSet>| {
        let source = taken(&smb, id as usize, 2, id, &payload(&[b"....".to_vec()]));
        let chunks = vec![(info(1, 2, id, 1, flags), source)];
        let mut batch = Batch { memory: Some(smb.clone()), chunks, patches, ..Batch::default() };
        committer.commit(&mut batch).unwrap();
        assert!(batch.is_empty() && batch.memory.is_none());
    };
    // The second time, the committer knows the home.
    (0..2).for_each(|id| commit(id, 0, Vec::new()));
    let stopped = buffer.stop_shard(0);
    let patches = PatchSet {
        producer_id_trusted: ProducerId(1),
        writer_id: WriterId(2),
        chunk_id: ChunkId(2),
        patches: vec![Patch { offset_untrusted: 1, data: *b"done" }],
        other_patches_pending: false,
    };
    commit(2, WAITS_FOR_PATCHES, vec![patches]);
    drop(stopped);
    let bodies: Vec<Vec<u8>> = read_all(&buffer).into_iter().map(|got| got.bytes).collect();
    assert_eq!(bodies, [b"....", b"....", b"done"]);
    assert_eq!(buffer.stats().patches_succeeded, 1);
}
