//! The model against expectations derived by hand from the specification.

mod support;

use support::{BAD, Chain, FP, LN, NP, SENTINEL, block, chunk, frag};
use watershed_model::{Amount, Chunk, Identity, Model, Policy, loss};

#[test]
fn sizes_are_rounded_up_to_pages() {
    assert_eq!(Model::new(0, Policy::Ring).size_bytes(), 4096);
    assert_eq!(Model::new(3072, Policy::Ring).size_bytes(), 4096);
    assert_eq!(Model::new(4097, Policy::Ring).size_bytes(), 8192);
}

#[test]
fn packets_come_out_at_the_place_of_their_first_chunk() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b1")]).flags(LN))
        .commit(chunk(2, 0, &[frag("x")]))
        .commit(chunk(1, 1, &[frag("b2"), frag("d")]).flags(FP))
        .commit(chunk(2, 1, &[frag("y")]))
        .read("a b1b2 x d y")
        .read("")
        .stats(&[("readaheads_succeeded", 1), ("chunks_read", 4), ("bytes_read", 128)]);
}

#[test]
fn a_missing_chunk_inside_a_packet_sets_four_bits() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b1")]).flags(LN))
        .commit(chunk(1, 2, &[frag("b3"), frag("c"), frag("d")]).flags(FP))
        .read("a c!27 d")
        .stats(&[("readaheads_failed", 1)]);
}

#[test]
fn placement_of_wraps_and_leftovers() {
    let full = |id| chunk(1, id, &[block(1000)]);
    let chain = Chain::ring().commit(full(0)).commit(full(1)).commit(full(2)).commit(full(3));
    assert_eq!((chain.model.write_offset(), chain.model.used_size_bytes()), (4096, 4096));
    let chain = chain
        .stats(&[("write_wrap_count", 0)])
        .commit(chunk(2, 0, &[block(100)]))
        .stats(&[("write_wrap_count", 1), ("chunks_overwritten", 1), ("bytes_overwritten", 1024)])
        .stats(&[("padding_bytes_written", 896), ("padding_bytes_cleared", 0)])
        .commit(chunk(2, 1, &[block(1000)]))
        .stats(&[
            ("chunks_overwritten", 2),
            ("padding_bytes_cleared", 896),
            ("padding_bytes_written", 896 + 896),
        ]);
    let places: Vec<_> = chain.model.placed().map(|(at, outer, data)| (at, outer, data.is_some())).collect();
    assert_eq!(
        places,
        [(0, 128, true), (128, 1024, true), (1152, 896, false), (2048, 1024, true), (3072, 1024, true)]
    );
    chain.read("########!65 ######## ######## ########");
}

#[test]
fn the_order_of_a_read_begins_behind_the_cursor() {
    Chain::ring()
        .commit(chunk(1, 0, &[block(2500)]))
        .commit(chunk(2, 0, &[frag("old")]))
        .commit(chunk(3, 0, &[frag("new"), block(2000)]))
        .read("old new ########")
        .stats(&[("write_wrap_count", 1), ("chunks_overwritten", 1)]);
}

#[test]
fn data_already_read_is_overwritten_without_a_trace() {
    Chain::ring()
        .commit(chunk(1, 0, &[block(3000)]))
        .read("########")
        .commit(chunk(2, 0, &[block(2000)]))
        .commit(chunk(1, 1, &[frag("next")]))
        .read("######## next")
        .stats(&[
            ("chunks_overwritten", 0),
            ("padding_bytes_cleared", 3024 + 1008),
            ("padding_bytes_written", 1008 + 976),
        ]);
}

#[test]
fn chunks_with_lower_ids_go_with_the_one_that_is_evicted() {
    // 2 was committed before 1; evicting 2 takes 1 along, which lies elsewhere and frees nothing.
    Chain::ring()
        .commit(chunk(1, 2, &[frag("two")]))
        .commit(chunk(9, 0, &[block(4000)]))
        .commit(chunk(1, 1, &[frag("one")]))
        .commit(chunk(8, 0, &[frag("x")]))
        .stats(&[
            ("chunks_overwritten", 2),
            ("chunks_committed_out_of_order", 1),
            ("padding_bytes_written", 0),
        ])
        .commit(chunk(1, 3, &[frag("y")]))
        .read("x y!65");
}

