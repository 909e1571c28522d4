//! One behaviour each, as a chain of steps.

mod support;

use support::{Buffer, chunk};
use watershed_engine::{
    BufferConfig, ChunkFlags, ChunkId, Patch, ProducerId, Refused, TraceBuffer, WriterId,
};

#[test]
fn packets_of_a_chunk_come_out_in_order_and_once() {
    Buffer::ring(4096).commit(chunk(1, 0).whole("a").whole("b")).reads(&["a", "b"]).reads(&[]);
}

#[test]
fn sequences_come_in_the_order_of_their_chunks() {
    Buffer::ring(4096)
        .commit(chunk(1, 0).whole("a").begin("b"))
        .commit(chunk(2, 0).whole("x"))
        .commit(chunk(1, 1).goes_on("c").whole("d"))
        .commit(chunk(2, 1).whole("y"))
        .reads(&["a", "b+c", "2:x", "d", "2:y"]);
}

#[test]
fn a_pass_may_stop_anywhere_and_the_next_goes_on() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a").whole("b").whole("c"));
    assert_eq!(buffer.read(1), ["a"]);
    assert_eq!(buffer.read(1), ["b"]);
    buffer.reads(&["c"]);
}

#[test]
fn packets_of_a_pass_may_be_held_together() {
    let mut buffer = Buffer::ring(65536);
    for id in 0..200 {
        buffer.commit(chunk(1, 2 * id).begin("ab")).commit(chunk(1, 2 * id + 1).goes_on("cd").whole("e"));
    }
    let packets: Vec<_> = buffer.0.read_pass().collect();
    assert_eq!(packets.len(), 400);
    for pair in packets.chunks(2) {
        assert_eq!((pair[0].to_vec(), pair[1].to_vec()), (b"abcd".to_vec(), b"e".to_vec()));
        assert_eq!((pair[0].slices().len(), pair[0].size_bytes()), (2, 4));
    }
}

#[test]
fn a_write_ends_the_pass() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a").whole("b"));
    assert!(buffer.0.read_next().is_none(), "no pass was begun");
    assert_eq!(buffer.read(1), ["a"]);
    buffer.commit(chunk(1, 1).whole("c"));
    assert!(buffer.0.read_next().is_none());
    buffer.reads(&["b", "c"]);
}

#[test]
fn an_empty_fragment_is_no_packet() {
    Buffer::ring(4096).commit(chunk(1, 0).whole("").whole("a").whole("")).reads(&["a"]);
}

#[test]
fn an_empty_chunk_is_booked_as_empty() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0)).commit(chunk(1, 1).whole("a")).reads(&["a"]);
    assert_eq!((buffer.0.ledger().empty.chunks, buffer.0.stats().chunks_read), (1, 1));
}

#[test]
fn ids_wrap_around() {
    Buffer::ring(4096)
        .commit(chunk(1, u32::MAX).whole("a"))
        .commit(chunk(1, 0).whole("b"))
        .reads(&["a", "b"])
        .commit(chunk(1, 1).whole("c"))
        .reads(&["c"]);
}

#[test]
fn chunks_out_of_order_are_put_in_order() {
    let mut buffer = Buffer::ring(4096);
    for id in [4, 2, 0, 3, 1] {
        buffer.commit(chunk(1, id).whole(&id.to_string()));
    }
    buffer.reads(&["0", "1", "2", "3", "4"]);
    assert_eq!(buffer.0.stats().chunks_committed_out_of_order, 4);
}

#[test]
fn a_gap_after_an_idle_time_is_reported() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a")).reads(&["a"]).reads(&[]);
    buffer.commit(chunk(1, 2).whole("b")).commit(chunk(1, 3).whole("c")).reads(&["b!3", "c"]);
}

#[test]
fn a_missing_chunk_inside_a_packet_is_reported_with_all_it_breaks() {
    Buffer::ring(4096)
        .commit(chunk(1, 0).begin("a"))
        .commit(chunk(1, 2).goes_on("c").whole("d"))
        .reads(&["d!27"]);
}

#[test]
fn a_begin_without_its_rest_waits_without_loss() {
    Buffer::ring(4096)
        .commit(chunk(1, 0).whole("a").begin("b"))
        .commit(chunk(2, 0).whole("x"))
        .reads(&["a", "2:x"])
        .reads(&[])
        .commit(chunk(1, 1).goes_on("c"))
        .reads(&["b+c"]);
}

#[test]
fn a_begin_followed_by_a_whole_packet_is_a_broken_chain() {
    Buffer::ring(4096).commit(chunk(1, 0).begin("a")).commit(chunk(1, 1).whole("b")).reads(&["b!33"]);
}

