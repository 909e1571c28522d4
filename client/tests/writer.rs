//! What a TraceWriter leaves in shared memory, read back by a reader of its own.

mod support;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use proptest::prelude::*;
use support::*;
use watershed_client::{Arbiter, ArbiterOptions, ExhaustedPolicy, TraceWriter};
use watershed_smb::{ChunkFlags, PageLayout};

/// An arbiter whose writers commit by themselves when memory is short: nothing is lost, nothing
/// waits.
fn lossless(service: &Arc<FakeService>, options: ArbiterOptions) -> Arbiter {
    let arbiter = service.arbiter(options);
    arbiter.set_producer_thread();
    arbiter
}

fn contents(service: &FakeService, writer_id: u16) -> Vec<Vec<u8>> {
    let packets = service.packets(writer_id);
    for (i, packet) in packets.iter().enumerate() {
        let (first, loss, _) = split_prefix(&packet.bytes);
        assert_eq!((first, loss, packet.cut_before), (i == 0, false, false), "packet {i}");
    }
    packets.iter().map(|packet| split_prefix(&packet.bytes).2.to_vec()).collect()
}

#[test]
fn one_small_packet_byte_by_byte() {
    let service = FakeService::new(1, 4096);
    let arbiter = lossless(&service, ArbiterOptions::default());
    let mut writer = arbiter.create_writer(9, ExhaustedPolicy::Drop);
    assert_eq!(writer.writer_id(), 1);
    writer.write_packet(b"hello");
    writer.flush();
    arbiter.flush_commits();
    let chunks = service.chunks(1);
    let chunk = &chunks[&0];
    assert_eq!(
        (chunks.len(), chunk.fragments, chunk.flags, chunk.target_buffer),
        (1, 2, ChunkFlags::NONE, 9)
    );
    // One byte of size, first_packet_on_sequence = true, the packet, and the empty fragment counted
    // in advance.
    assert_eq!(chunk.payload[..11], [8, 0xB8, 0x05, 0x01, b'h', b'e', b'l', b'l', b'o', 0, 0]);
    assert_eq!(service.registered(), [(1, 9)]);
    drop(writer);
    arbiter.flush_commits();
    assert_eq!(service.unregistered(), [1]);
}

#[test]
fn sizes_change_their_form_at_127() {
    let service = FakeService::new(4, 4096);
    let arbiter = lossless(&service, ArbiterOptions::default());
    let mut writer = arbiter.create_writer(1, ExhaustedPolicy::Drop);
    writer.write_packet(b"");
    writer.write_packet(&body(1, 126));
    writer.write_packet(&body(2, 127));
    writer.flush();
    arbiter.flush_commits();
    let payload = &service.chunks(1)[&0].payload;
    assert_eq!(payload[..4], [3, 0xB8, 0x05, 0x01]);
    assert_eq!(payload[4], 126);
    assert_eq!(payload[4 + 127..][..4], [0xFF, 0x80, 0x80, 0x00]);
}

#[test]
fn a_packet_over_three_chunks_has_the_flags_and_no_patches() {
    let service = FakeService::new(4, 4096);
    let arbiter = lossless(&service, ArbiterOptions::default());
    let mut writer = arbiter.create_writer(1, ExhaustedPolicy::Drop);
    writer.write_packet(&body(3, 9000));
    writer.write_packet(&body(4, 10));
    writer.flush();
    arbiter.flush_commits();
    let chunks = service.chunks(1);
    let (f, l) = (ChunkFlags::FIRST_CONTINUES, ChunkFlags::LAST_CONTINUES);
    let flags: Vec<_> = chunks.values().map(|chunk| (chunk.flags, chunk.fragments)).collect();
    assert_eq!(flags, [(l, 1), (f.with(l), 1), (f, 3)]);
    // 4080 bytes of payload less the size field.
    assert_eq!(chunks[&0].payload[..4], [0x80 | (4076 % 128) as u8, 0x80 | (4076 / 128) as u8, 0x80, 0]);
    assert_eq!(contents(&service, 1), [body(3, 9000), body(4, 10)]);
    assert!(service.take_requests().iter().all(|request| request.chunks_to_patch.is_empty()));
}

