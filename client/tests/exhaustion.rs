//! What happens when the service does not keep up: by policy, and what the reader is told.

mod support;

use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use support::*;
use watershed_client::{Arbiter, ArbiterOptions, ExhaustedPolicy, TraceWriter};
use watershed_smb::{ChunkFlags, PageLayout};

fn with_writer(
    service: &Arc<FakeService>,
    options: ArbiterOptions,
    policy: ExhaustedPolicy,
) -> (Arbiter, TraceWriter) {
    let arbiter = service.arbiter(options);
    let writer = arbiter.create_writer(1, policy);
    (arbiter, writer)
}

#[test]
fn drop_between_packets_leaves_no_marker_and_is_reported_by_the_next_packet() {
    let service = FakeService::new(2, 4096);
    let (arbiter, mut writer) = with_writer(&service, ArbiterOptions::default(), ExhaustedPolicy::Drop);
    writer.write_packet(&body(1, 4069));
    writer.write_packet(&body(2, 4072));
    for _ in 0..5 {
        writer.write_packet(b"dropped");
    }
    writer.new_packet().nested(1).string(2, "dropped too");
    assert_eq!(arbiter.stats().stalls, 0, "nothing waits");
    assert_eq!((writer.packets_dropped(), arbiter.stats().packets_dropped), (6, 6));
    arbiter.flush_commits();
    writer.write_packet(b"after");
    writer.write_packet(b"later");
    writer.flush();
    arbiter.flush_commits();
    let packets = service.packets(1);
    let parts: Vec<_> = packets.iter().map(|packet| split_prefix(&packet.bytes)).collect();
    assert_eq!(parts[2..], [(false, true, &b"after"[..]), (false, false, &b"later"[..])]);
    assert!(packets.iter().all(|packet| !packet.cut_before));
    assert_eq!(service.chunks(1).keys().copied().collect::<Vec<_>>(), [0, 1, 2], "no gap in the ids");
}

#[test]
fn drop_in_the_middle_of_a_packet_leaves_the_marker() {
    let service = FakeService::new(2, 4096);
    let (arbiter, mut writer) = with_writer(&service, ArbiterOptions::default(), ExhaustedPolicy::Drop);
    writer.write_packet(b"before");
    writer.write_packet(&body(1, 20_000));
    writer.write_packet(b"dropped");
    assert_eq!(writer.packets_dropped(), 2);
    arbiter.flush_commits();
    writer.write_packet(b"after");
    writer.flush();
    arbiter.flush_commits();
    let chunks = service.chunks(1);
    let (f, l) = (ChunkFlags::FIRST_CONTINUES, ChunkFlags::LAST_CONTINUES);
    assert_eq!((chunks[&0].flags, chunks[&1].flags, chunks[&2].flags), (l, f, ChunkFlags::NONE));
    assert_eq!(chunks[&1].payload[..4], [0xFF, 0xFF, 0xFF, 0x7F]);
    assert_eq!(fragments(&chunks[&1]), [None]);
    let packets = service.packets(1);
    assert_eq!(split_prefix(&packets[0].bytes), (true, false, &b"before"[..]));
    assert_eq!(
        (packets[1].cut_before, split_prefix(&packets[1].bytes)),
        (true, (false, true, &b"after"[..]))
    );
}

#[test]
fn the_first_packet_says_so_also_when_the_first_one_was_dropped() {
    let service = FakeService::new(1, 4096);
    let (arbiter, mut writer) = with_writer(&service, ArbiterOptions::default(), ExhaustedPolicy::Drop);
    writer.write_packet(&body(1, 9000));
    arbiter.flush_commits();
    writer.write_packet(b"a");
    writer.flush();
    arbiter.flush_commits();
    assert_eq!(split_prefix(&service.packets(1)[0].bytes), (true, true, &b"a"[..]));
}

#[test]
fn sizes_owed_to_a_dropped_packet_are_still_paid() {
    let service = FakeService::new(2, 4096);
    let (arbiter, mut writer) = with_writer(&service, ArbiterOptions::default(), ExhaustedPolicy::Drop);
    {
        let mut packet = writer.new_packet();
        let mut outer = packet.nested(1);
        outer.bytes(2, &body(1, 5000));
        outer.nested(3).bytes(4, &body(2, 9000));
    }
    arbiter.flush_commits();
    // Without its patch the first chunk would hold up the sequence for ever: `packets` asserts that
    // none is missing.
    assert_eq!(service.packets(1), []);
    writer.write_packet(b"next");
    writer.flush();
    arbiter.flush_commits();
    assert!(service.packets(1)[0].cut_before);
}