#[test]
fn gaps_are_told_once_and_on_the_later_chunk() {
    Chain::ring()
        .commit(chunk(1, 3, &[frag("c")]))
        .commit(chunk(1, 1, &[frag("a"), frag("b")]))
        .read("a b c!3")
        .commit(chunk(1, 5, &[frag("e")]).flags(LN))
        .read("")
        .read("")
        .commit(chunk(1, 6, &[frag("f"), frag("g")]).flags(FP))
        .read("ef!3 g");
}

#[test]
fn an_old_gap_does_not_break_a_later_packet() {
    Chain::ring()
        .commit(chunk(1, 3, &[frag("b1")]).flags(LN))
        .commit(chunk(1, 4, &[frag("b2")]).flags(FP))
        .commit(chunk(1, 1, &[frag("a")]))
        .read("a b1b2!3");
}

#[test]
fn chunk_ids_wrap() {
    Chain::ring().commit(chunk(1, u32::MAX, &[frag("a")])).commit(chunk(1, 0, &[frag("b")])).read("a b");
}

#[test]
fn a_sentinel_flags_the_packet_behind_it() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("a"), SENTINEL.to_vec()]))
        .commit(chunk(1, 1, &[frag("b")]))
        .read("a b!129")
        .stats(&[("trace_writer_packet_loss", 1), ("abi_violations", 0)]);
}

#[test]
fn a_sentinel_behind_a_scraped_copy_counts_once() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("bb")]).scraped(100))
        .commit(chunk(1, 0, &[frag("a"), SENTINEL.to_vec()]))
        .commit(chunk(1, 0, &[frag("a"), SENTINEL.to_vec()]))
        .commit(chunk(1, 1, &[frag("c")]))
        .read("a c!129")
        .stats(&[("trace_writer_packet_loss", 1), ("chunks_rewritten", 0)]);
}

#[test]
fn a_sentinel_only_chunk_breaks_a_chain() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("b1")]).flags(LN))
        .commit(chunk(1, 1, &[SENTINEL.to_vec()]).flags(FP))
        .commit(chunk(1, 2, &[frag("c")]))
        .read("c!161");
}

#[test]
fn a_cut_chunk_does_not_begin_a_packet() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b"), BAD.to_vec()]).flags(LN | NP))
        .commit(chunk(1, 1, &[frag("tail"), frag("c")]).flags(FP))
        .read("a b c!13")
        .stats(&[("abi_violations", 1)]);
}

#[test]
fn a_chunk_without_a_valid_fragment_inside_a_packet_is_a_loss() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("b1")]).flags(LN))
        .commit(chunk(1, 1, &[BAD.to_vec()]).flags(FP | LN))
        .commit(chunk(1, 2, &[frag("b3"), frag("c")]).flags(FP))
        .read("c!13")
        .stats(&[("abi_violations", 1), ("readaheads_failed", 1), ("chunks_read", 2)]);
}

#[test]
fn empty_chunks_and_fragments_are_passed_over() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("b1")]).flags(LN))
        .commit(chunk(1, 1, &[]))
        .commit(chunk(1, 2, &[frag("b2"), frag("")]).flags(FP))
        .commit(chunk(1, 3, &[frag("")]).flags(LN))
        .commit(chunk(1, 4, &[frag("")]).flags(FP))
        .read("b1b2")
        .stats(&[("readaheads_succeeded", 2), ("chunks_read", 4)]);
}

#[test]
fn an_oversize_chunk_flags_its_place_and_seals_nothing() {
    Chain::new(4096, Policy::Discard)
        .commit(chunk(1, 0, &[frag("a")]))
        .commit(chunk(1, 1, &[block(5000)]))
        .commit(chunk(1, 2, &[frag("c")]))
        .read("a c!7")
        .stats(&[("abi_violations", 1), ("chunks_discarded", 0)]);
}

#[test]
fn the_same_chunk_fits_complete_and_not_scraped() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b")]).scraped(8184))
        .commit(chunk(1, 0, &[frag("a"), frag("b")]))
        .commit(chunk(1, 1, &[frag("c")]))
        .read("a b c")
        .stats(&[("abi_violations", 1)]);
}

#[test]
fn pending_patches_stall_their_sequence_until_the_next_pass() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("....bb")]).flags(LN | NP))
        .commit(chunk(2, 0, &[frag("x")]))
        .commit(chunk(1, 1, &[frag("cc")]).flags(FP))
        .read("a x")
        .stats(&[("readaheads_failed", 1)])
        .patch(1, 0, &[3], true, true)
        .read("")
        .patch(1, 0, &[], false, true)
        .read("PTCHbbcc")
        .stats(&[("patches_succeeded", 1), ("patches_failed", 0)]);
}

