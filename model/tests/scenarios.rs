//! The model against expectations derived by hand from the specification.

use watershed_model::chain::{Chain, FP, LN, NP, block, chunk, frag, malformed, sentinel};
use watershed_model::subject::Subject;
use watershed_model::{Amount, Chunk, Identity, Policy, loss};

/// Every scenario, of the model and of the engine.
macro_rules! scenarios {
    ($($name:ident)*) => {
        mod model {
            $(#[test] fn $name() { super::$name::<watershed_model::Model>(); })*
        }
        mod engine {
            $(#[test] fn $name() { super::$name::<watershed_model::engine::Engine>(); })*
        }
    };
}

scenarios! {
    sizes_are_rounded_up_to_pages
    packets_come_out_at_the_place_of_their_first_chunk
    a_missing_chunk_inside_a_packet_sets_four_bits
    placement_of_wraps_and_leftovers
    the_order_of_a_read_begins_behind_the_cursor
    data_already_read_is_overwritten_without_a_trace
    chunks_with_lower_ids_go_with_the_one_that_is_evicted
    gaps_are_told_once_and_on_the_later_chunk
    an_old_gap_does_not_break_a_later_packet
    chunk_ids_wrap
    a_sentinel_flags_the_packet_behind_it
    a_sentinel_behind_a_scraped_copy_counts_once
    a_sentinel_only_chunk_breaks_a_chain
    a_cut_chunk_does_not_begin_a_packet
    a_chunk_without_a_valid_fragment_inside_a_packet_is_a_loss
    empty_chunks_and_fragments_are_passed_over
    an_oversize_chunk_flags_its_place_and_seals_nothing
    the_same_chunk_fits_complete_and_not_scraped
    pending_patches_stall_their_sequence_until_the_next_pass
    patches_apply_together_and_never_to_headers
    needs_patching_without_a_continuation_is_ignored
    a_packet_may_end_in_a_chunk_that_waits_for_patches
    a_gap_before_a_chunk_that_waits_for_patches_stalls
    a_scraped_chunk_grows_in_place
    a_complete_chunk_that_a_scrape_grows_is_incomplete
    recommits_that_take_something_back_are_violations
    a_scraped_chunk_that_was_evicted_is_admitted_again
    unread_bytes_of_an_evicted_copy_stay_lost
    discard_seals_at_the_first_chunk_that_does_not_fit
    an_exact_fill_does_not_seal
    late_and_old_commits
    a_write_may_evict_newer_chunks_of_its_own_sequence
    an_empty_scraped_chunk_inside_a_packet_is_waited_for
    an_ended_writer_starts_again
    an_ended_life_with_a_successor_stalls_nobody
    a_patch_is_not_for_the_writer_before
    the_key_zero_is_refused
    clones_continue_where_the_source_stands
    the_sink_sees_what_is_lost
    a_second_scrape_repeats_nothing
    a_recommit_whose_space_is_its_own_place
    a_commit_that_would_wrap_finds_its_chunk_first
    a_stale_copy_goes_to_the_cursor_a_lap_later
    a_half_read_chunk_is_resumed
    histograms_move_with_accepted_chunks
    a_new_process_has_its_own_identity
    returned_losses_come_with_the_next_packet
    returned_losses_are_cloned
    returned_losses_of_unknown_sequences_are_ignored
    what_an_eviction_drained_may_grow_and_be_read
    a_packet_does_not_go_on_in_moved_fragments
    an_evicted_packet_of_nothing_is_no_loss
    a_packet_does_not_go_on_in_fragments_that_moved_in_place
}

fn sizes_are_rounded_up_to_pages<S: Subject>() {
    for (asked, size) in [(0, 4096), (3072, 4096), (4096, 4096), (4097, 8192)] {
        assert_eq!(S::create(asked, Policy::Ring, None).size_bytes(), size);
    }
}

fn packets_come_out_at_the_place_of_their_first_chunk<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b1")]).flags(LN))
        .commit(chunk(2, 0, &[frag("x")]))
        .commit(chunk(1, 1, &[frag("b2"), frag("d")]).flags(FP))
        .commit(chunk(2, 1, &[frag("y")]))
        .read("a b1b2 x d y")
        .read("")
        .expect(&[("readaheads_succeeded", 1), ("chunks_read", 4), ("bytes_read", 128)]);
}

fn a_missing_chunk_inside_a_packet_sets_four_bits<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b1")]).flags(LN))
        .commit(chunk(1, 2, &[frag("b3"), frag("c"), frag("d")]).flags(FP))
        .read("a c!27 d")
        .expect(&[("readaheads_failed", 1)]);
}