/// A thread that resumes the stalled service after so many waits of writers, and goes on committing
/// until told.
fn resume_after(service: &Arc<FakeService>, arbiter: &Arbiter, stalls: u64) -> impl FnOnce() + use<> {
    let (service, arbiter) = (service.clone(), arbiter.clone());
    let end = Arc::new(AtomicBool::new(false));
    let thread = std::thread::spawn({
        let end = end.clone();
        move || {
            wait_until(|| arbiter.stats().stalls >= stalls || end.load(Ordering::SeqCst));
            service.resume();
            while !end.load(Ordering::SeqCst) {
                arbiter.flush_commits();
                std::thread::sleep(Duration::from_millis(1));
            }
            arbiter.flush_commits();
        }
    });
    move || {
        end.store(true, Ordering::SeqCst);
        thread.join().unwrap();
    }
}

#[test]
fn stalling_writers_wait_for_a_stalled_service_and_lose_nothing() {
    for policy in [ExhaustedPolicy::StallThenDrop, ExhaustedPolicy::StallThenAbort] {
        let service = FakeService::new(2, 4096);
        let (arbiter, mut writer) = with_writer(&service, ArbiterOptions::default(), policy);
        service.stall();
        let finish = resume_after(&service, &arbiter, 5);
        let packets: Vec<_> = (0..30).map(|i| body(i, 1000 + 300 * i as usize)).collect();
        packets.iter().for_each(|packet| writer.write_packet(packet));
        writer.flush();
        finish();
        assert!(arbiter.stats().stalls > 0);
        assert_eq!(writer.packets_dropped(), 0);
        let read: Vec<_> = service.packets(1).iter().map(|p| split_prefix(&p.bytes).2.to_vec()).collect();
        assert_eq!(read, packets);
    }
}

#[test]
fn stall_then_drop_gives_up_once_and_waits_again_after_it_recovered() {
    let service = FakeService::new(1, 4096);
    let options = ArbiterOptions { stall_limit: 4, ..Default::default() };
    let (arbiter, mut writer) = with_writer(&service, options, ExhaustedPolicy::StallThenDrop);
    service.stall();
    writer.write_packet(&body(1, 4069));
    assert_eq!(arbiter.stats().stalls, 0);
    writer.write_packet(b"dropped after four waits");
    assert_eq!(arbiter.stats().stalls, 4);
    writer.write_packet(b"dropped at once");
    assert_eq!((arbiter.stats().stalls, writer.packets_dropped()), (4, 2));
    service.resume();
    arbiter.flush_commits();
    writer.write_packet(&body(2, 4068));
    writer.write_packet(b"dropped after four waits again");
    assert_eq!((arbiter.stats().stalls, writer.packets_dropped()), (8, 3));
}

#[test]
fn a_packet_that_waited_in_vain_is_marked_by_the_next_chunk() {
    let service = FakeService::new(2, 4096);
    let options = ArbiterOptions { stall_limit: 2, ..Default::default() };
    let (arbiter, mut writer) = with_writer(&service, options, ExhaustedPolicy::StallThenDrop);
    service.stall();
    {
        let mut packet = writer.new_packet();
        packet.nested(1).bytes(2, &body(1, 20_000));
    }
    assert_eq!(writer.packets_dropped(), 1);
    service.resume();
    arbiter.flush_commits();
    writer.write_packet(b"after");
    drop(writer);
    arbiter.flush_commits();
    let chunks = service.chunks(1);
    let (f, l) = (ChunkFlags::FIRST_CONTINUES, ChunkFlags::LAST_CONTINUES);
    let flags: Vec<_> =
        chunks.values().map(|chunk| chunk.flags.without(ChunkFlags::NEEDS_PATCHING)).collect();
    assert_eq!(flags, [l, f.with(l), f, ChunkFlags::NONE], "both chunks were handed over before the wait");
    assert_eq!(fragments(&chunks[&2]), [None]);
    let packets = service.packets(1);
    assert_eq!((packets[0].cut_before, split_prefix(&packets[0].bytes)), (true, (true, true, &b"after"[..])));
}

#[test]
fn a_writer_that_ends_marks_what_it_abandoned() {
    let service = FakeService::new(1, 4096);
    let options = ArbiterOptions { stall_limit: 2, ..Default::default() };
    let (arbiter, mut writer) = with_writer(&service, options, ExhaustedPolicy::StallThenDrop);
    service.stall();
    writer.write_packet(&body(1, 9000));
    service.resume();
    arbiter.flush_commits();
    drop(writer);
    arbiter.flush_commits();
    assert_eq!(fragments(&service.chunks(1)[&1]), [None]);
    assert_eq!(service.packets(1), []);
}