#[test]
fn a_chunk_of_empty_fragments_is_overwritten_without_a_loss() {
    let empty = (0..30).fold(chunk(1, 1), |chunk, _| chunk.whole(""));
    for behind in [0, 40] {
        let mut buffer = Buffer::ring(4096);
        buffer.fill(1, 0, 32).reads(&["###############"]);
        buffer.commit(empty.clone().slack(behind)).fill(2, 0, 4016);
        buffer.fill(1, 2, 80).reads(&["2:<3998>", "<63>"]);
    }
}

#[test]
fn an_empty_chunk_inside_a_packet_does_not_break_it() {
    Buffer::ring(4096)
        .commit(chunk(1, 0).begin("a"))
        .commit(chunk(1, 1))
        .commit(chunk(1, 2).goes_on("b"))
        .reads(&["a+b"]);
}

#[test]
fn headers_of_any_length_are_taken() {
    let seven = [0x81, 0x80, 0x80, 0x80, 0x80, 0x80, 0x00, b'x'];
    Buffer::ring(4096).commit(chunk(1, 0).raw(&seven).declares(1)).reads(&["x"]);
    let eleven = [&[0x81][..], &[0x80; 10], b"x"].concat();
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).raw(&eleven).declares(1));
    assert_eq!(buffer.0.stats().abi_violations, 1);
}

#[test]
fn dense_chunks_are_read_without_kept_sizes() {
    let mut buffer = Buffer::ring(65536);
    let dense = (0..500).fold(chunk(1, 0), |chunk, _| chunk.whole("x"));
    buffer.commit(dense);
    assert_eq!(buffer.read(250).len(), 250);
    assert_eq!(buffer.read(usize::MAX).len(), 250);
}

#[test]
fn more_fragments_than_are_parsed_at_a_time_are_taken() {
    let mut buffer = Buffer::ring(1 << 20);
    let many = (0..5000).fold(chunk(1, 0), |chunk, _| chunk.whole("0123456789"));
    buffer.commit(many.begin("b")).commit(chunk(1, 1).goes_on("c"));
    let packets = buffer.read(usize::MAX);
    assert_eq!((packets.len(), packets[5000].as_str()), (5001, "b+c"));
}

#[test]
fn fragments_larger_than_a_page_are_taken() {
    let mut buffer = Buffer::ring(1 << 20);
    let large = chunk(1, 0).whole(&"a".repeat(5000)).whole("b").whole(&"c".repeat(9000)).whole("d");
    buffer.commit(large).reads(&["<5000>", "b", "<9000>", "d"]);
}

#[test]
fn only_declared_fragments_count() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a").whole("b").declares(1).slack(20)).reads(&["a"]);
    assert_eq!((buffer.0.stats().abi_violations, buffer.0.stats().bytes_written), (0, 32));
}

#[test]
fn a_scraped_chunk_is_read_as_far_as_it_goes_and_waits_for_the_rest() {
    Buffer::ring(4096)
        .commit(chunk(1, 0).whole("a").scraped(64))
        .commit(chunk(1, 1).whole("c"))
        .reads(&["a"])
        .commit(chunk(1, 0).whole("a").whole("b"))
        .reads(&["b", "c"]);
}

#[test]
fn a_scraped_chunk_grows_in_place_before_it_is_read() {
    let mut buffer = Buffer::ring(4096);
    buffer
        .commit(chunk(1, 0).whole("a").scraped(64))
        .commit(chunk(1, 0).whole("a").whole("b").scraped(64))
        .commit(chunk(1, 0).whole("a").whole("b").whole("c"))
        .reads(&["a", "b", "c"]);
    assert_eq!((buffer.0.stats().chunks_rewritten, buffer.0.stats().bytes_written), (2, 80));
}

#[test]
fn a_recommit_that_takes_something_back_is_refused() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a").whole("b").begin("c"));
    buffer.commit(chunk(1, 0).whole("a"));
    buffer.commit(chunk(1, 0).whole("a").whole("b").whole("c"));
    buffer.commit(chunk(1, 0).whole("a").whole("b").whole("c").begin("d"));
    assert_eq!(buffer.0.stats().abi_violations, 3, "shorter, without a flag, longer than its room");
    buffer.commit(chunk(1, 1).goes_on("d")).reads(&["a", "b", "c+d"]);
}

#[test]
fn patches_release_a_packet() {
    let mut buffer = Buffer::ring(4096);
    buffer
        .commit(chunk(1, 0).whole("w").begin("____").needs_patching())
        .commit(chunk(1, 1).goes_on("b"))
        .reads(&["w"]);
    assert!(buffer.patch(1, 0, 3, "aaaa", true), "others are pending");
    buffer.reads(&[]);
    let (producer, writer) = (ProducerId(1), WriterId(1));
    assert!(
        buffer.0.try_patch(producer, writer, ChunkId(0), &[], false),
        "nothing but the news that all are in"
    );
    buffer.reads(&["aaaa+b"]);
}

