//! Contiguous runs of ordinary chunks of one writer, which the fast cursor reads
//! (`engine/src/read/fast`): the same packets, losses and counts as record by record. Fragments are
//! so long that their sizes are kept.

mod support;

use std::sync::Arc;
use support::{Buffer, Chunk, chunk};
use watershed_engine::{FillPolicy, HugePages, LossReasons, ProducerId, Shard, WriterId, mem::Region};

/// A packet, and how many chunks of its writer are used up with it.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Expected {
    slices: Vec<String>,
    chunks_read: u64,
}

/// `chunks` chunks of a writer, and their packets: two whole ones, then one that goes on in one to
/// five further chunks, and so on.
fn stream(writer: u16, chunks: u32) -> (Vec<Chunk>, Vec<Expected>) {
    let (mut list, mut packets) = (vec![chunk(writer, 0)], Vec::new());
    let mut random = u32::from(writer);
    let mut body = || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        format!("{random:0>width$}", width = 60 + random as usize % 150)
    };
    while list.len() < chunks as usize {
        let mut last = list.pop().unwrap();
        for _ in 0..2 {
            let whole = body();
            last = last.whole(&whole);
            packets.push(Expected { slices: vec![whole], chunks_read: list.len() as u64 });
        }
        let parts: Vec<String> = (0..2 + packets.len() / 3 % 5).map(|_| body()).collect();
        let (first, later) = parts.split_first().unwrap();
        let (end, middle) = later.split_last().unwrap();
        list.push(last.begin(first));
        for part in middle {
            list.push(chunk(writer, list.len() as u32).middle(part));
        }
        let chunks_read = list.len() as u64;
        list.push(chunk(writer, list.len() as u32).goes_on(end));
        packets.push(Expected { slices: parts, chunks_read });
    }
    let last = list.pop().unwrap();
    let whole = body();
    list.push(last.whole(&whole));
    packets.push(Expected { slices: vec![whole], chunks_read: list.len() as u64 });
    (list, packets)
}

/// Reads at most `limit` packets, each of which must be the next that is expected.
fn read(buffer: &mut Buffer, expected: &mut std::slice::Iter<'_, Expected>, limit: usize) {
    buffer.0.begin_read();
    for _ in 0..limit {
        let Some(packet) = buffer.0.read_next() else { return };
        let slices = packet.slices().iter().map(|slice| String::from_utf8_lossy(slice).into_owned());
        let (slices, loss) = (slices.collect(), packet.loss);
        let got = Expected { slices, chunks_read: buffer.0.stats().chunks_read };
        assert_eq!((Some(&got), loss), (expected.next(), LossReasons::NONE));
        assert!(buffer.0.ledger().is_balanced());
    }
}

#[test]
fn a_stream_over_many_chunks_comes_whole() {
    let (chunks, packets) = stream(1, 3000);
    let mut buffer = Buffer::ring(8 << 20);
    for chunk in &chunks {
        // Without the test of all invariants after each.
        buffer.0.copy_chunk_untrusted(&chunk.info, &chunk.bytes.as_slice()).unwrap();
    }
    let mut expected = packets.iter();
    read(&mut buffer, &mut expected, usize::MAX);
    assert_eq!(expected.next(), None);
    let (stats, ledger) = (buffer.0.stats(), buffer.0.ledger());
    assert_eq!((stats.bytes_read, ledger.read.chunks), (stats.bytes_written, chunks.len() as u64));
    assert_eq!(stats.readaheads_succeeded as usize, packets.len() / 3);
    buffer.checked();
}

#[test]
fn passes_may_end_anywhere_and_chunks_come_between() {
    let (chunks, packets) = stream(1, 400);
    for limit in [1, 2, 3, 5, 8, 40] {
        let (mut buffer, mut expected) = (Buffer::ring(1 << 20), packets.iter());
        for some in chunks.chunks(50) {
            some.iter().for_each(|chunk| _ = buffer.commit(chunk.clone()));
            for _ in 0..3 {
                read(&mut buffer, &mut expected, limit);
                buffer.checked();
            }
        }
        while expected.len() > 0 {
            read(&mut buffer, &mut expected, limit);
        }
        buffer.checked();
    }
}