/// More writers than chunks, all in the middle of packets: none may keep a chunk while it waits for
/// one.
#[test]
fn waiting_writers_do_not_wait_for_each_other() {
    let service = FakeService::new(1, 4096);
    let arbiter = service.arbiter(ArbiterOptions::default());
    service.stall();
    let finish = resume_after(&service, &arbiter, 1);
    let threads = (0..4).map(|_| {
        let mut writer = arbiter.create_writer(1, ExhaustedPolicy::StallThenDrop);
        std::thread::spawn(move || {
            writer.write_packet(&body(1, 30_000));
            (writer.writer_id(), writer.packets_dropped())
        })
    });
    for thread in threads.collect::<Vec<_>>() {
        let (writer_id, dropped) = thread.join().unwrap();
        assert_eq!(dropped, 0, "writer {writer_id}");
    }
    finish();
    for writer_id in 1..=4 {
        assert_eq!(service.packets(writer_id).len(), 1);
    }
}

/// What a socket would take as one frame of at most 128 KiB.
#[test]
fn a_batch_that_does_not_fit_a_frame_is_sent_in_pieces() {
    let service = FakeService::new(1200, 4096);
    let options = ArbiterOptions { layout: watershed_smb::PageLayout::Div14, ..Default::default() };
    let (arbiter, mut writer) = with_writer(&service, options, ExhaustedPolicy::Drop);
    let packets = 15_000;
    (0..packets).for_each(|i| writer.write_packet(&body(i, 270)));
    writer.flush();
    let done = Arc::new(AtomicBool::new(false));
    let told = done.clone();
    arbiter.request_flush(Some(Box::new(move || told.store(true, Ordering::SeqCst))));
    arbiter.flush_commits();
    assert!(done.load(Ordering::SeqCst));
    assert_eq!((writer.packets_dropped(), service.packets(1).len() as u64), (0, packets));
    let sizes: Vec<_> = service.take_requests().iter().map(prost::Message::encoded_len).collect();
    assert!(sizes.len() > 1 && sizes.iter().all(|size| *size <= (128 << 10) - 512), "{sizes:?}");
}

/// Run by the test below in a process of its own.
#[test]
#[ignore = "ends the process; run by stall_then_abort_ends_the_process"]
fn child_that_stalls_for_ever() {
    let service = FakeService::new(1, 4096);
    let options = ArbiterOptions { stall_limit: 3, allow_abort: true, ..Default::default() };
    let (_arbiter, mut writer) = with_writer(&service, options, ExhaustedPolicy::StallThenAbort);
    service.stall();
    writer.write_packet(&body(1, 9000));
    unreachable!("the process has ended");
}

/// A config alone must not end a program: without its owner's leave the packet is dropped. If this
/// fails, the whole test program ends.
#[test]
fn stall_then_abort_drops_where_nobody_allowed_it() {
    let service = FakeService::new(1, 4096);
    let options = ArbiterOptions { stall_limit: 3, ..Default::default() };
    let policy = ExhaustedPolicy::from_config(2).expect("a policy of the format");
    assert_eq!(policy, ExhaustedPolicy::StallThenAbort);
    let (arbiter, mut writer) = with_writer(&service, options, policy);
    service.stall();
    writer.write_packet(&body(1, 9000));
    assert_eq!((writer.packets_dropped(), arbiter.stats().stalls), (1, 3));
}

#[test]
fn stall_then_abort_ends_the_process() {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "child_that_stalls_for_ever", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    use std::os::unix::process::ExitStatusExt;
    assert_eq!(child.status.signal(), Some(6), "SIGABRT");
    let message = String::from_utf8_lossy(&child.stderr);
    assert!(message.contains("in 3 waits") && message.contains("buffer_exhausted_policy"), "{message}");
}

#[test]
fn a_writer_on_the_producers_thread_commits_instead_of_waiting_for_itself() {
    let service = FakeService::new(2, 4096);
    let arbiter = service.arbiter(ArbiterOptions::default());
    arbiter.set_producer_thread();
    let mut writer = arbiter.create_writer(1, ExhaustedPolicy::StallThenAbort);
    let packets: Vec<_> = (0..20).map(|i| body(i, 3000)).collect();
    packets.iter().for_each(|packet| writer.write_packet(packet));
    writer.flush();
    arbiter.flush_commits();
    assert_eq!(service.packets(1).len(), 20);
}

#[test]
fn a_shut_down_lets_stalled_writers_go() {
    let service = FakeService::new(1, 4096);
    let (arbiter, mut writer) =
        with_writer(&service, ArbiterOptions::default(), ExhaustedPolicy::StallThenAbort);
    service.stall();
    let thread = std::thread::spawn(move || {
        writer.write_packet(&body(1, 50_000));
        writer.packets_dropped()
    });
    wait_until(|| arbiter.stats().stalls > 0);
    arbiter.shut_down();
    assert_eq!(thread.join().unwrap(), 1);
}

