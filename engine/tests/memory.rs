//! Memory beside the payload is bounded; buffers may be large.

mod support;

use support::{Buffer, chunk};
use watershed_engine::{
    BufferConfig, ChunkId, ChunkInfo, FillPolicy, HugePages, ProducerId, TraceBuffer, WriterId,
};

#[test]
fn a_hundred_thousand_writers_with_three_lives_each_lose_nothing() {
    let mut buffer = Buffer::ring(4 << 20);
    let (mut written, mut read) = (0u64, 0u64);
    for life in 0..3u32 {
        for writer in 1..=33_334u32 {
            let info = ChunkInfo {
                producer_id_trusted: ProducerId(1),
                writer_id: WriterId(writer as u16),
                chunk_id: ChunkId(0),
                num_fragments: 1,
                complete: true,
                ..ChunkInfo::default()
            };
            let body = [&[6, b'p'][..], &life.to_le_bytes(), b"."].concat();
            buffer.0.copy_chunk_untrusted(&info, body.as_slice()).unwrap();
            buffer.0.end_writer(ProducerId(1), WriterId(writer as u16));
            written += 1;
            if writer % 1000 == 0 {
                read += count_without_loss(&mut buffer);
            }
        }
    }
    read += count_without_loss(&mut buffer);
    assert_eq!((written, read), (100_002, 100_002));
    buffer.checked();
    // Histograms of 33,334 writers, and 20 bytes and an index for each that is remembered.
    let kept = buffer.0.metadata_bytes();
    assert!(kept < 8 << 20, "{kept} bytes");
    assert_eq!(buffer.0.ledger().forgotten_sequences, 0);
}

fn count_without_loss(buffer: &mut Buffer) -> u64 {
    buffer.0.begin_read();
    let mut packets = 0;
    while let Some(packet) = buffer.0.read_next() {
        assert!(packet.loss.is_empty(), "a false loss: {:?}", packet.loss);
        packets += 1;
    }
    packets
}

#[test]
fn ended_producers_leave_nothing_behind() {
    let mut buffer = Buffer::ring(64 << 10);
    let mut kept = Vec::new();
    for producer in 1..=3000u32 {
        for writer in 1..=20 {
            buffer
                .0
                .copy_chunk_untrusted(
                    &chunk(writer, 0).of_producer(producer, 5).whole("a").info,
                    b"\x01a".as_slice(),
                )
                .unwrap();
        }
        assert_eq!(count_without_loss(&mut buffer), 20);
        buffer.0.end_producer(ProducerId(producer));
        if producer % 1000 == 0 {
            // Histograms stay: readers want to know the writers that are gone.
            kept.push(buffer.0.metadata_bytes() as i64);
        }
    }
    let growth = (kept[2] - kept[1]) / 20_000;
    assert!(growth < 80, "{growth} bytes for each sequence that is gone");
}

/// Only the pages that are touched are used, so this needs little memory.
#[test]
fn a_buffer_of_more_than_4_gib_is_addressed_to_its_end() {
    let size = (4usize << 30) + (64 << 10);
    let config = BufferConfig { size_bytes: size, policy: FillPolicy::Discard, huge_pages: HugePages::No };
    let mut buffer = Buffer(TraceBuffer::create(&config).unwrap());
    assert_eq!(buffer.0.size_bytes(), size);
    // Scraped chunks reserve their whole size and write only what is visible of it.
    let scraped = chunk(1, 0).whole("a").scraped(65535);
    let mut id = 0;
    while !buffer.0.is_sealed() {
        let info = ChunkInfo { chunk_id: ChunkId(id), ..scraped.info };
        buffer.0.copy_chunk_untrusted(&info, scraped.bytes.as_slice()).unwrap();
        id += 1;
    }
    assert!(buffer.0.used_size_bytes() > 4 << 30);
    let last = id - 2;
    let done = chunk(1, last).whole("a").whole("the end");
    buffer.0.copy_chunk_untrusted(&done.info, done.bytes.as_slice()).unwrap();
    let offset = buffer.0.used_size_bytes() - 65552 + 16;
    assert_eq!(buffer.0.ring()[offset..offset + 10], *b"\x01a\x07the end");
    buffer.checked();
}