#[test]
fn every_query_sees_what_was_read() {
    let (chunks, packets) = stream(1, 600);
    for limit in (1..packets.len() - 1).step_by(7) {
        let (mut buffer, mut expected) = (Buffer::ring(1 << 18), packets.iter());
        for chunk in &chunks {
            buffer.0.copy_chunk_untrusted(&chunk.info, &chunk.bytes.as_slice()).unwrap();
        }
        read(&mut buffer, &mut expected, limit);
        let last = &packets[limit - 1];
        let (stats, ledger) = (buffer.0.stats(), buffer.0.ledger());
        // All chunks before that in which the packet begins are erased.
        assert_eq!(ledger.read.chunks, last.chunks_read + 1 - last.slices.len() as u64);
        let mut copy = buffer.copy();
        assert_eq!(copy.0.ledger(), ledger);
        // These two flush what the cursor has deferred.
        assert!(copy.0.ring() == buffer.0.ring());
        buffer.checked();
        assert_eq!((buffer.0.stats(), buffer.0.ledger()), (stats, ledger));
        copy.0.begin_read();
        for next in expected {
            for (buffer, which) in [(&mut buffer, "the buffer's"), (&mut copy, "the copy's")] {
                let packet = buffer.0.read_next().unwrap();
                let same =
                    packet.slices().iter().zip(&next.slices).all(|(got, wanted)| *got == wanted.as_bytes());
                assert!(same && packet.slices().len() == next.slices.len(), "{which} after {limit}");
            }
        }
        assert!(buffer.0.read_next().is_none() && copy.0.read_next().is_none());
    }
}

#[test]
fn a_run_ends_where_the_ring_does() {
    let (chunks, packets) = stream(1, 1000);
    let (mut buffer, mut expected) = (Buffer::ring(32768), packets.iter());
    for some in chunks.chunks(50) {
        some.iter().for_each(|chunk| _ = buffer.commit(chunk.clone()));
        read(&mut buffer, &mut expected, usize::MAX);
    }
    let stats = buffer.0.stats();
    assert_eq!((expected.next(), stats.bytes_read), (None, stats.bytes_written));
    assert!(stats.write_wrap_count > 5);
}

#[test]
fn whole_packets_are_counted_with_their_chunks() {
    let mut buffer = Buffer::ring(65536);
    for id in 0..100 {
        buffer.commit(chunk(1, id).whole(&long("a")).whole(&long("b")));
    }
    assert_eq!(buffer.read(50).len(), 50);
    let stats = buffer.0.stats();
    assert_eq!((stats.chunks_read, stats.bytes_read * 4), (25, stats.bytes_written));
}

/// A body of which the size is kept.
fn long(text: &str) -> String {
    text.repeat(64)
}

#[test]
fn what_was_lost_comes_with_a_packet_over_chunks() {
    let mut buffer = Buffer::ring(65536);
    buffer.commit(chunk(1, 0).whole(&long("a"))).reads(&["<64>"]);
    buffer
        .commit(chunk(1, 2).begin(&long("b")))
        .commit(chunk(1, 3).middle(&long("c")))
        .commit(chunk(1, 4).goes_on(&long("d")).whole(&long("e")).begin(&long("f")))
        .commit(chunk(1, 5).goes_on(&long("g")).whole(&long("h")));
    buffer.0.begin_read();
    let next = |buffer: &mut Buffer| {
        let packet = buffer.0.read_next().unwrap();
        (packet.slices().len(), packet.loss)
    };
    assert_eq!(next(&mut buffer), (3, LossReasons(LossReasons::PRESENT.0 | LossReasons::READ_GAP.0)));
    assert_eq!(next(&mut buffer), (1, LossReasons::NONE));
    buffer.0.return_loss(ProducerId(1), WriterId(1), LossReasons::PRESENT);
    assert_eq!(next(&mut buffer), (2, LossReasons::PRESENT));
    assert_eq!(next(&mut buffer), (1, LossReasons::NONE));
    buffer.checked();
}

#[test]
fn a_chunk_that_a_packet_has_used_up_is_known_by_its_length() {
    let mut buffer = Buffer::ring(65536);
    let middle = chunk(1, 1).middle(&long("c"));
    buffer
        .commit(chunk(1, 0).whole(&long("a")).whole(&long("a")).begin(&long("b")))
        .commit(middle.clone())
        .commit(chunk(1, 2).goes_on(&long("d")).whole(&long("e")).begin(&long("f")))
        .reads(&["<64>", "<64>", "<64>+<64>+<64>", "<64>"]);
    let before = buffer.0.ledger();
    assert_eq!((before.read.chunks, before.duplicate_commits), (2, 0));
    buffer.commit(middle);
    assert_eq!(buffer.0.ledger().duplicate_commits, 1);
}

#[test]
fn a_run_ends_where_a_patch_is_missing() {
    let mut buffer = Buffer::ring(65536);
    buffer
        .commit(chunk(1, 0).whole(&long("a")).begin(&long("b")))
        .commit(chunk(1, 1).goes_on(&long("c")).whole(&long("d")).begin(&long("e")).needs_patching())
        .commit(chunk(1, 2).goes_on(&long("f")).whole(&long("g")))
        .reads(&["<64>", "<64>+<64>", "<64>"])
        .reads(&[]);
    assert!(buffer.patch(1, 1, 140, "done", false));
    buffer.reads(&["<64>+<64>", "<64>"]);
}

