//! The quirks of the trace buffer design, each in the form that `docs/differences.md` rules.

mod support;

use std::sync::{Arc, Mutex};

use support::{Buffer, chunk};
use watershed_engine::{
    ChunkFlags, ChunkId, ChunkInfo, LossReasons, Packet, Patch, ProducerId, Refused, WriterId,
};

/// ids that are missing between two records read in one go are reported on the later one.
#[test]
fn q1_a_gap_between_two_records_of_one_walk_is_reported() {
    Buffer::ring(4096).commit(chunk(1, 3).whole("c")).commit(chunk(1, 1).whole("a")).reads(&["a", "c!3"]);
}

/// a gap somewhere before does not break a packet whose chunks follow one another.
#[test]
fn q2_a_gap_before_a_packet_does_not_break_it() {
    Buffer::ring(4096)
        .commit(chunk(1, 3).begin("x"))
        .commit(chunk(1, 4).goes_on("y"))
        .commit(chunk(1, 1).whole("a"))
        .reads(&["a", "x+y!3"]);
}

/// a gap is reported once, however often its record is reached.
#[test]
fn q3_a_gap_is_reported_once() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a")).reads(&["a"]);
    buffer.commit(chunk(1, 5).whole("b").whole("c").begin("d"));
    assert_eq!(buffer.read(1), ["b!3"]);
    buffer.reads(&["c"]);
    buffer.commit(chunk(1, 6).goes_on("e")).reads(&["d+e"]);
}

/// a packet that its writer gave up is reported after the packets before it.
#[test]
fn q4_an_aborted_packet_is_reported_where_it_was() {
    let mut buffer = Buffer::ring(4096);
    buffer
        .commit(chunk(1, 0).whole("a"))
        .commit(chunk(1, 1).whole("b").aborted())
        .commit(chunk(1, 2).whole("c").whole("d"))
        .reads(&["a", "b", "c!129", "d"]);
    assert_eq!((buffer.0.stats().trace_writer_packet_loss, buffer.0.stats().abi_violations), (1, 0));
}

/// a chunk that was scraped before the buffer was sealed may be completed afterwards.
#[test]
fn q5_a_sealed_buffer_takes_the_rest_of_a_scraped_chunk() {
    let mut buffer = Buffer::discard(4096);
    buffer.commit(chunk(1, 0).whole("a").scraped(64)).fill(2, 0, 4000).commit(chunk(2, 1).whole("late"));
    assert!(buffer.0.is_sealed());
    buffer.commit(chunk(1, 0).whole("a").whole("b")).reads(&["a", "b", "2:<3982>"]);
    assert_eq!((buffer.0.stats().chunks_rewritten, buffer.0.stats().chunks_discarded), (1, 1));
    buffer.commit(chunk(1, 1).whole("new"));
    assert_eq!(buffer.0.stats().chunks_discarded, 2);
}

/// a scraped chunk that shows nothing yet is waited for, not skipped.
#[test]
fn q6_an_incomplete_record_without_fragments_is_not_empty() {
    Buffer::ring(4096)
        .commit(chunk(1, 0).begin("x"))
        .commit(chunk(1, 1).flags(ChunkFlags::FIRST_CONTINUES).scraped(64))
        .commit(chunk(1, 2).goes_on("z"))
        .reads(&[])
        .commit(chunk(1, 1).middle("y"))
        .reads(&["x+y+z"]);
}

/// a packet of empty fragments only is no packet.
#[test]
fn q7_a_packet_of_nothing_is_skipped() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).begin("")).commit(chunk(1, 1).goes_on("").whole("a")).reads(&["a"]);
    buffer.commit(chunk(1, 2).begin("b")).commit(chunk(1, 3).middle("")).commit(chunk(1, 4).goes_on("c"));
    buffer.reads(&["b+c"]);
}

/// producer 0 with writer 0 is refused.
#[test]
fn q8_the_key_of_padding_is_refused() {
    let mut buffer = Buffer::ring(4096);
    let info = ChunkInfo { num_fragments: 1, complete: true, ..ChunkInfo::default() };
    assert_eq!(buffer.0.copy_chunk_untrusted(&info, b"\x01a".as_slice()), Err(Refused::ReservedKey));
    assert!(!buffer.0.try_patch(ProducerId(0), WriterId(0), ChunkId(0), &[], false));
    buffer.0.end_writer(ProducerId(0), WriterId(0));
    let no_producer = ChunkInfo { writer_id: WriterId(1), ..info };
    buffer.0.copy_chunk_untrusted(&no_producer, b"\x01a".as_slice()).unwrap();
    buffer.reads(&["a"]);
}

