//! Kinds of bug that trace buffers of this design are known to have had.

mod support;

use support::{Buffer, chunk};

#[test]
fn a_scraped_copy_evicted_by_a_wrap_does_not_refuse_its_full_commit() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a").scraped(1000)).fill(2, 0, 3056).fill(2, 1, 2048);
    // The scraped copy is gone; only what was behind its visible part can come back.
    buffer.commit(chunk(1, 0).whole("a").whole("b"));
    assert_eq!(buffer.0.stats().chunks_discarded, 0);
    buffer.reads(&["2:<2030>!65", "b!65"]);
}

#[test]
fn a_chunk_that_ends_exactly_at_the_end_wraps_with_the_next() {
    let mut buffer = Buffer::ring(4096);
    buffer.fill(1, 0, 2048).fill(1, 1, 2048);
    assert_eq!((buffer.0.write_offset(), buffer.0.stats().write_wrap_count), (4096, 0));
    buffer.fill(1, 2, 2048);
    assert_eq!((buffer.0.write_offset(), buffer.0.stats().write_wrap_count), (2048, 1));
    buffer.reads(&["<2030>!65", "<2030>"]);
}

#[test]
fn a_discard_buffer_that_is_exactly_full_is_not_sealed_yet() {
    let mut buffer = Buffer::discard(4096);
    buffer.fill(1, 0, 4096);
    assert!(!buffer.0.is_sealed());
    assert_eq!(buffer.0.stats().chunks_discarded, 0);
    buffer.fill(1, 1, 32);
    assert!(buffer.0.is_sealed());
    buffer.reads(&["<4078>"]);
}

#[test]
fn re_admission_is_no_loss() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a").scraped(1000)).reads(&["a"]);
    buffer.fill(2, 0, 3056).fill(2, 1, 2048);
    buffer.commit(chunk(1, 0).whole("a").whole("b")).commit(chunk(1, 1).whole("c"));
    buffer.reads(&["2:<2030>!65", "b", "c"]);
}

#[test]
fn consumed_chunks_do_not_count_as_overwritten() {
    let mut buffer = Buffer::ring(4096);
    buffer.fill(1, 0, 2048).commit(chunk(2, 0).whole("s").scraped(2032)).reads(&["<2030>", "2:s"]);
    buffer.fill(1, 1, 2048).fill(1, 2, 2048).reads(&["<2030>", "<2030>"]);
    assert_eq!((buffer.0.stats().chunks_overwritten, buffer.0.stats().bytes_overwritten), (0, 0));
    assert_eq!(buffer.0.ledger().read.chunks, 4);
}

#[test]
fn a_commit_whose_own_wrap_evicts_its_earlier_copy_is_read_once() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a").scraped(32)).fill(2, 0, 4032);
    // It was read and is complete now, so it moves to the cursor. There is room only at the
    // beginning, where its earlier copy is.
    buffer.reads(&["a", "2:<4014>"]);
    buffer.commit(chunk(1, 0).whole("a").whole("b")).reads(&["b"]).reads(&[]);
    assert_eq!(buffer.0.stats().chunks_relocated, 1);
}

#[test]
fn a_scraped_copy_is_not_rewritten_a_lap_later() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).whole("a").scraped(64)).fill(2, 0, 4016).reads(&["a", "2:<3998>"]);
    // In place it would be overwritten by the next write.
    buffer.commit(chunk(1, 0).whole("a").whole("b")).fill(2, 1, 32).reads(&["b", "2:###############"]);
    assert_eq!((buffer.0.stats().chunks_relocated, buffer.0.stats().chunks_rewritten), (1, 0));
}

#[test]
fn an_aborted_packet_is_no_violation() {
    let mut buffer = Buffer::ring(4096);
    buffer.commit(chunk(1, 0).aborted()).commit(chunk(1, 1).whole("a")).reads(&["a!129"]);
    assert_eq!((buffer.0.stats().abi_violations, buffer.0.stats().trace_writer_packet_loss), (0, 1));
}

#[test]
fn data_that_was_read_is_no_loss_when_another_writer_overwrites_it() {
    let mut buffer = Buffer::ring(4096);
    buffer.fill(1, 0, 2048).fill(2, 0, 2048).reads(&["<2030>", "2:<2030>"]);
    buffer.fill(2, 1, 2048).fill(2, 2, 1024).fill(1, 1, 1024);
    buffer.reads(&["2:<2030>", "2:<1006>", "<1006>"]);
}

#[test]
fn packets_are_not_emitted_twice_after_a_second_scrape() {
    Buffer::ring(4096)
        .commit(chunk(1, 0).whole("a").scraped(64))
        .reads(&["a"])
        .commit(chunk(1, 0).whole("a").scraped(64))
        .reads(&[])
        .commit(chunk(1, 0).whole("a").whole("b").scraped(64))
        .reads(&["b"])
        .commit(chunk(1, 0).whole("a").whole("b"))
        .reads(&[])
        .commit(chunk(1, 1).whole("c"))
        .reads(&["c"]);
}