#[test]
fn patches_apply_together_and_never_to_headers() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("....bb")]).flags(LN | NP))
        .commit(chunk(1, 1, &[frag("cc")]).flags(FP))
        .patch(1, 0, &[1, 4], false, false)
        .patch(1, 0, &[0], false, false)
        .patch(1, 7, &[1, 2], false, false)
        .patch(3, 0, &[], false, false)
        .read("")
        .patch(1, 0, &[], false, true)
        .read("....bbcc")
        .stats(&[("patches_failed", 4), ("patches_succeeded", 0)]);
}

#[test]
fn needs_patching_without_a_continuation_is_ignored() {
    Chain::ring().commit(chunk(1, 0, &[frag("a")]).flags(NP)).read("a");
}

#[test]
fn a_packet_may_end_in_a_chunk_that_waits_for_patches() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("b1")]).flags(LN))
        .commit(chunk(1, 1, &[frag("b2"), frag("c")]).flags(FP | LN | NP))
        .read("b1b2");
}

#[test]
fn a_gap_before_a_chunk_that_waits_for_patches_stalls() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("b1")]).flags(LN))
        .commit(chunk(1, 2, &[frag("b3")]).flags(FP | LN | NP))
        .read("")
        .patch(1, 2, &[], false, true)
        .commit(chunk(1, 3, &[frag("b4"), frag("c")]).flags(FP))
        .read("c!27");
}

#[test]
fn a_scraped_chunk_grows_in_place() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b")]).scraped(100))
        .read("a")
        .commit(chunk(1, 1, &[frag("d")]))
        .read("")
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]).scraped(100))
        .read("b")
        .stats(&[("chunks_rewritten", 1), ("chunks_relocated", 0), ("chunks_read", 1), ("bytes_read", 128)])
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]))
        .read("c d")
        .stats(&[
            ("chunks_rewritten", 1),
            ("chunks_relocated", 1),
            ("chunks_written", 3),
            ("chunks_read", 3),
        ]);
}

#[test]
fn recommits_that_take_something_back_are_violations() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b")]).flags(LN))
        .commit(chunk(1, 0, &[frag("a"), frag("b")]))
        .commit(chunk(1, 0, &[frag("a")]).flags(LN))
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]).flags(LN))
        .stats(&[("abi_violations", 3), ("chunks_rewritten", 0), ("chunks_written", 1)])
        .commit(chunk(1, 0, &[frag("a"), frag("b")]).flags(LN))
        .stats(&[("abi_violations", 3)])
        .read("a");
}

#[test]
fn a_scraped_chunk_that_was_evicted_is_admitted_again() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]).scraped(100))
        .read("a b")
        .commit(chunk(2, 0, &[block(3952)]))
        .commit(chunk(2, 1, &[block(16)]))
        .stats(&[("chunks_overwritten", 0), ("write_wrap_count", 1)])
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]))
        .commit(chunk(1, 1, &[frag("d")]))
        .stats(&[("chunks_written", 5), ("chunks_discarded", 0), ("chunks_overwritten", 0)])
        .read("######## ######## c d");
}

#[test]
fn unread_bytes_of_an_evicted_copy_stay_lost() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]).scraped(100))
        .commit(chunk(2, 0, &[block(4080)]))
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c")]))
        .read("c!65")
        .stats(&[("chunks_overwritten", 2)]);
}

#[test]
fn discard_seals_at_the_first_chunk_that_does_not_fit() {
    Chain::new(4096, Policy::Discard)
        .commit(chunk(1, 0, &[frag("a"), frag("b")]).scraped(1000))
        .commit(chunk(2, 0, &[block(3000)]))
        .commit(chunk(2, 1, &[block(100)]))
        .commit(chunk(2, 2, &[frag("x")]))
        .stats(&[("chunks_discarded", 2), ("write_wrap_count", 0)])
        .read("a ########")
        .commit(chunk(1, 0, &[frag("a"), frag("b")]))
        .read("b")
        .commit(chunk(1, 0, &[frag("a"), frag("b")]))
        .stats(&[
            ("chunks_discarded", 3),
            ("chunks_rewritten", 1),
            ("duplicate_commits", 0),
            ("chunks_read", 2),
        ]);
}

#[test]
fn an_exact_fill_does_not_seal() {
    let chain = Chain::new(4096, Policy::Discard).commit(chunk(1, 0, &[block(4080)])).read("########");
    assert_eq!(chain.model.write_offset(), 4096);
    chain
        .stats(&[("chunks_discarded", 0)])
        .commit(chunk(1, 1, &[frag("a")]))
        .stats(&[("chunks_discarded", 1), ("write_wrap_count", 0)]);
}