/// a second copy of the same length changes neither bytes nor flags.
#[test]
fn q9_a_recommit_of_the_same_length_is_ignored() {
    let mut buffer = Buffer::ring(4096);
    buffer
        .commit(chunk(1, 0).whole("a"))
        .commit(chunk(1, 0).whole("b").flags(ChunkFlags::LAST_CONTINUES))
        .reads(&["a"]);
    assert_eq!(buffer.0.stats().chunks_rewritten, 0);
}

/// a longer copy's flags count, also that it is incomplete: what comes later is not lost.
#[test]
fn q9_a_record_that_grows_is_as_incomplete_as_its_new_copy() {
    let mut buffer = Buffer::ring(4096);
    buffer
        .commit(chunk(1, 5).whole("a").scraped(64))
        .commit(chunk(1, 5).whole("a"))
        .commit(chunk(1, 5).whole("a").whole("b").scraped(64))
        .reads(&["a", "b"])
        .commit(chunk(1, 5).whole("a").whole("b").whole("c"))
        .commit(chunk(1, 6).whole("z"))
        .reads(&["c", "z"]);
    assert_eq!((buffer.0.stats().chunks_relocated, buffer.0.stats().chunks_discarded), (1, 0));
}

/// fragments that are missing or malformed at the commit are reported where they were, and so
/// is a chunk that is larger than the buffer.
#[test]
fn q10_violations_at_commit_are_reported_where_they_were() {
    let mut buffer = Buffer::ring(4096);
    buffer
        .commit(chunk(1, 0).whole("a").declares(2))
        .commit(chunk(1, 1).whole("b").raw(&[0x80]).declares(2))
        .commit(chunk(1, 2).whole("c"))
        .reads(&["a", "b!5", "c!5"]);
    assert_eq!(buffer.0.stats().abi_violations, 2);

    let too_large = chunk(1, 4).whole(&"x".repeat(5000));
    buffer.commit(chunk(1, 3).whole("d")).commit(too_large).commit(chunk(1, 5).whole("e"));
    buffer.reads(&["d", "e!7"]);
}

/// Q-L: the rest of a chunk that was cut is not taken for the beginning of a packet.
#[test]
fn ql_a_truncated_chunk_is_not_glued_to_the_next() {
    let mut buffer = Buffer::ring(4096);
    buffer
        .commit(chunk(1, 0).whole("a").begin("lost").raw(&[]).declares(3).needs_patching())
        .commit(chunk(1, 1).goes_on("tail").whole("b"));
    // 1 + 4 for the cut, 8 for the tail without a beginning.
    buffer.reads(&["a", "lost", "b!13"]);
}

/// an eviction that a write needs may take newer chunks of the same sequence; the older one
/// is kept all the same, and what was consumed last does not go backwards.
#[test]
fn q12_a_chunk_older_than_what_its_own_write_evicts_is_kept() {
    let mut buffer = Buffer::ring(4096);
    buffer.fill(1, 5, 2048).fill(2, 0, 2048);
    // In front of it there is room only where chunk 5 is.
    buffer.commit(chunk(1, 3).whole("old"));
    buffer.reads(&["2:<2030>", "old!65"]);
    // Still 5: 4 comes too late, 6 is no gap.
    buffer.commit(chunk(1, 4).whole("late")).commit(chunk(1, 6).whole("next")).reads(&["next"]);
    assert_eq!(buffer.0.stats().chunks_discarded, 1);
}

/// a listed chunk is found before its id is compared with the last consumed one. After a
/// relocation the two are equal.
#[test]
fn q12_a_shorter_copy_of_a_relocated_chunk_is_a_violation() {
    let mut buffer = Buffer::ring(4096);
    buffer
        .commit(chunk(1, 0).whole("a").scraped(64))
        .reads(&["a"])
        .commit(chunk(1, 0).whole("a").whole("b"))
        .commit(chunk(1, 0).whole("a"));
    let stats = buffer.0.stats();
    assert_eq!((stats.chunks_relocated, stats.abi_violations, stats.chunks_discarded), (1, 1, 0));
    buffer.reads(&["b"]);
}

/// evicting a record evicts what comes before it in its sequence, wherever that is.
#[test]
fn q13_lower_ids_go_with_an_evicted_record() {
    let mut buffer = Buffer::ring(4096);
    buffer.fill(1, 2, 1024).fill(2, 0, 1024).fill(1, 1, 1024).fill(2, 1, 1024).fill(3, 0, 512);
    assert_eq!((buffer.0.stats().chunks_overwritten, buffer.0.ledger().overwritten.bytes), (2, 2048));
    buffer.reads(&["2:<1006>", "2:<1006>", "3:<494>"]);
}

