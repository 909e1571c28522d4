//! A shard that takes another one's place: what was read there is not read again, and what was not
//! can still come.

mod support;

use std::sync::Arc;

use support::{Chunk, chunk};
use watershed_engine::{ChunkId, FillPolicy, HugePages, Patch, ProducerId, Shard, WriterId, mem::Region};

fn empty() -> Shard {
    let region = Arc::new(Region::map(1 << 20, HugePages::No).unwrap());
    // SAFETY: nobody else knows the region.
    unsafe { Shard::alone(region, FillPolicy::RingBuffer) }
}

fn commit(shard: &mut Shard, chunks: &[Chunk]) {
    for chunk in chunks {
        let ticket = shard.newest_ticket() + 1;
        shard.copy_chunk_untrusted(&chunk.info, chunk.bytes.as_slice(), ticket).unwrap();
        shard.check().unwrap();
    }
}

fn read(shard: &mut Shard) -> Vec<String> {
    shard.begin_read();
    let next = || {
        shard.read_next(u64::MAX).map(|(_, packet)| {
            let loss = if packet.loss.0 == 0 { String::new() } else { format!("!{}", packet.loss.0) };
            String::from_utf8_lossy(&packet.to_vec()).into_owned() + &loss
        })
    };
    std::iter::from_fn(next).collect()
}

/// What a second shard reads of `after`, in the place of one with `before`, whether that was read
/// or not.
#[track_caller]
fn reads(before: &[Chunk], after: &[Chunk], expected: &[&str]) {
    for is_read in [false, true] {
        let [mut first, mut second] = [empty(), empty()];
        commit(&mut first, before);
        if is_read {
            read(&mut first);
        }
        let remembered = second.remember_from(&mut first).count();
        second.check().unwrap();
        assert_eq!((second.writer_stats().len(), second.stats().chunks_written), (0, 0));
        commit(&mut second, after);
        assert_eq!(read(&mut second), expected, "{remembered} remembered, read: {is_read}");
    }
}

#[test]
fn a_chunk_that_is_completed_later_gives_its_rest() {
    let scraped = chunk(1, 0).whole("a").whole("b").scraped(64);
    reads(std::slice::from_ref(&scraped), &[chunk(1, 0).whole("a").whole("b").whole("c")], &["c"]);
    // Scraped once more, then completed.
    let longer = chunk(1, 0).whole("a").whole("b").whole("c");
    reads(
        &[scraped],
        &[longer.clone().scraped(64), longer.whole("d"), chunk(1, 1).whole("e")],
        &["c", "d", "e"],
    );
    // Nothing of it was there yet.
    reads(&[chunk(1, 0).scraped(64)], &[chunk(1, 0).whole("a")], &["a"]);
}

#[test]
fn a_chunk_that_was_scraped_whole_does_not_come_again() {
    let whole = chunk(1, 4).whole("a");
    reads(std::slice::from_ref(&whole), std::slice::from_ref(&whole), &[]);
    reads(std::slice::from_ref(&whole), &[whole.clone(), chunk(1, 5).whole("b")], &["b"]);
    // One that never came is missing.
    reads(&[whole], &[chunk(1, 6).whole("b")], &["b!3"]);
}

/// A reader cannot go past a chunk that its writer is still in, or has to patch: what is behind it
/// is read where it comes again.
#[test]
fn what_no_reader_could_come_to_is_read_when_it_comes_again() {
    let behind = chunk(1, 1).whole("c");
    let scraped = chunk(1, 0).whole("a").scraped(64);
    reads(&[scraped, behind.clone()], &[chunk(1, 0).whole("a").whole("b"), behind.clone()], &["b", "c"]);
    let unpatched = chunk(1, 0).whole("a").begin("b").needs_patching();
    let behind = chunk(1, 1).goes_on("b").whole("c");
    reads(&[unpatched.clone(), behind.clone()], &[unpatched, behind], &["c!9"]);
}

#[test]
fn each_writer_is_remembered_by_itself_and_none_that_has_ended() {
    let (first, second) = (chunk(1, 7).whole("a"), chunk(2, 9).whole("x").scraped(64));
    reads(
        &[first.clone(), second],
        &[first, chunk(2, 9).whole("x").whole("y"), chunk(1, 8).whole("b")],
        &["y", "b"],
    );
    let [mut old, mut new] = [empty(), empty()];
    let [kept, ended, gone] = [chunk(1, 7), chunk(2, 7), chunk(1, 7).of_producer(2, 8)];
    commit(&mut old, &[kept.whole("a"), ended.whole("b"), gone.whole("c")]);
    old.end_writer(ProducerId(1), WriterId(2));
    old.end_producer(ProducerId(2));
    assert_eq!(new.remember_from(&mut old).collect::<Vec<_>>(), [(ProducerId(1), WriterId(1))]);
    commit(&mut new, &[chunk(2, 7).whole("other")]);
    assert_eq!(read(&mut new), ["other"]);
}

/// The record has gone, and the sequence is remembered there, too.
#[test]
fn a_sequence_without_records_is_remembered_from_there() {
    let [mut first, mut second, mut third] = [empty(), empty(), empty()];
    commit(&mut first, &[chunk(1, 0).whole("a").scraped(64)]);
    assert_eq!(second.remember_from(&mut first).count(), 1);
    assert_eq!(third.remember_from(&mut second).count(), 1);
    commit(&mut third, &[chunk(1, 0).whole("a").whole("b")]);
    assert_eq!(read(&mut third), ["b"]);
    assert_eq!(read(&mut first), ["a"], "the first one keeps what it has");
}

/// A patch is written where it belongs in the payload, of which the first part is not read.
#[test]
fn what_is_patched_behind_the_part_that_was_read_stays_in_its_place() {
    let [mut first, mut second] = [empty(), empty()];
    commit(&mut first, &[chunk(1, 0).whole("aa").scraped(64)]);
    second.remember_from(&mut first).for_each(drop);
    commit(&mut second, &[chunk(1, 0).whole("aa").whole("....b").needs_patching()]);
    let patch = Patch { offset_untrusted: 4, data: *b"1234" };
    assert!(second.try_patch(ProducerId(1), WriterId(1), ChunkId(0), &[patch], false));
    assert_eq!(read(&mut second), ["1234b"]);
}

/// Who comes late changes nothing of the writers that are known by then.
#[test]
fn a_writer_that_is_known_already_stays_as_it_is() {
    let [mut first, mut second] = [empty(), empty()];
    commit(&mut first, &[chunk(1, 5).whole("a").scraped(64), chunk(2, 5).whole("x").scraped(64)]);
    commit(&mut second, &[chunk(1, 5).whole("a").whole("b").scraped(64)]);
    for _ in 0..2 {
        second.remember_from(&mut first).for_each(drop);
        second.check().unwrap();
    }
    let completed = chunk(1, 5).whole("a").whole("b").whole("c");
    commit(&mut second, &[completed, chunk(2, 5).whole("x").whole("y")]);
    assert_eq!(read(&mut second), ["a", "b", "c", "y"]);
}