#[test]
fn a_scrape_sees_every_finished_packet_and_nothing_of_the_next() {
    let service = FakeService::new(1, 4096);
    let arbiter = lossless(&service, ArbiterOptions::default());
    let mut writer = arbiter.create_writer(1, ExhaustedPolicy::Drop);
    let visible = || service.smb.scrape().map(|chunk| chunk.header().fragments).collect::<Vec<_>>();
    assert_eq!(visible(), []);
    {
        let mut packet = writer.new_packet();
        packet.string(1, "unfinished");
        assert_eq!(visible(), [], "a count of one shows nothing");
    }
    assert_eq!(visible(), [2]);
    {
        let mut packet = writer.new_packet();
        packet.string(1, "second");
        assert_eq!(visible(), [2], "the slot that was counted is taken");
    }
    assert_eq!(visible(), [3]);
    let scraped = service.smb.scrape().next().unwrap();
    let mut bytes = [0; 27];
    scraped.payload().copy_range(0, &mut bytes);
    assert_eq!(bytes, *b"\x0f\xb8\x05\x01\x0a\x0aunfinished\x08\x0a\x06second\0\0");
}

#[test]
fn a_chunk_ends_at_1022_packets() {
    let service = FakeService::new(4, 32768);
    let arbiter = lossless(&service, ArbiterOptions::default());
    let mut writer = arbiter.create_writer(1, ExhaustedPolicy::Drop);
    let packets: Vec<_> = (0..2500).map(|i| body(i, 3)).collect();
    packets.iter().for_each(|packet| writer.write_packet(packet));
    writer.flush();
    arbiter.flush_commits();
    let counts: Vec<_> = service.chunks(1).values().map(|chunk| chunk.fragments).collect();
    assert_eq!(counts, [1022, 1022, 457]);
    assert_eq!(contents(&service, 1), packets);
}

#[test]
fn nested_sizes_are_patched_over_the_wire_or_in_place() {
    for direct_patching in [false, true] {
        let service = FakeService::new(8, 4096);
        let arbiter = lossless(&service, ArbiterOptions { direct_patching, ..Default::default() });
        let mut writer = arbiter.create_writer(1, ExhaustedPolicy::Drop);
        {
            let mut packet = writer.new_packet();
            let mut outer = packet.nested(10);
            outer.bytes(1, &body(1, 4000));
            let mut inner = outer.nested(2);
            inner.bytes(1, &body(2, 3000));
            drop(inner);
            outer.varint(3, 7);
        }
        writer.flush();
        arbiter.flush_commits();
        let sent: usize = service.take_requests().iter().map(|request| request.chunks_to_patch.len()).sum();
        assert_eq!(sent == 0, direct_patching, "patched in place: nothing is sent");
        let chunks = service.chunks(1);
        let flag = |id: u32| chunks[&id].flags.contains(ChunkFlags::NEEDS_PATCHING);
        assert_eq!((flag(0), flag(1)), (!direct_patching, false));
        let packet = contents(&service, 1).remove(0);
        let inner: Vec<u8> = [&[0x0A, 0xB8, 0x17][..], &body(2, 3000)].concat();
        let (outer_tag, rest) = packet.split_at(1);
        let (outer_len, header) = varint(rest).unwrap();
        assert_eq!((outer_tag, outer_len as usize), (&[0x52][..], rest.len() - header));
        let rest = &rest[header + 3 + 4000..];
        let (inner_len, inner_header) = varint(&rest[1..]).unwrap();
        assert_eq!((rest[0], inner_len as usize), (0x12, inner.len()));
        assert_eq!(rest[1 + inner_header..], [&inner[..], &[0x18, 7]].concat());
    }
}