/// of a batch of patches all are written, or none.
#[test]
fn q14_a_batch_of_patches_is_all_or_nothing() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).begin("0123456789").needs_patching()).commit(chunk(1, 1).goes_on("end"));
    let patch = |offset, data: &[u8; 4]| Patch { offset_untrusted: offset, data: *data };
    let ids = (ProducerId(1), WriterId(1), ChunkId(0));
    let bad = [patch(1, b"abcd"), patch(8, b"wxyz")];
    assert!(!buffer.0.try_patch(ids.0, ids.1, ids.2, &bad, false));
    assert_eq!((buffer.0.stats().patches_failed, buffer.0.stats().patches_succeeded), (1, 0));
    buffer.reads(&[]);
    let good = [patch(7, b"wxyz"), patch(1, b"abcd")];
    assert!(buffer.0.try_patch(ids.0, ids.1, ids.2, &good, false));
    assert_eq!((buffer.0.stats().patches_failed, buffer.0.stats().patches_succeeded), (1, 2));
    buffer.reads(&["abcd45wxyz+end"]);
}

/// a copy has the histograms of its writers.
#[test]
fn q16_a_clone_has_the_histograms() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a")).commit(chunk(2, 0).whole(&"b".repeat(100)));
    let of = |buffer: &Buffer| buffer.0.writer_stats().collect::<Vec<_>>();
    let writers = of(&buffer);
    assert_eq!(writers.len(), 2);
    assert_eq!((writers[0].bucket_count[0], writers[0].bucket_sum[0]), (1, 2));
    assert_eq!((writers[1].bucket_count[2], writers[1].bucket_sum[2]), (1, 101));
    assert_eq!(of(&buffer.copy()), writers);
}

/// a record counts as read once, also if it grew afterwards.
#[test]
fn q18_a_regrown_record_is_counted_as_read_once() {
    let mut buffer = Buffer::discard(4096);
    buffer.commit(chunk(1, 0).whole("a").scraped(64)).reads(&["a"]);
    buffer.commit(chunk(1, 0).whole("a").whole("b").scraped(64)).reads(&["b"]);
    buffer.commit(chunk(1, 0).whole("a").whole("b").whole("c")).reads(&["c"]);
    let stats = buffer.0.stats();
    assert_eq!((stats.chunks_written, stats.chunks_read, stats.bytes_read), (1, 1, 80));
    assert_eq!(buffer.0.ledger().read.bytes, 80);
}

/// the ledger says what became of the bytes that were written.
#[test]
fn q20_the_ledger_balances() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0)).fill(1, 1, 1024).fill(1, 2, 1024).commit(chunk(2, 0).whole("s").scraped(48));
    assert_eq!(buffer.read(1), ["<1006>"]);
    buffer.fill(3, 0, 2048).fill(3, 1, 1024);
    let ledger = buffer.0.ledger();
    assert!(ledger.is_balanced());
    assert_eq!((ledger.empty.chunks, ledger.empty.bytes), (1, 16));
    assert_eq!((ledger.read.chunks, ledger.read.bytes), (1, 1024));
}

/// a packet that ends in a record waiting for patches is not held up: its own part is there.
/// A record that waits for patches without a packet that goes on is not held up either.
#[test]
fn q26_only_the_last_fragment_waits_for_patches() {
    let mut buffer = Buffer::ring(4096);
    buffer
        .commit(chunk(1, 0).begin("x"))
        .commit(chunk(1, 1).goes_on("y").whole("a").begin("____").needs_patching())
        .commit(chunk(1, 2).goes_on("z"))
        .commit(chunk(2, 0).whole("b").needs_patching())
        .reads(&["x+y", "a", "2:b"]);
    assert!(buffer.patch(1, 1, 5, "done", false));
    buffer.reads(&["done+z"]);
}

/// a writer id that is used again begins a new life.
#[test]
fn q27_a_reused_writer_id_starts_again() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 7).whole("old")).reads(&["old"]);
    buffer.commit(chunk(1, 0).whole("refused"));
    assert_eq!(buffer.0.stats().chunks_discarded, 1);
    buffer.0.end_writer(ProducerId(1), WriterId(1));
    buffer.commit(chunk(1, 0).whole("new")).commit(chunk(1, 1).whole("newer")).reads(&["new", "newer"]);
    assert_eq!(buffer.0.stats().chunks_discarded, 1);
}

/// a chunk that was scraped when it was complete, read, and is then committed, is neither
/// lost nor discarded.
#[test]
fn q30_a_late_identical_commit_is_a_duplicate() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a")).reads(&["a"]).commit(chunk(1, 0).whole("a")).reads(&[]);
    assert_eq!((buffer.0.ledger().duplicate_commits, buffer.0.stats().chunks_discarded), (1, 0));
    buffer.commit(chunk(1, 0).whole("another"));
    assert_eq!((buffer.0.ledger().duplicate_commits, buffer.0.stats().chunks_discarded), (1, 1));
}

