//! What is kept under eviction: what one ring of the size keeps, except for two extents for each
//! shard; and without a gap all of the newest part of it.

mod common;

use std::collections::BTreeSet;

use common::{Random, drain, info, payload, write_packet};
use watershed_engine::{BufferConfig, TraceBuffer};
use watershed_shards::{ShardedBuffer, ShardedConfig};

const SIZE_BYTES: usize = 16 << 20;
const WRITERS: usize = 24;

/// Commits numbered packets of the writers that `choose` returns, into one ring and into a buffer
/// of several shards.
fn compare(num_shards: usize, name: &str, mut choose: impl FnMut(&mut Random, u64) -> usize) {
    let config = ShardedConfig { num_shards: Some(num_shards), ..ShardedConfig::ring(SIZE_BYTES) };
    let sharded = ShardedBuffer::create(config).unwrap();
    let layout = sharded.report().layout;
    assert_eq!(layout.num_shards, num_shards);
    let mut ring = TraceBuffer::create(&BufferConfig::ring(SIZE_BYTES)).unwrap();
    let mut committer = sharded.committer().unwrap();
    let mut random = Random(num_shards as u64);
    let mut next_ids = [0; WRITERS];
    let mut sizes: Vec<usize> = Vec::new();
    let mut total = 0;
    while total < 3 * SIZE_BYTES {
        let number = sizes.len() as u64;
        let writer = choose(&mut random, number);
        let mut body = number.to_le_bytes().to_vec();
        body.resize(100 + random.below(3900) as usize, 0);
        let bytes = payload(&[body]);
        let chunk = info(1, 1 + writer as u16, next_ids[writer], 1, 0);
        next_ids[writer] += 1;
        committer.set_cpu(Some(writer));
        committer.commit_chunk(&chunk, &bytes).unwrap();
        ring.copy_chunk_untrusted(&chunk, bytes.as_slice()).unwrap();
        sizes.push((16 + bytes.len()).next_multiple_of(16));
        total += sizes[sizes.len() - 1];
    }
    let number_of = |bytes: &[u8]| u64::from_le_bytes(bytes[..8].try_into().unwrap());
    let read: Vec<u64> =
        drain(&mut sharded.read_pass(write_packet)).iter().map(|got| number_of(&got.bytes)).collect();
    assert!(read.is_sorted(), "{name}, {num_shards} shards: in the order of commits");
    let ours: BTreeSet<u64> = read.into_iter().collect();
    let mut theirs = BTreeSet::new();
    ring.begin_read();
    while let Some(packet) = ring.read_next() {
        theirs.insert(number_of(&packet.to_vec()));
    }
    let bytes_of = |numbers: &mut dyn Iterator<Item = &u64>| -> usize {
        numbers.map(|&number| sizes[number as usize]).sum()
    };
    let expected = (0..sizes.len() as u64).rev();
    let newest = ours.iter().rev().zip(expected).take_while(|(kept, expected)| *kept == expected);
    let whole = bytes_of(&mut newest.map(|(kept, _)| kept)) as f64 / bytes_of(&mut theirs.iter()) as f64;
    assert!(whole > 0.7, "{name}, {num_shards} shards: all of the newest {whole:.2} of the ring's bytes");
    let missing = bytes_of(&mut theirs.difference(&ours));
    let more = bytes_of(&mut ours.difference(&theirs));
    let bound = 2 * num_shards * layout.extent_bytes;
    assert!(
        missing <= bound,
        "{name}, {num_shards} shards: {missing} bytes less than one ring keeps, bound {bound}"
    );
    assert!(
        more <= bound,
        "{name}, {num_shards} shards: {more} bytes that one ring has evicted, bound {bound}"
    );
    assert!(sharded.ledger().is_balanced());
}

#[test]
fn what_is_kept_differs_from_one_ring_by_two_extents_for_each_shard_at_most() {
    for num_shards in [2, 3, 8, 16] {
        compare(num_shards, "uniform", |random, _| random.below(WRITERS as u64) as usize);
        compare(num_shards, "one writer makes 95%", |random, _| match random.below(100) {
            ..95 => 0,
            _ => 1 + random.below(WRITERS as u64 - 1) as usize,
        });
        compare(num_shards, "one after the other", |_, number| (number / 400) as usize % WRITERS);
        compare(num_shards, "one writer stops early", |random, number| match number {
            ..500 => WRITERS - 1,
            _ => random.below(WRITERS as u64 - 1) as usize,
        });
    }
}
