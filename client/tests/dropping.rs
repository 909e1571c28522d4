//! What a writer that drops costs, and how soon it finds a chunk that came free: counted in pages
//! that it looks into.

mod support;

use std::sync::Arc;

use support::*;
use watershed_client::{Arbiter, ArbiterOptions, ExhaustedPolicy, TraceWriter};
use watershed_smb::PageLayout;

/// Pages that a search looks into that are not its turn: two behind the last chunk that was taken
/// and the one that was freed last.
const NEAR: u64 = 3;

/// A packet that fills a page, with what the writer may have to say before it.
static PACKET: [u8; 4072] = [7; 4072];

fn fill(writer: &mut TraceWriter) {
    writer.write_packet(&PACKET);
}

/// A memory that one writer has filled, with nobody who would free it but the test.
fn full(pages: usize, policy: ExhaustedPolicy) -> (Arc<FakeService>, Arbiter, TraceWriter) {
    let service = FakeService::new(pages, 4096);
    let arbiter = service.arbiter(ArbiterOptions { stall_limit: 1, ..Default::default() });
    let mut writer = arbiter.create_writer(1, policy);
    (0..pages).for_each(|_| fill(&mut writer));
    assert_eq!((writer.packets_dropped(), arbiter.stats().chunks_acquired), (0, pages as u64));
    (service, arbiter, writer)
}

/// As the service does when it has copied the chunk, in whatever process it is.
fn free(service: &FakeService, page: usize) {
    service.smb.try_begin_read(page, 0).expect("complete").release().expect("nobody tampers here");
}

#[test]
fn a_dropped_packet_costs_the_same_in_any_memory() {
    for policy in [ExhaustedPolicy::Drop, ExhaustedPolicy::StallThenDrop] {
        for pages in [64, 2048, 8192] {
            let (_service, arbiter, mut writer) = full(pages, policy);
            let filled = writer.full_pages();
            assert!(filled <= pages as u64, "a page is full when the next one is taken: {filled}");
            fill(&mut writer);
            let first = writer.full_pages() - filled;
            // One that waits looks again after each wait.
            let searches = 1 + arbiter.stats().stalls;
            let all = searches * pages as u64..=searches * (pages as u64 + NEAR);
            assert!(all.contains(&first), "the first one is sure that all is full: {first} of {pages}");
            (0..8000).for_each(|_| fill(&mut writer));
            let others = writer.full_pages() - filled - first;
            assert!(others <= 1000 * NEAR, "three for eight packets: {others} of {pages} pages");
            assert_eq!(writer.packets_dropped(), 8001);
        }
    }
}

/// A service that counts what it frees: a dropped packet is one load, and the first packet after
/// many finds whatever came free.
#[test]
fn nothing_is_looked_at_until_the_service_has_freed_a_chunk() {
    for pages in [64, 8192] {
        let (service, _arbiter, mut writer) = full(pages, ExhaustedPolicy::Drop);
        service.smb.publish_free_epoch();
        fill(&mut writer);
        let looked = writer.full_pages();
        (0..pages).for_each(|_| fill(&mut writer));
        assert_eq!((writer.full_pages(), writer.packets_dropped()), (looked, 1 + pages as u64));
        for page in [pages / 3, 0, pages - 1] {
            free(&service, page);
            let dropped = writer.packets_dropped();
            fill(&mut writer);
            assert_eq!(writer.packets_dropped(), dropped, "page {page} of {pages}");
            (0..pages).for_each(|_| fill(&mut writer));
        }
    }
}

/// The service is always behind by all of the memory: what it frees is taken at once, and what does
/// not fit costs no search of everything each time.
#[test]
fn what_comes_free_in_order_is_found_at_once() {
    let pages = 1024;
    let (service, _arbiter, mut writer) = full(pages, ExhaustedPolicy::Drop);
    let filled = writer.full_pages();
    let rounds = 3 * pages;
    for round in 0..rounds {
        free(&service, round % pages);
        fill(&mut writer);
        fill(&mut writer);
        assert_eq!(writer.packets_dropped(), round as u64 + 1, "the first of the two got through");
    }
    let looked = writer.full_pages() - filled;
    assert!(looked <= pages as u64 + rounds as u64 * (8 + 2 * NEAR), "{looked} pages");
}