/// histogram and writer loss move with what was accepted, once.
#[test]
fn q33_refused_and_repeated_commits_count_nothing() {
    let mut buffer = Buffer::ring(4096);
    let aborted = chunk(1, 1).whole("a").aborted();
    buffer.commit(aborted.clone()).commit(aborted.clone()).commit(aborted.clone());
    let counted = |buffer: &Buffer| {
        let writer = buffer.0.writer_stats().next().unwrap();
        (writer.bucket_count[0], buffer.0.stats().trace_writer_packet_loss)
    };
    assert_eq!(counted(&buffer), (1, 1));
    buffer.reads(&["a"]).commit(aborted).commit(chunk(1, 0).whole("too late"));
    assert_eq!(counted(&buffer), (1, 1));
}

/// pending losses go into a copy and stay in the original.
#[test]
fn q40_a_clone_has_the_pending_losses_too() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a").aborted()).reads(&["a"]).commit(chunk(1, 1).whole("b"));
    buffer.copy().reads(&["b!129"]);
    buffer.reads(&["b!129"]);
}

/// Q-P: a patch that touches the size of a fragment is refused, with all that came with it.
#[test]
fn qp_a_patch_of_a_size_is_refused() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("01234567").begin("abcdefgh").needs_patching());
    buffer.commit(chunk(1, 1).goes_on("z"));
    for offset in [0, 6, 7, 8, 9] {
        assert!(!buffer.patch(1, 0, offset, "....", false), "offset {offset}");
    }
    assert_eq!(buffer.0.stats().patches_failed, 5);
    for offset in [1, 2, 5, 10, 14] {
        assert!(buffer.patch(1, 0, offset, "....", true), "offset {offset}");
    }
    buffer.reads(&["........"]);
    assert!(buffer.patch(1, 0, 10, "ABCD", false));
    buffer.reads(&["ABCD....+z"]);
}

/// Q-P, in a chunk whose fragments are so long that their sizes are kept.
#[test]
fn qp_a_patch_of_a_size_that_is_kept_is_refused() {
    let mut buffer = Buffer::ring(4096);
    let body = "x".repeat(39);
    buffer.commit(chunk(1, 0).whole(&body).whole(&body));
    for offset in [0, 37, 38, 39, 40, 77, 80] {
        assert!(!buffer.patch(1, 0, offset, "....", true), "offset {offset}");
    }
    for offset in [1, 36, 41, 76] {
        assert!(buffer.patch(1, 0, offset, "....", true), "offset {offset}");
    }
    let patched = format!("....{}....", "x".repeat(31));
    buffer.reads(&[patched.as_str(); 2]);
}

/// Q-S: a reader that throws a packet away gives its losses back.
#[test]
fn qs_the_losses_of_a_dropped_packet_can_be_given_back() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a").aborted()).reads(&["a"]);
    buffer.commit(chunk(1, 1).whole("invalid").whole("b"));
    assert_eq!(buffer.read(1), ["invalid!129"]);
    buffer.0.return_loss(ProducerId(1), WriterId(1), LossReasons(129));
    buffer.reads(&["b!129"]);
    // Also when the sequence has become empty meanwhile.
    buffer.0.return_loss(ProducerId(1), WriterId(1), LossReasons(3));
    buffer.commit(chunk(1, 2).whole("c")).reads(&["c!3"]);
    buffer.0.return_loss(ProducerId(9), WriterId(9), LossReasons(3));
}

/// Q-V: a machine that follows overwritten packets sees each of them, and a copy of the buffer does
/// not take it along.
#[test]
fn qv_a_sink_stays_with_its_buffer() {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut buffer = Buffer::ring(4096);
    let collected = seen.clone();
    buffer.0.set_overwrite_sink(Some(Box::new(move |packet: &Packet<'_>| {
        collected.lock().unwrap().push((packet.writer_id.0, packet.size_bytes()));
        packet.writer_id.0 == 1
    })));
    buffer.fill(1, 0, 2048).fill(2, 0, 2048);
    let mut copy = buffer.copy();
    buffer.fill(3, 0, 2048).fill(3, 1, 2048);
    assert_eq!(*seen.lock().unwrap(), [(1, 2030), (2, 2030)]);
    copy.reads(&["<2030>", "2:<2030>"]);
    // Absorbed, so no loss; the other was not.
    buffer.commit(chunk(1, 1).whole("a")).commit(chunk(2, 1).whole("b"));
    let packets = buffer.read(usize::MAX);
    assert_eq!(&packets[packets.len() - 2..], ["a", "2:b!65"]);
}