#[test]
fn patches_for_what_is_not_there_fail() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 5).whole("abcd")).commit(chunk(1, 7).whole("abc"));
    assert!(!buffer.patch(1, 6, 1, "....", false), "no such chunk");
    assert!(!buffer.patch(2, 5, 1, "....", false), "no such sequence");
    assert!(!buffer.patch(1, 5, 2, "....", false), "past the end");
    assert!(!buffer.patch(1, 5, u32::MAX, "....", false));
    assert!(!buffer.patch(1, 7, 0, "....", false));
    let three = [Patch { offset_untrusted: 1, data: *b"...." }; 3];
    assert!(!buffer.0.try_patch(ProducerId(1), WriterId(1), ChunkId(9), &three, false));
    assert_eq!(buffer.0.stats().patches_failed, 6, "one for each call");
    buffer.reads(&["abcd", "abc!3"]);
    assert!(!buffer.patch(1, 5, 1, "....", false), "gone");
}

#[test]
fn a_read_chunk_that_waits_for_its_rest_can_be_patched() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("abcd").scraped(64)).reads(&["abcd"]);
    assert!(buffer.patch(1, 0, 1, "wxyz", false));
}

#[test]
fn the_oldest_is_overwritten_and_reported() {
    let mut buffer = Buffer::ring(4096);
    buffer.fill(1, 0, 2048).fill(2, 0, 2048).fill(1, 1, 2048).reads(&["2:<2030>", "<2030>!65"]);
    let stats = buffer.0.stats();
    assert_eq!((stats.chunks_overwritten, stats.bytes_overwritten, stats.write_wrap_count), (1, 2048, 1));
}

#[test]
fn what_is_left_of_an_overwritten_record_is_padding() {
    let mut buffer = Buffer::ring(4096);
    buffer.fill(1, 0, 4096).fill(2, 0, 1024);
    let stats = buffer.0.stats();
    assert_eq!((stats.padding_bytes_written, stats.padding_bytes_cleared), (3072, 0));
    buffer.fill(2, 1, 1024);
    assert_eq!(
        (buffer.0.stats().padding_bytes_written, buffer.0.stats().padding_bytes_cleared),
        (5120, 3072)
    );
    buffer.reads(&["2:<1006>", "2:<1006>"]);
}

#[test]
fn a_tail_that_is_too_small_is_evicted_and_skipped() {
    let mut buffer = Buffer::ring(4096);
    buffer.fill(1, 0, 2048).fill(1, 1, 2048).fill(2, 0, 1024).fill(2, 1, 1024).fill(2, 2, 1536);
    // 2048..3584 is written; the 512 bytes behind it are evicted and become padding.
    buffer.fill(3, 0, 1024);
    assert_eq!((buffer.0.stats().write_wrap_count, buffer.0.write_offset()), (2, 1024));
    buffer.reads(&["2:<1006>!65", "2:<1518>", "3:<1006>"]);
}

#[test]
fn bytes_above_the_high_water_mark_are_zero() {
    let mut buffer = Buffer::ring(8192);
    buffer.fill(1, 0, 4096).fill(1, 1, 4080);
    assert_eq!((buffer.0.used_size_bytes(), buffer.0.ring()[8176..].iter().max()), (8176, Some(&0)));
    buffer.fill(1, 2, 4096).fill(1, 3, 4096);
    assert_eq!(buffer.0.used_size_bytes(), 8192);
}

#[test]
fn records_lie_in_the_ring_as_documented() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(2, 0x0a0b_0c0d).whole("abc").begin("d").needs_patching());
    let expected = [0x0d, 0x0c, 0x0b, 0x0a, 2, 0, 1, 0, 6, 0, 6, 0, 6, 0, 6, 6, 3, b'a', b'b', b'c', 1, b'd'];
    assert_eq!(buffer.0.ring()[..22], expected);
    assert_eq!((buffer.0.write_offset(), buffer.0.ring()[22..].iter().max()), (32, Some(&0)));
    buffer.commit(chunk(1, 1).whole("s").scraped(40));
    assert_eq!(buffer.0.ring()[32..48], [1, 0, 0, 0, 1, 0, 1, 0, 40, 0, 2, 0, 2, 0, 0x80, 32 ^ 40]);
    assert_eq!(buffer.0.write_offset(), 32 + 64);
    buffer.reads(&["2:abc", "s"]);
    assert_eq!(buffer.0.ring()[8..16], [6, 0, 6, 0, 2, 0, 6, 6], "partly read");
    assert_eq!(buffer.0.ring()[40..48], [40, 0, 2, 0, 0, 0, 0x80, 32 ^ 40], "read, but it waits");
}

