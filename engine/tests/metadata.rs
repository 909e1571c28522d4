//! Memory beside the payload, relative to the buffer: for ordinary chunks, and at most, for those
//! of hostile writers.
//!
//! `cargo test -p watershed-engine --test metadata -- --nocapture` prints the shares.

mod support;

use std::sync::Arc;
use support::{Buffer, Chunk, chunk};
use watershed_engine::mem::Region;
use watershed_engine::{ChunkId, FillPolicy, HugePages, ProducerId, Shard, WriterId};

const RING: usize = 2 << 20;
/// Chunks of 16 bytes, the smallest, that fill the ring.
const LAP: u32 = (RING / 16) as u32;
/// How often the memory is measured.
const LOOK: u32 = 1000;

#[test]
fn metadata_of_ordinary_chunks_is_about_two_percent() {
    let mut buffer = Buffer::ring(16 << 20);
    let ordinary = (0..10).fold(chunk(1, 0), |chunk, _| chunk.whole(&"x".repeat(265)));
    let mut id = 0;
    while buffer.0.stats().write_wrap_count < 3 {
        commit(&mut buffer, &ordinary, 1, id);
        id += 1;
    }
    let share = buffer.0.metadata_bytes() as f64 / (16 << 20) as f64;
    println!("metadata of ordinary chunks: {:.2}%", share * 100.0);
    assert!(share < 0.025, "{share}");
}

fn commit(buffer: &mut Buffer, chunk: &Chunk, writer: u16, id: u32) {
    let mut info = chunk.info;
    (info.writer_id, info.chunk_id) = (WriterId(writer), ChunkId(id));
    buffer.0.copy_chunk_untrusted(&info, chunk.bytes.as_slice()).expect("a proper call");
}

/// The most memory beside the payload while `step` is called with 0, 1 and so on, `steps` times; in
/// hundredths of the ring.
fn most_kept(what: &str, steps: u32, mut step: impl FnMut(&mut Buffer, u32)) -> f64 {
    let mut buffer = Buffer::ring(RING);
    let mut most = 0;
    for i in 0..steps {
        step(&mut buffer, i);
        if i % LOOK == 0 || i + 1 == steps {
            most = most.max(buffer.0.metadata_bytes());
        }
    }
    buffer.checked();
    let share = most as f64 * 100.0 / RING as f64;
    println!("metadata of {what}: {share:.1}%");
    share
}

/// A chunk with the most sizes that are kept.
fn densest_sized() -> Chunk {
    (0..100).fold(chunk(1, 0), |chunk, _| chunk.whole(&"x".repeat(31)))
}

/// Never more than one and a half times the buffer: a record of 16 bytes has 18, and an entry of 4
/// in a queue with a little spare room.
const MOST: f64 = 150.0;

#[test]
fn metadata_of_any_one_kind_of_chunk_is_bounded() {
    let scraped = chunk(1, 0).scraped(0);
    let dense = (0..100).fold(chunk(1, 0), |chunk, _| chunk.whole(""));
    for (what, kind, most) in [
        ("empty chunks", chunk(1, 0), 139.5),
        ("chunks that were scraped empty", scraped, 139.5),
        ("chunks with nothing but a malformed fragment", chunk(1, 0).raw(&[9]).declares(1), 139.5),
        ("chunks of one byte", chunk(1, 0).whole(""), 71.0),
        ("chunks of which the least sizes are kept", chunk(1, 0).whole(&"x".repeat(31)), 60.0),
        ("dense chunks", dense.clone(), 20.0),
        ("dense chunks that are not full", dense.slack(40), 20.0),
        ("the densest chunks of which sizes are kept", densest_sized(), 20.0),
        ("chunks whose size takes two entries", chunk(1, 0).whole(&"x".repeat(4096)), 2.0),
    ] {
        let share = most_kept(what, 2 * LAP, |buffer, i| {
            if buffer.0.stats().write_wrap_count < 2 {
                commit(buffer, &kind, 1, i);
            }
        });
        assert!(share < most, "{what}: {share}");
    }
}

#[test]
fn metadata_of_small_records_that_were_read_is_bounded() {
    let share = most_kept("padding of 16 bytes", 2 * LAP, |buffer, i| {
        commit(buffer, &chunk(1, 0), 1, i);
        // They fill the ring; the last one is not complete and stays.
        if i % (LAP - 1) == 0 {
            commit(buffer, &chunk(1, 0).whole("a").scraped(20), 2, i);
            buffer.0.begin_read();
            while buffer.0.read_next().is_some() {}
        }
    });
    assert!(share < MOST, "{share}");
}

#[test]
fn metadata_of_small_chunks_among_which_are_some_with_sizes_is_bounded() {
    for (every, least) in [(1024, true), (1024, false), (37, true)] {
        let empty = chunk(1, 0);
        let sized = if least { chunk(1, 0).whole(&"x".repeat(31)) } else { densest_sized() };
        let what =
            format!("empty chunks, each {every}th has {} bytes of sizes", sized.info.num_fragments * 2);
        let share = most_kept(&what, 2 * LAP, |buffer, i| {
            commit(buffer, if i % every == 0 { &sized } else { &empty }, 1, i);
        });
        assert!(share < MOST, "{what}: {share}");
    }
}