fn placement_of_wraps_and_leftovers<S: Subject>() {
    let full = |id| chunk(1, id, &[block(1000)]);
    let chain = Chain::<S>::ring().commit(full(0)).commit(full(1)).commit(full(2)).commit(full(3));
    assert_eq!((chain.subject.write_offset(), chain.subject.used_size_bytes()), (4096, 4096));
    let chain = chain
        .expect(&[("write_wrap_count", 0)])
        .commit(chunk(2, 0, &[block(100)]))
        .expect(&[("write_wrap_count", 1), ("chunks_overwritten", 1), ("bytes_overwritten", 1024)])
        .expect(&[("padding_bytes_written", 896), ("padding_bytes_cleared", 0)])
        .commit(chunk(2, 1, &[block(1000)]))
        .expect(&[
            ("chunks_overwritten", 2),
            ("padding_bytes_cleared", 896),
            ("padding_bytes_written", 896 + 896),
        ]);
    chain.read("########!65 ######## ######## ########");
}

fn the_order_of_a_read_begins_behind_the_cursor<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[block(2500)]))
        .commit(chunk(2, 0, &[frag("old")]))
        .commit(chunk(3, 0, &[frag("new"), block(2000)]))
        .read("old new ########")
        .expect(&[("write_wrap_count", 1), ("chunks_overwritten", 1)]);
}

fn data_already_read_is_overwritten_without_a_trace<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[block(3000)]))
        .read("########")
        .commit(chunk(2, 0, &[block(2000)]))
        .commit(chunk(1, 1, &[frag("next")]))
        .read("######## next")
        .expect(&[
            ("chunks_overwritten", 0),
            ("padding_bytes_cleared", 3024 + 1008),
            ("padding_bytes_written", 1008 + 976),
        ]);
}

fn chunks_with_lower_ids_go_with_the_one_that_is_evicted<S: Subject>() {
    // 2 was committed before 1; evicting 2 takes 1 along, which lies elsewhere and frees nothing.
    Chain::<S>::ring()
        .commit(chunk(1, 2, &[frag("two")]))
        .commit(chunk(9, 0, &[block(4000)]))
        .commit(chunk(1, 1, &[frag("one")]))
        .commit(chunk(8, 0, &[frag("x")]))
        .expect(&[
            ("chunks_overwritten", 2),
            ("chunks_committed_out_of_order", 1),
            ("padding_bytes_written", 0),
        ])
        .commit(chunk(1, 3, &[frag("y")]))
        .read("x y!65");
}

fn gaps_are_told_once_and_on_the_later_chunk<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 3, &[frag("c")]))
        .commit(chunk(1, 1, &[frag("a"), frag("b")]))
        .read("a b c!3")
        .commit(chunk(1, 5, &[frag("e")]).flags(LN))
        .read("")
        .read("")
        .commit(chunk(1, 6, &[frag("f"), frag("g")]).flags(FP))
        .read("ef!3 g");
}

fn an_old_gap_does_not_break_a_later_packet<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 3, &[frag("b1")]).flags(LN))
        .commit(chunk(1, 4, &[frag("b2")]).flags(FP))
        .commit(chunk(1, 1, &[frag("a")]))
        .read("a b1b2!3");
}

fn chunk_ids_wrap<S: Subject>() {
    Chain::<S>::ring().commit(chunk(1, u32::MAX, &[frag("a")])).commit(chunk(1, 0, &[frag("b")])).read("a b");
}

fn a_sentinel_flags_the_packet_behind_it<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), sentinel()]))
        .commit(chunk(1, 1, &[frag("b")]))
        .read("a b!129")
        .expect(&[("trace_writer_packet_loss", 1), ("abi_violations", 0)]);
}

fn a_sentinel_behind_a_scraped_copy_counts_once<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("bb")]).scraped(100))
        .commit(chunk(1, 0, &[frag("a"), sentinel()]))
        .commit(chunk(1, 0, &[frag("a"), sentinel()]))
        .commit(chunk(1, 1, &[frag("c")]))
        .read("a c!129")
        .expect(&[("trace_writer_packet_loss", 1), ("chunks_rewritten", 0)]);
}