#[test]
fn late_and_old_commits() {
    Chain::ring()
        .commit(chunk(1, 4, &[frag("a")]))
        .commit(chunk(1, 5, &[frag("b")]))
        .read("a b")
        .commit(chunk(1, 5, &[frag("b")]))
        .stats(&[("duplicate_commits", 1), ("chunks_discarded", 0)])
        .commit(chunk(1, 4, &[frag("a")]))
        .commit(chunk(1, 5, &[frag("b"), frag("more")]))
        .stats(&[("duplicate_commits", 1), ("chunks_discarded", 2), ("chunks_written", 2)]);
}

#[test]
fn a_write_may_evict_newer_chunks_of_its_own_sequence() {
    // 7 lies where 5 goes. 5 is kept; after it 8 is no gap, since 7 was consumed already.
    Chain::ring()
        .commit(chunk(1, 7, &[block(2000)]))
        .commit(chunk(2, 0, &[block(2000)]))
        .commit(chunk(1, 5, &[frag("five"), block(100)]))
        .commit(chunk(1, 8, &[frag("eight")]))
        .read("######## five!65 ######## eight")
        .stats(&[("chunks_discarded", 0)]);
}

#[test]
fn an_empty_scraped_chunk_inside_a_packet_is_waited_for() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("b1")]).flags(LN))
        .commit(chunk(1, 1, &[frag("b2")]).flags(FP).scraped(100))
        .commit(chunk(1, 2, &[frag("c")]))
        .read("")
        .commit(chunk(1, 1, &[frag("b2")]).flags(FP))
        .read("b1b2 c");
}

#[test]
fn an_ended_writer_starts_again() {
    Chain::ring()
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
        .stats(&[("chunks_discarded", 0), ("duplicate_commits", 0), ("chunks_committed_out_of_order", 0)]);
}

#[test]
fn an_ended_life_with_a_successor_stalls_nobody() {
    Chain::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b")]).scraped(100))
        .commit(chunk(1, 1, &[frag("c1")]).flags(LN))
        .end_producer()
        .read("a")
        .commit(chunk(1, 2, &[frag("c2"), frag("d")]).flags(FP))
        .read("d!41");
}

#[test]
fn the_key_zero_is_refused() {
    let mut model = Model::new(4096, Policy::Ring);
    let identity = Identity::default();
    let mut of = |producer_id, len: usize| {
        let bytes = vec![0; len];
        model.commit(&Chunk {
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
    assert_eq!(model.stats().chunks_written, 1);
}

#[test]
fn clones_continue_where_the_source_stands() {
    let mut chain = Chain::ring()
        .commit(chunk(1, 0, &[frag("a"), frag("b"), frag("c1")]).flags(LN))
        .commit(chunk(1, 2, &[frag("c3"), frag("d")]).flags(FP));
    chain.model.begin_read();
    chain.model.read_next().expect("a");
    let mut clone = Chain { model: chain.model.clone_read_only() };
    assert_eq!(clone.model.writer_stats(), chain.model.writer_stats());
    assert!(clone.model.read_next().is_none(), "a clone has no pass yet");
    assert!(!clone.model.patch(1, 1, 0, &[], false));
    clone =
        clone.read("b d!27").stats(&[("chunks_read", 2), ("readaheads_failed", 1), ("chunks_written", 2)]);
    chain.read("b d!27");
    assert!(clone.model.read_next().is_none());
}

#[test]
fn the_sink_sees_what_is_lost() {
    fn keep_x(packet: &watershed_model::Packet) -> bool {
        packet.slices[0][0] == b'x'
    }
    let mut chain = Chain::ring();
    chain.model.set_overwrite_sink(keep_x);
    let mut chain = chain
        .commit(chunk(1, 0, &[frag("x1"), frag("x2")]).flags(LN))
        .commit(chunk(2, 0, &[block(4000)]))
        .commit(chunk(1, 1, &[frag("x3"), frag("y")]).flags(FP))
        .commit(chunk(3, 0, &[frag("z")]))
        .read("######## y z");
    let evicted = chain.model.take_evicted();
    assert_eq!(evicted.len(), 2);
    assert_eq!(evicted[1].slices, [b"x2".to_vec(), b"x3".to_vec()]);
    assert!(evicted.iter().all(|packet| packet.loss & loss::OVERWRITE == 0));
    assert_eq!(chain.model.ledger().overwritten, Amount { chunks: 1, bytes: 32 });
}