#[test]
fn a_part_without_a_body_is_skipped() {
    Buffer::ring(65536)
        .commit(chunk(1, 0).whole(&long("a")).begin(&long("b")))
        .commit(chunk(1, 1).middle(""))
        .commit(chunk(1, 2).goes_on(&long("c")).begin(""))
        .commit(chunk(1, 3).goes_on(&long("d")).whole(&long("e")))
        .reads(&["<64>", "<64>+<64>", "<64>", "<64>"]);
}

#[test]
fn a_cut_within_a_run_ends_the_pass() {
    let chunks: Vec<_> =
        (0..8).map(|id| chunk(1, id).whole(&"a".repeat(90)).whole(&"b".repeat(300))).collect();
    for cut in 1..=9 {
        let region = Arc::new(Region::map(1 << 20, HugePages::Advise).unwrap());
        // SAFETY: nobody else has the region.
        let mut shard = unsafe { Shard::alone(region, FillPolicy::RingBuffer) };
        for (ticket, chunk) in (1..).zip(&chunks) {
            shard.copy_chunk_untrusted(&chunk.info, chunk.bytes.as_slice(), ticket).unwrap();
        }
        let read = |shard: &mut Shard, cut| {
            shard.begin_read();
            std::iter::from_fn(|| shard.read_next(cut).map(|(ticket, _)| ticket)).collect::<Vec<_>>()
        };
        let tickets = |range: std::ops::Range<u64>| range.flat_map(|ticket| [ticket; 2]).collect::<Vec<_>>();
        assert_eq!(read(&mut shard, cut), tickets(1..cut));
        assert_eq!(read(&mut shard, cut), []);
        assert_eq!(read(&mut shard, 100), tickets(cut..9));
        assert!(shard.ledger().is_balanced());
    }
}

#[test]
fn packets_over_any_number_of_chunks_come_whole() {
    for middle in 0..40 {
        let mut buffer = Buffer::ring(1 << 20);
        let part = |n: u32| format!("{n:0>120}");
        buffer.commit(chunk(1, 0).whole(&part(1000)).begin(&part(0)));
        for id in 1..=middle {
            buffer.commit(chunk(1, id).middle(&part(id)));
        }
        buffer.commit(chunk(1, middle + 1).goes_on(&part(middle + 1)));
        buffer.0.begin_read();
        let slices = |buffer: &mut Buffer| buffer.0.read_next().map(|packet| packet.slices().len());
        assert_eq!(slices(&mut buffer), Some(1));
        assert_eq!(slices(&mut buffer), Some(middle as usize + 2));
        assert_eq!(slices(&mut buffer), None);
    }
}

#[test]
fn a_commit_ends_a_pass_within_a_run() {
    for read in 1..=6 {
        let mut buffer = Buffer::ring(65536);
        let chunk_of = |id| chunk(1, id).whole(&long("a")).whole(&long("b"));
        (0..4).for_each(|id| _ = buffer.commit(chunk_of(id)));
        buffer.0.begin_read();
        (0..read).for_each(|_| _ = buffer.0.read_next().unwrap());
        buffer.commit(chunk_of(4));
        assert!(buffer.0.read_next().is_none(), "after {read} packets");
        buffer.checked();
        assert_eq!(buffer.read(100).len(), 10 - read);
    }
}

#[test]
fn loss_that_is_given_back_within_a_run_comes_with_the_next_packet() {
    let lost = LossReasons(LossReasons::PRESENT.0 | LossReasons::OVERWRITE.0);
    // Runs of `length` chunks of a writer between chunks of another, and packets over the end
    // of one chunk and the beginning of the next.
    for (length, whole) in (1..=4).flat_map(|length| [(length, 0), (length, 1)]) {
        let chunk_of = |id: u32| {
            let start = if id == 0 { chunk(1, 0) } else { chunk(1, id).goes_on(&long("b")) };
            let filled = (0..whole).fold(start, |chunk, _| chunk.whole(&long("c")));
            if id == 11 { filled } else { filled.begin(&long("a")) }
        };
        for read in 0..11 {
            let mut buffer = Buffer::ring(65536);
            for id in 0..12 {
                buffer.commit(chunk_of(id));
                if id % length == length - 1 {
                    buffer.commit(chunk(2, id / length).whole(&long("other")));
                }
            }
            let next = |buffer: &mut Buffer| {
                std::iter::from_fn(|| buffer.0.read_next().map(|packet| (packet.writer_id, packet.loss)))
                    .find(|(writer, _)| *writer == WriterId(1))
                    .map(|(_, loss)| loss)
            };
            for read in [read / 2, read - read / 2] {
                buffer.0.begin_read();
                (0..read).for_each(|_| _ = next(&mut buffer).unwrap());
            }
            buffer.0.return_loss(ProducerId(1), WriterId(1), lost);
            let said = format!("after {read} packets, {length} in a row");
            assert_eq!(next(&mut buffer), Some(lost), "{said}");
            assert!(std::iter::from_fn(|| next(&mut buffer)).all(LossReasons::is_empty), "{said}");
        }
    }
}
