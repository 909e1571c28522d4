//! Commits to a shard in the middle of a read pass.

mod support;

use std::sync::Arc;

use support::{Chunk, chunk};
use watershed_engine::mem::Region;
use watershed_engine::{FillPolicy, HugePages, Shard};

fn shard() -> Shard {
    let region = Region::map(4096, HugePages::No).unwrap();
    // SAFETY: nobody else has the region.
    unsafe { Shard::alone(Arc::new(region), FillPolicy::RingBuffer) }
}

fn commit(shard: &mut Shard, chunks: Vec<(u64, Chunk)>) {
    for (ticket, chunk) in &chunks {
        assert!(!shard.needs_extent(chunk.bytes.len()));
        shard.copy_chunk_untrusted(&chunk.info, &chunk.bytes[..], *ticket).unwrap();
    }
    shard.check().unwrap();
}

fn read(shard: &mut Shard, limit: usize) -> Vec<String> {
    let mut all = Vec::new();
    while all.len() < limit {
        let Some((ticket, packet)) = shard.read_next(u64::MAX) else { break };
        all.push(format!("{ticket} {}", String::from_utf8_lossy(&packet.to_vec())));
    }
    shard.check().unwrap();
    all
}

/// The record that the pass has reached gets more fragments, and its successor is committed.
#[test]
fn a_pass_sees_what_is_added_to_the_record_that_it_has_reached() {
    let mut shard = shard();
    let seen = chunk(1, 0).whole("a").whole("b");
    commit(&mut shard, vec![(0, seen.clone().scraped(64)), (1, chunk(2, 0).whole("z"))]);
    shard.begin_read();
    assert_eq!(read(&mut shard, 1), ["0 a"]);
    let whole = seen.whole("c").whole("d");
    commit(&mut shard, vec![(2, whole), (3, chunk(1, 1).whole("e"))]);
    assert_eq!(read(&mut shard, 9), ["0 b", "0 c", "0 d", "1 z", "3 e"]);
    assert_eq!(shard.stats().chunks_rewritten, 1);
}

/// The record that the pass has reached is overwritten.
#[test]
fn a_pass_goes_on_behind_what_is_overwritten() {
    let mut shard = shard();
    let packets =
        |id: u32| chunk(1, id).whole(&format!("{id}a")).whole(&format!("{id}b")).whole(&"#".repeat(900));
    commit(&mut shard, (0..4).map(|id| (id, packets(id as u32))).collect());
    shard.begin_read();
    assert_eq!(read(&mut shard, 1), ["0 0a"]);
    commit(&mut shard, (4..6).map(|id| (id, packets(id as u32))).collect());
    let rest: Vec<_> = read(&mut shard, 99).into_iter().filter(|packet| packet.len() < 9).collect();
    let expected = (2..6).flat_map(|id| [format!("{id} {id}a"), format!("{id} {id}b")]);
    assert!(rest.iter().eq(expected.collect::<Vec<_>>().iter()), "{rest:?}");
}

#[test]
fn a_copy_takes_no_commits() {
    let mut shard = shard();
    commit(&mut shard, vec![(0, chunk(1, 0).whole("a"))]);
    let region = Region::map(4096, HugePages::No).unwrap();
    // SAFETY: nobody else has the region; what is filled stays zero, which is never read.
    let mut copy = unsafe { shard.copy_structure(Arc::new(region)) };
    let late = chunk(1, 1).whole("b");
    assert!(copy.copy_chunk_untrusted(&late.info, &late.bytes[..], 1).is_err());
}