fn a_sentinel_only_chunk_breaks_a_chain<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("b1")]).flags(LN))
        .commit(chunk(1, 1, &[sentinel()]).flags(FP))
        .commit(chunk(1, 2, &[frag("c")]))
        .read("c!161");
}

fn a_cut_chunk_does_not_begin_a_packet<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b"), malformed()]).flags(LN | NP))
        .commit(chunk(1, 1, &[frag("tail"), frag("c")]).flags(FP))
        .read("a b c!13")
        .expect(&[("abi_violations", 1)]);
}

fn a_chunk_without_a_valid_fragment_inside_a_packet_is_a_loss<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("b1")]).flags(LN))
        .commit(chunk(1, 1, &[malformed()]).flags(FP | LN))
        .commit(chunk(1, 2, &[frag("b3"), frag("c")]).flags(FP))
        .read("c!13")
        .expect(&[("abi_violations", 1), ("readaheads_failed", 1), ("chunks_read", 2)]);
}

fn empty_chunks_and_fragments_are_passed_over<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("b1")]).flags(LN))
        .commit(chunk(1, 1, &[]))
        .commit(chunk(1, 2, &[frag("b2"), frag("")]).flags(FP))
        .commit(chunk(1, 3, &[frag("")]).flags(LN))
        .commit(chunk(1, 4, &[frag("")]).flags(FP))
        .read("b1b2")
        .expect(&[("readaheads_succeeded", 2), ("chunks_read", 4)]);
}

fn an_oversize_chunk_flags_its_place_and_seals_nothing<S: Subject>() {
    Chain::<S>::new(4096, Policy::Discard)
        .commit(chunk(1, 0, &[frag("a")]))
        .commit(chunk(1, 1, &[block(5000)]))
        .commit(chunk(1, 2, &[frag("c")]))
        .read("a c!7")
        .expect(&[("abi_violations", 1), ("chunks_discarded", 0)]);
}

fn the_same_chunk_fits_complete_and_not_scraped<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b")]).scraped(8184))
        .commit(chunk(1, 0, &[frag("a"), frag("b")]))
        .commit(chunk(1, 1, &[frag("c")]))
        .read("a b c")
        .expect(&[("abi_violations", 1)]);
}

fn pending_patches_stall_their_sequence_until_the_next_pass<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("....bb")]).flags(LN | NP))
        .commit(chunk(2, 0, &[frag("x")]))
        .commit(chunk(1, 1, &[frag("cc")]).flags(FP))
        .read("a x")
        .expect(&[("readaheads_failed", 1)])
        .patch(1, 0, &[3], true, true)
        .read("")
        .patch(1, 0, &[], false, true)
        .read("PTCHbbcc")
        .expect(&[("patches_succeeded", 1), ("patches_failed", 0)]);
}

fn patches_apply_together_and_never_to_headers<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("....bb")]).flags(LN | NP))
        .commit(chunk(1, 1, &[frag("cc")]).flags(FP))
        .patch(1, 0, &[1, 4], false, false)
        .patch(1, 0, &[0], false, false)
        .patch(1, 7, &[1, 2], false, false)
        .patch(3, 0, &[], false, false)
        .read("")
        .patch(1, 0, &[], false, true)
        .read("....bbcc")
        .expect(&[("patches_failed", 4), ("patches_succeeded", 0)]);
}

fn needs_patching_without_a_continuation_is_ignored<S: Subject>() {
    Chain::<S>::ring().commit(chunk(1, 0, &[frag("a")]).flags(NP)).read("a");
}

fn a_packet_may_end_in_a_chunk_that_waits_for_patches<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("b1")]).flags(LN))
        .commit(chunk(1, 1, &[frag("b2"), frag("c")]).flags(FP | LN | NP))
        .read("b1b2");
}

fn a_gap_before_a_chunk_that_waits_for_patches_stalls<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("b1")]).flags(LN))
        .commit(chunk(1, 2, &[frag("b3")]).flags(FP | LN | NP))
        .read("")
        .patch(1, 2, &[], false, true)
        .commit(chunk(1, 3, &[frag("b4"), frag("c")]).flags(FP))
        .read("c!27");
}