#[test]
fn tampering_with_the_bitmap_costs_the_chunk_and_is_counted() {
    let service = FakeService::new(2, 4096);
    let (arbiter, mut writer) = with_writer(&service, ArbiterOptions::default(), ExhaustedPolicy::Drop);
    writer.write_packet(b"lost");
    // Somebody else completes and frees the chunk under the writer.
    let forged = watershed_smb::Smb::new(service.smb.memory().clone(), 4096).unwrap();
    steal(&forged);
    writer.flush();
    writer.write_packet(b"kept");
    writer.flush();
    assert_eq!(arbiter.stats().violations, 1);
}

/// Frees chunk 0 of page 0 without owning it: the token of a chunk says only where it is, so the
/// token of another memory of the same shape does.
fn steal(smb: &watershed_smb::Smb) {
    let twin = FakeService::new(2, 4096);
    let token = twin.smb.try_acquire(0, PageLayout::Div1).unwrap();
    smb.abandon(token).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 150, ..ProptestConfig::default() })]

    /// Whatever is dropped and whenever the service runs: what arrives is whole and in order, each
    /// gap is told by the packet behind it, and nothing else claims a loss.
    #[test]
    fn every_loss_is_told_once(
        steps in prop::collection::vec((prop_oneof![1_usize..60, 1_usize..9000], any::<bool>()), 1..60),
        layout in prop::sample::select(&PageLayout::PARTITIONED[..]),
    ) {
        let service = FakeService::new(2, 4096);
        let options = ArbiterOptions { layout, ..Default::default() };
        let (arbiter, mut writer) = with_writer(&service, options, ExhaustedPolicy::Drop);
        let mut arrived = Vec::new();
        let mut lost_before = false;
        for (i, (size, commit)) in steps.iter().enumerate() {
            let packet = body(i as u64, *size);
            let dropped = writer.packets_dropped();
            writer.write_packet(&packet);
            if writer.packets_dropped() > dropped {
                lost_before = true;
            } else {
                arrived.push((std::mem::take(&mut lost_before), packet));
            }
            if *commit {
                writer.flush();
                arbiter.flush_commits();
            }
        }
        drop(writer);
        arbiter.flush_commits();
        let packets = service.packets(1);
        let read: Vec<_> = packets.iter().map(|packet| {
            let (first, loss, bytes) = split_prefix(&packet.bytes);
            assert!(loss || !packet.cut_before, "a marker is never the only report");
            (first, loss, bytes.to_vec())
        }).collect();
        let expected: Vec<_> = arrived.into_iter().enumerate().map(|(i, (loss, bytes))| (i == 0, loss, bytes)).collect();
        prop_assert_eq!(read, expected);
    }

    /// Many writers on threads of their own against a service that runs now and then.
    #[test]
    fn writers_on_threads_keep_their_order(
        writers in 2_u64..5,
        packets in 1_u64..60,
        layout in prop::sample::select(&PageLayout::PARTITIONED[..]),
        pages in 2_usize..8,
        drop_policy in any::<bool>(),
    ) {
        let service = FakeService::new(pages, 4096);
        let arbiter = service.arbiter(ArbiterOptions { layout, ..Default::default() });
        let policy = if drop_policy { ExhaustedPolicy::Drop } else { ExhaustedPolicy::StallThenDrop };
        service.stall();
        let finish = resume_after(&service, &arbiter, u64::from(!drop_policy));
        let threads: Vec<_> = (0..writers).map(|seed| {
            let mut writer = arbiter.create_writer(1, policy);
            std::thread::spawn(move || {
                for i in 0..packets {
                    // Bodies open with their number: drops show as jumps.
                    let mut packet = i.to_le_bytes().map(|byte| byte | 0x40).to_vec();
                    packet.extend(body(seed + i, (seed * 977 + i * 131) as usize % 3000));
                    writer.write_packet(&packet);
                }
                (writer.writer_id(), writer.packets_dropped())
            })
        }).collect();
        let written: Vec<_> = threads.into_iter().map(|thread| thread.join().unwrap()).collect();
        finish();
        for (seed, (writer_id, dropped)) in written.into_iter().enumerate() {
            let read = service.packets(writer_id);
            prop_assert_eq!(read.len() as u64 + dropped, packets);
            prop_assert!(drop_policy || dropped == 0);
            let mut expected = 0;
            for packet in &read {
                let (_, loss, bytes) = split_prefix(&packet.bytes);
                let i = u64::from(bytes[0] & 0x3F);
                prop_assert!(if loss { i > expected } else { i == expected }, "{} {} {}", i, expected, loss);
                let seed = seed as u64;
                prop_assert_eq!(&bytes[8..], &body(seed + i, (seed * 977 + i * 131) as usize % 3000)[..]);
                expected = i + 1;
            }
        }
        prop_assert_eq!(arbiter.stats().violations, 0);
    }
}