#[test]
fn a_batch_that_is_sent_does_not_wait_for_patches() {
    let service = FakeService::new(8, 4096);
    let arbiter = lossless(&service, ArbiterOptions { direct_patching: true, ..Default::default() });
    let mut writer = arbiter.create_writer(1, ExhaustedPolicy::Drop);
    {
        let mut packet = writer.new_packet();
        let mut outer = packet.nested(10);
        outer.bytes(1, &body(1, 4000));
        let mut inner = outer.nested(2);
        inner.bytes(1, &body(2, 500));
        // The first chunk is in the batch, still being written: it waits for two sizes.
        assert_eq!(service.smb.snapshot(0).unwrap().state(0), Some(watershed_smb::ChunkState::BeingWritten));
        arbiter.flush_commits();
        assert!(service.chunks(1)[&0].needs_patching, "forced out");
    }
    arbiter.flush_commits();
    let requests = service.take_requests();
    let group = &requests.last().unwrap().chunks_to_patch[0];
    assert_eq!((group.writer_id(), group.chunk_id(), group.patches.len()), (1, 0, 2));
    assert!(!group.has_more_patches() && !service.chunks(1)[&0].needs_patching);
}

#[test]
fn a_size_field_is_never_cut() {
    for fill in 4050..4080 {
        let service = FakeService::new(8, 4096);
        let arbiter = lossless(&service, ArbiterOptions::default());
        let mut writer = arbiter.create_writer(1, ExhaustedPolicy::Drop);
        {
            let mut packet = writer.new_packet();
            packet.bytes(1, &body(1, fill));
            packet.nested(2).bytes(3, &body(2, 200));
            packet.nested(4).varint(5, u64::MAX);
            packet.nested(6);
        }
        writer.flush();
        arbiter.flush_commits();
        let packet = contents(&service, 1).remove(0);
        let rest = &packet[3 + fill..];
        let (len, header) = varint(&rest[1..]).unwrap();
        assert_eq!((rest[0], len), (0x12, 203), "fill {fill}");
        let rest = &rest[1 + header + 203..];
        let (len, header) = varint(&rest[1..]).unwrap();
        assert_eq!((rest[0], len), (0x22, 11), "fill {fill}");
        let rest = &rest[1 + header + 11..];
        assert_eq!((rest[0], varint(&rest[1..]).unwrap().0), (0x32, 0), "fill {fill}");
    }
}

#[test]
fn a_leaked_message_ends_with_its_packet() {
    let service = FakeService::new(2, 4096);
    let arbiter = lossless(&service, ArbiterOptions::default());
    let mut writer = arbiter.create_writer(1, ExhaustedPolicy::Drop);
    let mut packet = writer.new_packet();
    std::mem::forget(packet.nested(1));
    packet.varint(2, 1);
    std::mem::forget(packet);
    writer.write_packet(b"next");
    writer.flush();
    arbiter.flush_commits();
    // The leaked message holds what followed in it; the next packet is whole.
    assert_eq!(contents(&service, 1), [vec![0x0A, 2, 0x10, 1], b"next".to_vec()]);
}

#[test]
fn a_flush_is_answered_behind_everything_before() {
    let service = FakeService::new(2, 4096);
    let arbiter = lossless(&service, ArbiterOptions::default());
    let mut writer = arbiter.create_writer(1, ExhaustedPolicy::Drop);
    let answered = Arc::new(AtomicUsize::new(0));
    let count = |answered: &Arc<AtomicUsize>| {
        let answered = answered.clone();
        move || {
            answered.fetch_add(1, Ordering::SeqCst);
        }
    };
    writer.write_packet(b"x");
    writer.flush_with(Box::new(count(&answered)));
    assert_eq!(answered.load(Ordering::SeqCst), 0);
    arbiter.flush_commits();
    assert_eq!((answered.load(Ordering::SeqCst), service.packets(1).len()), (1, 1));
    // Nothing to send: an empty request carries the answer.
    arbiter.request_flush(Some(Box::new(count(&answered))));
    arbiter.flush_commits();
    assert_eq!(answered.load(Ordering::SeqCst), 2);
    arbiter.flush_commits();
    assert_eq!(service.take_requests().len(), 2, "nothing to say: nothing is sent");
    arbiter.notify_flush_complete(7);
    assert_eq!(service.take_requests()[0].flush_request_id, Some(7));
    TraceWriter::discarding().flush_with(Box::new(count(&answered)));
    assert_eq!(answered.load(Ordering::SeqCst), 3);
}