fn a_scraped_chunk_grows_in_place<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b")]).scraped(100))
        .read("a")
        .commit(chunk(1, 1, &[frag("d")]))
        .read("")
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]).scraped(100))
        .read("b")
        .expect(&[("chunks_rewritten", 1), ("chunks_relocated", 0), ("chunks_read", 1), ("bytes_read", 128)])
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]))
        .read("c d")
        .expect(&[
            ("chunks_rewritten", 1),
            ("chunks_relocated", 1),
            ("chunks_written", 3),
            ("chunks_read", 3),
        ]);
}

fn a_complete_chunk_that_a_scrape_grows_is_incomplete<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 5, &[frag("a"), frag("b")]).scraped(64))
        .commit(chunk(1, 5, &[frag("a")]))
        .commit(chunk(1, 5, &[frag("a"), frag("b"), frag("c")]).scraped(64))
        .read("a b")
        .commit(chunk(1, 5, &[frag("a"), frag("b"), frag("c")]))
        .commit(chunk(1, 6, &[frag("z")]))
        .read("c z")
        .expect(&[("chunks_rewritten", 1), ("chunks_relocated", 1), ("chunks_discarded", 0)]);
}

fn recommits_that_take_something_back_are_violations<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b")]).flags(LN))
        .commit(chunk(1, 0, &[frag("a"), frag("b")]))
        .commit(chunk(1, 0, &[frag("a")]).flags(LN))
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]).flags(LN))
        .expect(&[("abi_violations", 3), ("chunks_rewritten", 0), ("chunks_written", 1)])
        .commit(chunk(1, 0, &[frag("a"), frag("b")]).flags(LN))
        .expect(&[("abi_violations", 3)])
        .read("a");
}

fn a_scraped_chunk_that_was_evicted_is_admitted_again<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]).scraped(100))
        .read("a b")
        .commit(chunk(2, 0, &[block(3952)]))
        .commit(chunk(2, 1, &[block(16)]))
        .expect(&[("chunks_overwritten", 0), ("write_wrap_count", 1)])
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]))
        .commit(chunk(1, 1, &[frag("d")]))
        .expect(&[("chunks_written", 5), ("chunks_discarded", 0), ("chunks_overwritten", 0)])
        .read("######## ######## c d");
}

fn unread_bytes_of_an_evicted_copy_stay_lost<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]).scraped(100))
        .commit(chunk(2, 0, &[block(4080)]))
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]))
        .read("c!65")
        .expect(&[("chunks_overwritten", 2)]);
}

fn discard_seals_at_the_first_chunk_that_does_not_fit<S: Subject>() {
    Chain::<S>::new(4096, Policy::Discard)
        .commit(chunk(1, 0, &[frag("a"), frag("b")]).scraped(1000))
        .commit(chunk(2, 0, &[block(3000)]))
        .commit(chunk(2, 1, &[block(100)]))
        .commit(chunk(2, 2, &[frag("x")]))
        .expect(&[("chunks_discarded", 2), ("write_wrap_count", 0)])
        .read("a ########")
        .commit(chunk(1, 0, &[frag("a"), frag("b")]))
        .read("b")
        .commit(chunk(1, 0, &[frag("a"), frag("b")]))
        .expect(&[
            ("chunks_discarded", 3),
            ("chunks_rewritten", 1),
            ("duplicate_commits", 0),
            ("chunks_read", 2),
        ]);
}

fn an_exact_fill_does_not_seal<S: Subject>() {
    let chain = Chain::<S>::new(4096, Policy::Discard).commit(chunk(1, 0, &[block(4080)])).read("########");
    assert_eq!(chain.subject.write_offset(), 4096);
    chain
        .expect(&[("chunks_discarded", 0)])
        .commit(chunk(1, 1, &[frag("a")]))
        .expect(&[("chunks_discarded", 1), ("write_wrap_count", 0)]);
}

fn late_and_old_commits<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 4, &[frag("a")]))
        .commit(chunk(1, 5, &[frag("b")]))
        .read("a b")
        .commit(chunk(1, 5, &[frag("b")]))
        .expect(&[("duplicate_commits", 1), ("chunks_discarded", 0)])
        .commit(chunk(1, 4, &[frag("a")]))
        .commit(chunk(1, 5, &[frag("b"), frag("more")]))
        .expect(&[("duplicate_commits", 1), ("chunks_discarded", 2), ("chunks_written", 2)]);
}