/// Lists of sizes of dense chunks are not kept for blocks that need none.
#[test]
fn metadata_of_laps_of_sizes_and_laps_of_small_chunks_is_bounded() {
    let (sized, empty) = (densest_sized(), chunk(1, 0));
    let share = most_kept("turns of 1024 dense chunks and a ring of empty ones", 3 * LAP, |buffer, i| {
        let is_sized = i % (LAP + 1024) < 1024;
        commit(buffer, if is_sized { &sized } else { &empty }, 1, i);
    });
    assert!(share < MOST, "{share}");
}

/// A long queue of records gives its memory back, even if it never becomes empty.
#[test]
fn metadata_of_writers_that_fill_the_ring_one_after_the_other_is_bounded() {
    let mut ids = [0; 13];
    let share = most_kept("12 writers, one after the other", 13 * LAP / 2, |buffer, i| {
        let busy = i / (LAP / 2) + 1;
        // Every other one keeps a record or two.
        let writer = if i % 4096 < 12 { i % 4096 + 1 } else { busy };
        if writer <= busy && writer <= 12 {
            commit(buffer, &chunk(1, 0), writer as u16, ids[writer as usize]);
            ids[writer as usize] += 1;
        }
    });
    assert!(share < MOST, "{share}");
}

/// Queues of any length have little spare room, so it does not matter over how many writers the
/// records are spread; the writers themselves come on top.
#[test]
fn metadata_of_alternating_writers_is_bounded() {
    for writers in [30, 63, 130] {
        let share =
            most_kept(&format!("empty chunks of {writers} writers in turns"), 2 * LAP, |buffer, i| {
                commit(buffer, &chunk(1, 0), (i % writers) as u16 + 1, i / writers);
            });
        assert!(share < MOST, "{writers} writers: {share}");
    }
}

/// A shard keeps a ticket of 8 bytes for each record, too.
#[test]
fn metadata_of_a_shard_is_bounded() {
    let region = Arc::new(Region::map(RING, HugePages::No).expect("memory"));
    // SAFETY: nobody else has the region.
    let mut shard = unsafe { Shard::alone(region, FillPolicy::RingBuffer) };
    let mut most = 0;
    for i in 0..2 * LAP {
        let sized = chunk(1, i).whole(&"x".repeat(31));
        let empty = chunk(1, i);
        let next = if i % 1024 == 0 { sized } else { empty };
        shard.copy_chunk_untrusted(&next.info, next.bytes.as_slice(), i.into()).expect("a proper call");
        if i % LOOK == 0 {
            most = most.max(shard.metadata_bytes());
        }
    }
    let share = most as f64 * 100.0 / RING as f64;
    println!("metadata of a shard's empty chunks: {share:.1}%");
    assert!(share < MOST + 50.0, "{share}");
}

fn commit_with_extent(shard: &mut Shard, free: &mut Vec<u32>, chunk: &Chunk, ticket: u32) {
    if shard.needs_extent(chunk.bytes.len()) {
        let extent = free.pop().expect("most are read and given back");
        // SAFETY: it was not granted, or was given back.
        unsafe { shard.grant(extent) };
    }
    shard.copy_chunk_untrusted(&chunk.info, chunk.bytes.as_slice(), ticket.into()).expect("a proper call");
}

/// Extents come and go behind records that wait for their patches.
#[test]
fn metadata_of_a_shard_that_is_read_behind_records_that_wait_is_bounded() {
    const EXTENT: usize = 128 << 10;
    const WAITING: u32 = 5;
    let region = Arc::new(Region::map(RING, HugePages::No).expect("memory"));
    let mut shard = Shard::new(region, EXTENT, 1);
    let mut free: Vec<u32> = (0..(RING / EXTENT) as u32).collect();
    let (steps, every) = (WAITING * LAP / 2, LAP / 2);
    let (mut kept, mut read) = (Vec::new(), 0);
    for i in 0..steps {
        let waiting = chunk(100 + (i / every) as u16, 0).whole("a").begin("b").needs_patching();
        let next = if i % every == 0 { waiting } else { chunk(2, i - i / every - 1).whole("c") };
        commit_with_extent(&mut shard, &mut free, &next, i);
        if i % LOOK == 0 || i + 1 == steps {
            shard.begin_read();
            while let Some((ticket, packet)) = shard.read_next(u64::MAX) {
                assert!(ticket <= i.into() && packet.loss.is_empty(), "at {ticket}");
                read += 1;
            }
            free.extend(shard.take_emptied());
            kept.push(shard.metadata_bytes());
        }
    }
    shard.check().expect("nothing is wrong");
    assert_eq!(read, steps);
    for writer in 100..100 + WAITING as u16 {
        assert!(shard.try_patch(ProducerId(1), WriterId(writer), ChunkId(0), &[], false));
        let end = chunk(writer, 1).goes_on("d");
        commit_with_extent(&mut shard, &mut free, &end, steps);
    }
    shard.begin_read();
    for waiting in 0..WAITING {
        let (ticket, packet) = shard.read_next(u64::MAX).expect("it waited");
        assert_eq!((ticket, packet.slices()), ((waiting * every).into(), &[&b"b"[..], b"d"][..]));
    }
    assert!(shard.read_next(u64::MAX).is_none());
    shard.check().expect("nothing is wrong");
    let ledger = shard.ledger();
    assert!(ledger.is_balanced() && ledger.listed.chunks == 0, "{ledger:?}");
    let (first, last) = (kept[kept.len() / 3], kept[kept.len() - 1]);
    println!("metadata of a shard that is read behind records that wait: {first}, later {last} bytes");
    assert!(last < first * 2, "{first} {last}");
}