#[test]
fn a_discard_buffer_keeps_what_came_first() {
    let mut buffer = Buffer::discard(4096);
    buffer.fill(1, 0, 2048).fill(1, 1, 1024).fill(1, 2, 2048).fill(1, 3, 32).reads(&["<2030>", "<1006>"]);
    assert_eq!(buffer.0.stats().chunks_discarded, 2);
    assert!(buffer.0.is_sealed());
}

#[test]
fn a_chunk_larger_than_the_buffer_does_not_seal_it() {
    let mut buffer = Buffer::discard(4096);
    buffer.commit(chunk(1, 0).whole(&"x".repeat(4096))).commit(chunk(1, 1).whole("a"));
    assert_eq!((buffer.0.stats().abi_violations, buffer.0.is_sealed()), (1, false));
    buffer.reads(&["a"]);
    // What counts is what is visible of a complete chunk, and the whole of a scraped one.
    buffer.commit(chunk(1, 2).whole("b").slack(8000)).reads(&["b"]);
    buffer.commit(chunk(1, 3).whole("c").scraped(8000));
    assert_eq!(buffer.0.stats().abi_violations, 2);
}

#[test]
fn a_clone_is_read_only_and_independent() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a").whole("b").whole("c").begin("d"));
    assert_eq!(buffer.read(1), ["a"]);
    let mut copy = buffer.copy();
    assert_eq!((copy.0.stats().chunks_written, copy.0.stats().chunks_read), (1, 0));
    assert_eq!(copy.0.ring(), buffer.0.ring());
    copy.reads(&["b", "c"]);
    let late = chunk(1, 1).goes_on("e");
    assert_eq!(copy.0.copy_chunk_untrusted(&late.info, late.bytes.as_slice()), Err(Refused::ReadOnly));
    assert!(!copy.0.try_patch(ProducerId(1), WriterId(1), ChunkId(0), &[], false));
    buffer.commit(late).reads(&["b", "c", "d+e"]);
    copy.reads(&[]);
}

#[test]
fn a_new_life_does_not_wait_for_the_old_one() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a").scraped(64)).commit(chunk(1, 1).whole("b").begin("c"));
    buffer.0.end_writer(ProducerId(1), WriterId(1));
    buffer.commit(chunk(1, 0).whole("new").of_producer(1, 99)).commit(chunk(1, 1).whole("newer"));
    buffer.0.begin_read();
    let pids: Vec<_> = buffer.0.read_pass().map(|packet| (packet.to_vec(), packet.identity.pid)).collect();
    assert_eq!(pids.iter().map(|(_, pid)| *pid).collect::<Vec<_>>(), [7, 7, 99, 99]);
    assert_eq!(pids[2].0, b"new");
}

#[test]
fn an_ended_producer_is_followed_by_another() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 3).whole("a")).commit(chunk(2, 0).whole("b")).reads(&["a", "2:b"]);
    buffer.0.end_producer(ProducerId(1));
    buffer.commit(chunk(1, 9).whole("c")).commit(chunk(2, 0).whole("d")).reads(&["c", "2:d"]);
}

#[test]
fn sizes_are_rounded_up_and_limited() {
    let size = |bytes| Buffer::ring(bytes).0.size_bytes();
    assert_eq!((size(0), size(1), size(4096), size(4097)), (4096, 4096, 4096, 8192));
    let error = TraceBuffer::create(&BufferConfig::ring(usize::MAX)).unwrap_err().to_string();
    assert!(error.contains("larger than the limit"), "{error}");
}

#[test]
fn chunks_of_more_than_65535_bytes_are_refused() {
    let mut buffer = Buffer::ring(1 << 20);
    let large = chunk(1, 0).whole("a").slack(65536 - 2);
    let refused = buffer.0.copy_chunk_untrusted(&large.info, large.bytes.as_slice());
    assert_eq!(refused, Err(Refused::ChunkTooLarge { size_bytes: 65536 }));
    buffer.commit(chunk(1, 0).whole("a").slack(65535 - 2)).reads(&["a"]);
}

#[test]
fn reserved_flags_are_kept_and_known_ones_are_reported() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a").flags(ChunkFlags(0xf8)));
    assert_eq!(buffer.0.ring()[14], 0x38, "bits 6 and 7 are no flags of a chunk");
    buffer.reads(&["a"]);
}