fn a_write_may_evict_newer_chunks_of_its_own_sequence<S: Subject>() {
    // 7 lies where 5 goes. 5 is kept; after it 8 is no gap, since 7 was consumed already.
    Chain::<S>::ring()
        .commit(chunk(1, 7, &[block(2000)]))
        .commit(chunk(2, 0, &[block(2000)]))
        .commit(chunk(1, 5, &[frag("five"), block(100)]))
        .commit(chunk(1, 8, &[frag("eight")]))
        .read("######## five!65 ######## eight")
        .expect(&[("chunks_discarded", 0)]);
}

fn an_empty_scraped_chunk_inside_a_packet_is_waited_for<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("b1")]).flags(LN))
        .commit(chunk(1, 1, &[frag("b2")]).flags(FP).scraped(100))
        .commit(chunk(1, 2, &[frag("c")]))
        .read("")
        .commit(chunk(1, 1, &[frag("b2")]).flags(FP))
        .read("b1b2 c");
}

fn an_ended_writer_starts_again<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a")]))
        .commit(chunk(1, 1, &[frag("b")]))
        .end_writer(1)
        .commit(chunk(1, 0, &[frag("c")]))
        .commit(chunk(1, 1, &[frag("d")]))
        .read("a b c d")
        .end_writer(1)
        .commit(chunk(1, 2, &[frag("e")]))
        .commit(chunk(1, 0, &[frag("f")]))
        .read("e f")
        .expect(&[("chunks_discarded", 0), ("duplicate_commits", 0), ("chunks_committed_out_of_order", 0)]);
}

fn an_ended_life_with_a_successor_stalls_nobody<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b")]).scraped(100))
        .commit(chunk(1, 1, &[frag("c1")]).flags(LN))
        .end_producer()
        .read("a")
        .commit(chunk(1, 2, &[frag("c2"), frag("d")]).flags(FP))
        .read("d!41");
}

fn a_patch_is_not_for_the_writer_before<S: Subject>() {
    // The buffer is sealed, so the next writer's chunk 0 is not taken.
    Chain::<S>::new(4096, Policy::Discard)
        .commit(chunk(1, 0, &[frag("abcdefgh")]))
        .commit(chunk(2, 0, &[block(4080)]))
        .end_writer(1)
        .commit(chunk(1, 0, &[frag("12345678"), frag("9")]).flags(LN | NP))
        .patch(1, 0, &[2], false, false)
        .read("abcdefgh");
    // What waits for it gets it, although its writer has ended.
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("abcdefgh"), frag("12345")]).flags(LN | NP))
        .commit(chunk(1, 1, &[frag("6")]).flags(FP))
        .end_writer(1)
        .patch(1, 0, &[10], false, true)
        .read("abcdefgh PTCH56");
}

fn the_key_zero_is_refused<S: Subject>() {
    let mut subject = S::create(4096, Policy::Ring, None);
    let identity = Identity::default();
    let mut of = |producer_id, len: usize| {
        let bytes = vec![0; len];
        subject.commit(&Chunk {
            producer_id,
            writer_id: 0,
            identity,
            chunk_id: 0,
            num_fragments: 1,
            flags: 0,
            complete: true,
            bytes: &bytes,
        })
    };
    assert_eq!([of(0, 1), of(1, 65536), of(1, 65535)], [false, false, true]);
    assert_eq!(subject.stats().chunks_written, 1);
}

fn clones_continue_where_the_source_stands<S: Subject>() {
    let mut chain = Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c1")]).flags(LN))
        .commit(chunk(1, 2, &[frag("c3"), frag("d")]).flags(FP));
    chain.subject.begin_read();
    chain.subject.read_next().expect("a");
    let mut clone = Chain { subject: chain.subject.clone_read_only() };
    assert_eq!(clone.subject.writer_stats(), chain.subject.writer_stats());
    assert!(clone.subject.read_next().is_none(), "a clone has no pass yet");
    assert!(!clone.subject.patch(1, 1, 0, &[], false));
    clone =
        clone.read("b d!27").expect(&[("chunks_read", 2), ("readaheads_failed", 1), ("chunks_written", 2)]);
    chain.read("b d!27");
    assert!(clone.subject.read_next().is_none());
}