#[test]
fn what_comes_free_anywhere_is_found_at_once() {
    let pages = 1024;
    let (service, _arbiter, mut writer) = full(pages, ExhaustedPolicy::Drop);
    for round in 0..64 {
        fill(&mut writer);
        let dropped = writer.packets_dropped();
        free(&service, round * 389 % pages);
        fill(&mut writer);
        assert_eq!(writer.packets_dropped(), dropped, "round {round}");
    }
}

/// A slow writer: twenty chunks come free between two packets, others take all but one, and that
/// one is nowhere near.
#[test]
fn a_slow_writer_finds_what_others_left() {
    let pages = 64;
    let (service, _arbiter, mut writer) = full(pages, ExhaustedPolicy::Drop);
    service.smb.publish_free_epoch();
    fill(&mut writer);
    for round in 0..32 {
        let left = (round * 23 + 30) % pages;
        let mut attempts = 0;
        loop {
            let others = (0..20).map(|other| (left + 7 + other) % pages);
            if attempts == 0 {
                free(&service, left);
            }
            for page in others {
                free(&service, page);
                let chunk = service.smb.try_acquire_within(page, 1, PageLayout::Div1).expect("just freed");
                service.smb.complete(chunk).expect("nobody tampers here");
            }
            let dropped = writer.packets_dropped();
            fill(&mut writer);
            attempts += 1;
            if writer.packets_dropped() == dropped {
                break;
            }
            assert!(attempts < 6, "round {round}: a page is free, and nobody else takes it");
        }
        fill(&mut writer);
    }
}

/// In a small memory nothing is hidden.
#[test]
fn what_comes_free_in_sixteen_pages_is_found_at_once() {
    let (service, _arbiter, mut writer) = full(16, ExhaustedPolicy::Drop);
    for round in 0..64 {
        (0..round % 20).for_each(|_| fill(&mut writer));
        let dropped = writer.packets_dropped();
        [3, 7, 13].iter().for_each(|page| free(&service, (round + page) % 16));
        (0..3).for_each(|_| fill(&mut writer));
        assert_eq!(writer.packets_dropped(), dropped, "round {round}");
    }
}

/// Two pages come free between two packets: the first one is hidden by the second, and found by
/// looking on.
#[test]
fn what_comes_free_behind_something_else_is_found_in_time() {
    let pages = 1024;
    let (service, _arbiter, mut writer) = full(pages, ExhaustedPolicy::Drop);
    let most = (0..64).map(|round| {
        (0..pages).for_each(|_| fill(&mut writer));
        free(&service, round * 389 % pages);
        free(&service, (round * 389 + pages / 2) % pages);
        let dropped = writer.packets_dropped();
        let through = writer.packets_dropped() + 8 * pages as u64 + 130;
        let mut written = 0;
        while written < 2 && writer.packets_dropped() < through {
            let before = writer.packets_dropped();
            fill(&mut writer);
            written += usize::from(writer.packets_dropped() == before);
        }
        assert_eq!(written, 2, "round {round}");
        writer.packets_dropped() - dropped
    });
    let most = most.max().expect("rounds");
    assert!(most > 0, "both were found at once: nothing was hidden");
}

/// Chunks that other writers hold in a row are no reason to drop: half of the memory here.
#[test]
fn what_others_hold_is_passed_over() {
    let pages = 256;
    let service = FakeService::new(pages, 4096);
    let arbiter = service.arbiter(ArbiterOptions::default());
    let mut holders: Vec<_> =
        (0..pages / 2).map(|_| arbiter.create_writer(1, ExhaustedPolicy::Drop)).collect();
    holders.iter_mut().for_each(|holder| holder.write_packet(b"held"));
    let mut writer = arbiter.create_writer(1, ExhaustedPolicy::Drop);
    for _ in 0..20 {
        // Less than there is, so that the writer comes round to what is held again and again.
        (0..pages / 3).for_each(|_| fill(&mut writer));
        arbiter.flush_commits();
    }
    assert_eq!((writer.packets_dropped(), arbiter.stats().chunks_refused), (0, 0));
}