#[test]
fn huge_pages_change_nothing_but_when_memory_is_used() {
    for policy in [FillPolicy::RingBuffer, FillPolicy::Discard] {
        // Some huge pages, and a rest that fills none.
        let size_bytes = (33 << 20) + 4096;
        let [mut huge, mut plain] = [HugePages::Advise, HugePages::No].map(|huge_pages| {
            TraceBuffer::create(&BufferConfig { size_bytes, policy, huge_pages }).expect("memory")
        });
        let most = vec![0x55; ChunkInfo::MAX_SIZE_BYTES];
        let mut seed = 1u32;
        // Two laps and a half of chunks of any size.
        for id in 0..2_600u32 {
            seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let size = (seed >> 16) as usize % (ChunkInfo::MAX_SIZE_BYTES - 3) + 3;
            let mut bytes = most[..size].to_vec();
            let body = size - 3;
            bytes[..3].copy_from_slice(&[body as u8 | 0x80, (body >> 7) as u8 | 0x80, (body >> 14) as u8]);
            let mut info = chunk(1, id).info;
            info.num_fragments = 1;
            for buffer in [&mut huge, &mut plain] {
                buffer.copy_chunk_untrusted(&info, bytes.as_slice()).expect("a proper call");
            }
            assert_eq!(huge.write_offset(), plain.write_offset(), "after chunk {id}");
            assert_eq!(huge.is_sealed(), plain.is_sealed(), "after chunk {id}");
        }
        assert_eq!(huge.stats(), plain.stats());
        assert_eq!(huge.ledger(), plain.ledger());
        assert!(huge.ring() == plain.ring());
        assert_eq!(huge.stats().write_wrap_count, if policy == FillPolicy::Discard { 0 } else { 2 });
    }
}

/// What a record leaves of an older one gets its header when somebody looks, in copies too.
#[test]
fn the_rest_of_an_overwritten_record_is_padding() {
    let mut buffer = Buffer::ring(4096);
    for (id, outer_bytes) in [(0, 2048), (1, 2048), (2, 1024)] {
        let chunk = chunk(1, id).whole(&"x".repeat(outer_bytes - 18));
        buffer.0.copy_chunk_untrusted(&chunk.info, &chunk.bytes[..]).unwrap();
    }
    let mut copy = buffer.0.clone_read_only().unwrap();
    let padding = [0, 0, 0, 0, 0, 0, 0, 0, 0xf0, 0x03, 0, 0, 0, 0, 0, 0x04 ^ 0xf0 ^ 0x03];
    assert_eq!(buffer.0.ring()[1024..1040], padding);
    assert_eq!(copy.ring()[1024..1040], padding);
}

/// Threads get the memory of each other's buffers and clones: nobody sees what was in it, and no
/// two have it at a time.
#[test]
fn threads_make_and_drop_small_buffers() {
    let live = |number: u8| {
        let mut clones = Vec::new();
        for _ in 0..200 {
            let mut buffer = Buffer::ring(16 << 10);
            assert!(buffer.0.ring().iter().all(|&byte| byte == 0));
            let text = char::from(b'a' + number).to_string().repeat(39);
            for id in 0..20 {
                buffer.commit(chunk(1, id).whole(&text));
            }
            clones.push(buffer.copy());
            buffer.reads(&[text.as_str(); 20]);
            if clones.len() > usize::from(number) {
                clones.remove(0).reads(&[text.as_str(); 20]);
            }
        }
    };
    std::thread::scope(|scope| {
        (0..4).for_each(|number| drop(scope.spawn(move || live(number))));
    });
}