fn the_sink_sees_what_is_lost<S: Subject>() {
    fn keep_x(packet: &watershed_model::Packet) -> bool {
        packet.slices[0][0] == b'x'
    }
    let mut chain = Chain::<S>::with_sink(keep_x)
        .commit(chunk(1, 0, &[frag("x1"), frag("x2")]).flags(LN))
        .commit(chunk(2, 0, &[block(4000)]))
        .commit(chunk(1, 1, &[frag("x3"), frag("y")]).flags(FP))
        .commit(chunk(3, 0, &[frag("z")]))
        .read("######## y z");
    let evicted = chain.subject.take_evicted();
    assert_eq!(evicted.len(), 2);
    assert_eq!(evicted[1].slices, [b"x2".to_vec(), b"x3".to_vec()]);
    assert!(evicted.iter().all(|packet| packet.loss & loss::OVERWRITE == 0));
    assert_eq!(chain.subject.ledger().overwritten, Amount { chunks: 1, bytes: 32 });
}

fn a_second_scrape_repeats_nothing<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b")]).scraped(100))
        .read("a")
        .commit(chunk(1, 0, &[frag("a"), frag("b")]).scraped(100))
        .read("")
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]).scraped(100))
        .read("b")
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]))
        .read("c")
        .expect(&[("chunks_rewritten", 1), ("chunks_relocated", 1), ("abi_violations", 0)]);
}

fn a_recommit_whose_space_is_its_own_place<S: Subject>() {
    // The final commit goes where the drained copy lay: the wrap must not see the copy as a chunk
    // any more.
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b")]).scraped(100))
        .commit(chunk(2, 0, &[block(3952)]))
        .read("a ########")
        .commit(chunk(1, 0, &[frag("a"), frag("b")]))
        .expect(&[("chunks_relocated", 1), ("write_wrap_count", 1), ("chunks_overwritten", 0)])
        .read("b")
        .commit(chunk(1, 1, &[frag("c")]))
        .read("c");
}

fn a_commit_that_would_wrap_finds_its_chunk_first<S: Subject>() {
    let chain = Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a")]))
        .commit(chunk(2, 0, &[block(4048)]))
        .commit(chunk(1, 0, &[frag("a")]))
        .expect(&[("write_wrap_count", 0), ("chunks_written", 2), ("abi_violations", 0)]);
    assert_eq!(chain.subject.write_offset(), 4096);
    chain.read("a ########");
}

fn a_stale_copy_goes_to_the_cursor_a_lap_later<S: Subject>() {
    let lap = |chain: Chain<S>, id| {
        chain
            .commit(chunk(2, id, &[block(1900)]))
            .commit(chunk(2, id + 1, &[block(1900)]))
            .read("######## ########")
    };
    let chain = Chain::<S>::ring().commit(chunk(1, 0, &[frag("a"), frag("b")]).scraped(200)).read("a");
    let chain = lap(chain, 0).commit(chunk(3, 0, &[frag("x")])).commit(chunk(1, 0, &[frag("a"), frag("b")]));
    chain.read("x b").expect(&[("chunks_relocated", 1), ("chunks_discarded", 0), ("chunks_overwritten", 0)]);
}

fn a_half_read_chunk_is_resumed<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]))
        .commit(chunk(2, 0, &[frag("x"), frag("y")]))
        .read_some("a b")
        .expect(&[("chunks_read", 0)])
        .read_some("c x")
        .expect(&[("chunks_read", 1), ("bytes_read", 32)])
        .read("y");
}

fn histograms_move_with_accepted_chunks<S: Subject>() {
    let chain = Chain::<S>::ring()
        .commit(chunk(1, 0, &[block(8)]))
        .commit(chunk(1, 1, &[block(9)]))
        .commit(chunk(1, 1, &[block(9)]))
        .commit(chunk(1, 2, &[block(2049)]))
        .commit(chunk(1, 3, &[block(9000)]))
        .read("#### ##### ########")
        .commit(chunk(1, 0, &[block(8)]));
    let [(1, 1, histogram)] = chain.subject.writer_stats()[..] else { panic!("one writer") };
    assert_eq!(histogram.count, [1, 1, 0, 0, 0, 0, 1, 0, 0, 0, 0]);
    assert_eq!(histogram.sum, [8, 9, 0, 0, 0, 0, 2049, 0, 0, 0, 0]);
}