#[test]
fn writers_beyond_the_ids_and_after_the_end_discard() {
    let service = FakeService::new(2, 4096);
    let arbiter = lossless(&service, ArbiterOptions::default());
    let mut writers: Vec<_> = (0..32767).map(|_| arbiter.create_writer(1, ExhaustedPolicy::Drop)).collect();
    let mut extra = arbiter.create_writer(1, ExhaustedPolicy::Drop);
    assert_eq!((writers[32766].writer_id(), extra.writer_id()), (32767, 0));
    extra.write_packet(b"nothing");
    extra.new_packet().nested(1).string(2, "nothing");
    extra.flush();
    writers.truncate(1);
    arbiter.flush_commits();
    assert_eq!(arbiter.create_writer(1, ExhaustedPolicy::Drop).writer_id(), 2);
    writers[0].write_packet(b"kept");
    writers[0].flush();
    arbiter.shut_down();
    assert_eq!(arbiter.create_writer(1, ExhaustedPolicy::Drop).writer_id(), 0);
    writers[0].write_packet(b"too late");
    writers[0].flush();
    arbiter.flush_commits();
    assert_eq!(contents(&service, 1), [b"kept"]);
}

#[test]
fn commits_wait_for_others_and_become_urgent() {
    use std::sync::Mutex;
    struct Wakes(Arc<Mutex<Vec<Duration>>>);
    impl watershed_client::Waker for Wakes {
        fn wake(&self, delay: Duration) {
            self.0.lock().unwrap().push(delay);
        }
    }
    let service = FakeService::new(8, 4096);
    let wakes = Arc::new(Mutex::new(Vec::new()));
    let batch = Duration::from_millis(50);
    let options = ArbiterOptions { batch_commits_duration: batch, ..Default::default() };
    let arbiter = Arbiter::new(service.smb.clone(), service.clone(), Box::new(Wakes(wakes.clone())), options);
    let take = || std::mem::take(&mut *wakes.lock().unwrap());
    let mut writer = arbiter.create_writer(1, ExhaustedPolicy::Drop);
    assert_eq!(take(), [batch], "the registration");
    for _ in 0..4 {
        writer.write_packet(&body(1, 4065));
    }
    assert_eq!(take(), [], "four of eight chunks and no page header: a wake-up is under way");
    writer.write_packet(&body(1, 4065));
    assert_eq!(take(), [Duration::ZERO], "more than half of the memory");
    writer.write_packet(&body(1, 4065));
    assert_eq!(take(), [], "one urgent wake-up is enough");
    arbiter.flush_commits();
    writer.new_packet().nested(1).bytes(2, &body(1, 5000));
    assert_eq!(take(), [batch, Duration::ZERO], "a chunk, then its patch");
}

/// A field of a generated message.
#[derive(Clone, Debug)]
enum Field {
    Varint(u64),
    Bytes(usize),
    Nested(Vec<Field>),
}

fn fields() -> impl Strategy<Value = Vec<Field>> {
    let leaf = prop_oneof![
        any::<u64>().prop_map(Field::Varint),
        (0_usize..200).prop_map(Field::Bytes),
        (0_usize..6000).prop_map(Field::Bytes),
    ];
    let field =
        leaf.prop_recursive(5, 24, 6, |inner| prop::collection::vec(inner, 0..6).prop_map(Field::Nested));
    prop::collection::vec(field, 0..6)
}