fn a_new_process_has_its_own_identity<S: Subject>() {
    let process = |pid| Identity { uid: 1, pid, machine_id: 0 };
    let mut chain = Chain::<S>::ring()
        .commit_of(process(1), chunk(1, 0, &[frag("a"), frag("b1")]).flags(LN))
        .end_producer()
        .commit_of(process(2), chunk(1, 1, &[frag("b2"), frag("c")]).flags(FP));
    chain.subject.begin_read();
    let packets: Vec<_> =
        std::iter::from_fn(|| chain.subject.read_next()).map(|p| (p.slices, p.identity.pid)).collect();
    assert_eq!(packets, [(vec![b"a".to_vec()], 1), (vec![b"c".to_vec()], 2)]);
}

fn returned_losses_come_with_the_next_packet<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a"), sentinel()]))
        .commit(chunk(1, 1, &[frag("b")]))
        .read("a b!129")
        .return_loss(1, 129)
        .commit(chunk(1, 2, &[frag("c"), frag("d")]))
        .read_some("c!129")
        .return_loss(1, 129)
        .read("d!129");
}

fn returned_losses_are_cloned<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("a")]))
        .read("a")
        .return_loss(1, 129)
        .commit(chunk(1, 1, &[frag("b")]))
        .cloned()
        .read("b!129");
}

fn returned_losses_of_unknown_sequences_are_ignored<S: Subject>() {
    Chain::<S>::ring().return_loss(1, 3).commit(chunk(1, 0, &[frag("a")])).read("a");
}

fn what_an_eviction_drained_may_grow_and_be_read<S: Subject>() {
    let chain = Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("b1")]).flags(LN))
        .commit(chunk(2, 0, &[block(3920)]))
        .commit(chunk(1, 1, &[frag("b2"), frag("x")]).flags(FP).scraped(100))
        .commit(chunk(3, 0, &[frag("z")]))
        .expect(&[("chunks_overwritten", 2), ("chunks_written", 4)])
        .commit(chunk(1, 1, &[frag("b2"), frag("u"), frag("x")]).flags(FP).scraped(100))
        .read("######## u!65 z")
        .commit(chunk(1, 1, &[frag("b2"), frag("u"), frag("v")]).flags(FP))
        .expect(&[("chunks_rewritten", 1), ("chunks_relocated", 1)]);
    let ledger = chain.subject.ledger();
    assert_eq!((ledger.read.chunks, ledger.overwritten.chunks), (3, 1));
}

fn a_packet_does_not_go_on_in_moved_fragments<S: Subject>() {
    // 6 is kept below last-consumed 7, whose copy comes again with other fragments: reading goes on
    // in the middle of one.
    Chain::<S>::ring()
        .commit(chunk(1, 7, &[frag("a"), frag("b")]).scraped(100))
        .read("a")
        .commit(chunk(2, 0, &[block(3952)]))
        .commit(chunk(1, 6, &[frag("m")]).flags(LN))
        .commit(chunk(1, 7, &[frag("wxyz")]))
        .commit(chunk(1, 8, &[frag("c")]))
        .read("######## c!5");
}

fn an_evicted_packet_of_nothing_is_no_loss<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 0, &[frag("")]).flags(LN))
        .commit(chunk(2, 0, &[block(4000)]))
        .commit(chunk(1, 1, &[frag(""), frag("x")]).flags(FP))
        .commit(chunk(3, 0, &[frag("z")]))
        .expect(&[("chunks_overwritten", 1), ("write_wrap_count", 1), ("readaheads_succeeded", 1)])
        .read("######## x z");
}

fn a_packet_does_not_go_on_in_fragments_that_moved_in_place<S: Subject>() {
    Chain::<S>::ring()
        .commit(chunk(1, 7, &[frag("a"), frag("b")]).scraped(100))
        .read("a")
        .commit(chunk(2, 0, &[block(3952)]))
        .commit(chunk(1, 6, &[frag("m")]).flags(LN))
        .commit(chunk(1, 7, &[frag("a"), frag("b"), frag("c")]).scraped(100))
        .commit(chunk(1, 7, &[frag("wxyzw")]))
        .commit(chunk(1, 8, &[frag("c")]))
        .expect(&[("chunks_rewritten", 1)])
        .read("c!5");
}