fn write_fields(message: &mut watershed_client::MessageWriter<'_>, fields: &[Field]) {
    for field in fields {
        match field {
            Field::Varint(value) => _ = message.varint(1, *value),
            Field::Bytes(len) => _ = message.bytes(2, &body(*len as u64, *len)),
            Field::Nested(fields) => write_fields(&mut message.nested(3), fields),
        }
    }
}

/// Takes the fields off the front of `bytes` and checks each of them.
fn check_fields<'a>(mut bytes: &'a [u8], fields: &[Field]) -> &'a [u8] {
    for field in fields {
        let tag = bytes[0];
        let (value, len) = varint(&bytes[1..]).unwrap();
        bytes = &bytes[1 + len..];
        match field {
            Field::Varint(expected) => assert_eq!((tag, value), (0x08, *expected)),
            Field::Bytes(expected) => {
                let (found, rest) = bytes.split_at(value as usize);
                assert_eq!((tag, found), (0x12, &body(*expected as u64, *expected)[..]));
                bytes = rest;
            }
            Field::Nested(fields) => {
                let (found, rest) = bytes.split_at(value as usize);
                assert_eq!(tag, 0x1A);
                assert!(check_fields(found, fields).is_empty(), "a nested size is exact");
                bytes = rest;
            }
        }
    }
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 200, ..ProptestConfig::default() })]

    #[test]
    fn packets_of_any_size_come_back(
        sizes in prop::collection::vec(prop_oneof![0_usize..40, 100_usize..600, 0_usize..12_000], 1..40),
        layout in prop::sample::select(&PageLayout::PARTITIONED[..]),
        page_kib in prop::sample::select(&[4_usize, 8, 16, 32][..]),
        flush_every in 1_usize..20,
    ) {
        let service = FakeService::new(4, page_kib * 1024);
        let arbiter = lossless(&service, ArbiterOptions { layout, ..Default::default() });
        let mut writer = arbiter.create_writer(1, ExhaustedPolicy::StallThenDrop);
        let packets: Vec<_> = sizes.iter().enumerate().map(|(i, size)| body(i as u64, *size)).collect();
        for (i, packet) in packets.iter().enumerate() {
            writer.write_packet(packet);
            if i % flush_every == 0 {
                writer.flush();
            }
        }
        drop(writer);
        arbiter.flush_commits();
        // The first packet is not empty: it says that it is the first.
        let packets: Vec<_> =
            packets.into_iter().enumerate().filter(|(i, packet)| *i == 0 || !packet.is_empty()).map(|(_, p)| p).collect();
        prop_assert_eq!(contents(&service, 1), packets);
        prop_assert_eq!(arbiter.stats().violations + arbiter.stats().packets_dropped, 0);
        prop_assert!((0..4).all(|page| service.smb.snapshot(page).unwrap().is_free()));
    }

    #[test]
    fn messages_of_any_shape_come_back(
        packets in prop::collection::vec(fields(), 1..8),
        layout in prop::sample::select(&PageLayout::PARTITIONED[..]),
        direct_patching in any::<bool>(),
    ) {
        let service = FakeService::new(4, 4096);
        let arbiter = lossless(&service, ArbiterOptions { layout, direct_patching, ..Default::default() });
        let mut writer = arbiter.create_writer(1, ExhaustedPolicy::StallThenDrop);
        for packet in &packets {
            write_fields(&mut writer.new_packet(), packet);
        }
        drop(writer);
        arbiter.flush_commits();
        let read = contents(&service, 1);
        // Empty packets are never seen again, but for the first, which says that it is the first.
        let packets: Vec<_> =
            packets.into_iter().enumerate().filter(|(i, packet)| *i == 0 || !packet.is_empty()).map(|(_, p)| p).collect();
        prop_assert_eq!(read.len(), packets.len());
        for (bytes, fields) in read.iter().zip(&packets) {
            prop_assert!(check_fields(bytes, fields).is_empty());
        }
    }
}
