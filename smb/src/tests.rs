//! Unit tests of the ABI: numbers of the format, transitions, hostile bitmaps, sizes, mappings.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::*;

fn smb(pages: usize, page_size_bytes: usize) -> Smb {
    let memory = SharedMemory::create(pages * page_size_bytes).unwrap();
    Smb::new(Arc::new(memory), page_size_bytes).unwrap()
}

fn header(chunk_id: u32, fragments: u16) -> ChunkHeader {
    ChunkHeader { chunk_id, writer_id: 7, fragments, flags: ChunkFlags::NONE }
}

/// Sets a page's bitmap the way a hostile peer can.
fn forge(smb: &Smb, page: usize, word: u32) {
    smb.region.page_word(page * smb.page_size_bytes()).store(word, Ordering::SeqCst);
}

fn word(smb: &Smb, page: usize) -> u32 {
    smb.snapshot(page).unwrap().word()
}

/// The table of the format description, page sizes in rows, Div1 to Div14 in columns.
#[test]
fn chunk_sizes_are_those_of_the_format() {
    let table = [
        (4096, [4088, 2044, 1020, 584, 292]),
        (8192, [8184, 4092, 2044, 1168, 584]),
        (16384, [16376, 8188, 4092, 2336, 1168]),
        (32768, [32760, 16380, 8188, 4680, 2340]),
        (65536, [65528, 32764, 16380, 9360, 4680]),
    ];
    for (page, sizes) in table {
        for (layout, size) in PageLayout::PARTITIONED.into_iter().zip(sizes) {
            assert_eq!(layout.chunk_size_bytes(page), size, "{layout:?} of {page}");
        }
    }
}

#[test]
fn the_header_lies_in_memory_as_the_format_says() {
    let smb = smb(1, 4096);
    let chunk = smb.try_acquire(0, PageLayout::Div2).unwrap();
    let flags = ChunkFlags::FIRST_CONTINUES.with(ChunkFlags::NEEDS_PATCHING);
    smb.write_header(
        &chunk,
        ChunkHeader { chunk_id: 0x0403_0201, writer_id: 0x0605, fragments: 1022, flags },
    );
    smb.write_payload(&chunk, 2, b"abc");
    let mut bytes = [0; 32];
    smb.region.copy_out(0, &mut bytes);
    // Layout 2 in bits 28..31, chunk 0 being written.
    assert_eq!(bytes[..8], [0x01, 0, 0, 0x20, 0, 0, 0, 0]);
    // 1022 | 5 << 10 = 0x17FE.
    assert_eq!(bytes[8..16], [1, 2, 3, 4, 5, 6, 0xFE, 0x17]);
    assert_eq!(bytes[16..24], [0, 0, b'a', b'b', b'c', 0, 0, 0]);
}

#[test]
fn a_chunk_goes_round() {
    for page_size in [4096, 8192, 16384, 32768] {
        for layout in PageLayout::PARTITIONED {
            let smb = smb(2, page_size);
            let n = layout.num_chunks();
            let chunks: Vec<_> = (0..2 * n).map(|_| smb.try_acquire(1, layout).unwrap()).collect();
            assert_eq!(smb.try_acquire(0, layout), Err(AcquireError::Exhausted));
            for (i, chunk) in chunks.into_iter().enumerate() {
                assert_eq!((chunk.page(), chunk.index()), (1 - i / n, i % n), "page 1 is looked at first");
                assert_eq!(chunk.payload_size_bytes(), layout.chunk_size_bytes(page_size) - 8);
                smb.write_header(&chunk, header(i as u32, 1));
                let last = chunk.payload_size_bytes() - 1;
                smb.write_payload(&chunk, last, &[i as u8 + 1]);
                assert!(smb.try_begin_read(chunk.page(), chunk.index()).is_err());
                smb.complete(chunk).unwrap();
            }
            assert!(smb.snapshot(0).unwrap().is_complete());
            for page in [1, 0] {
                for index in 0..n {
                    let chunk = smb.try_begin_read(page, index).unwrap();
                    let i = (1 - page) * n + index;
                    assert_eq!(chunk.header(), header(i as u32, 1));
                    let mut byte = [0];
                    chunk.payload().copy_range(chunk.payload().size_bytes() - 1, &mut byte);
                    assert_eq!(byte, [i as u8 + 1]);
                    assert_eq!(
                        smb.try_begin_read(page, index).err(),
                        Some(TransitionError::WrongState(ChunkState::BeingRead))
                    );
                    chunk.release().unwrap();
                }
                assert!(smb.snapshot(page).unwrap().is_free(), "the layout goes with the last chunk");
            }
        }
    }
}

#[test]
fn a_chunk_of_any_layout_is_taken_and_a_free_page_gets_the_wanted_one() {
    let smb = smb(2, 4096);
    forge(&smb, 0, PageSnapshot::partitioned(PageLayout::Div14).word());
    let small = smb.try_acquire(0, PageLayout::Div1).unwrap();
    assert_eq!((small.page(), small.index(), small.payload_size_bytes()), (0, 0, 284));
    let large = smb.try_acquire(1, PageLayout::Div1).unwrap();
    assert_eq!((large.page(), large.payload_size_bytes()), (1, 4080));
}

#[test]
fn a_released_chunk_has_a_zero_header_and_its_neighbours_keep_the_page() {
    let smb = smb(1, 4096);
    let (a, b) =
        (smb.try_acquire(0, PageLayout::Div2).unwrap(), smb.try_acquire(0, PageLayout::Div2).unwrap());
    smb.write_header(&a, header(9, 3));
    smb.complete(a).unwrap();
    drop(smb.try_begin_read(0, 0).unwrap());
    let now = smb.snapshot(0).unwrap();
    assert_eq!((now.state(0), now.state(1)), (Some(ChunkState::Free), Some(ChunkState::BeingWritten)));
    let again = smb.try_acquire(0, PageLayout::Div1).unwrap();
    assert_eq!(again.index(), 0);
    smb.complete(again).unwrap();
    assert_eq!(smb.try_begin_read(0, 0).unwrap().header(), ChunkHeader::default());
    smb.abandon(b).unwrap();
    assert!(smb.snapshot(0).unwrap().is_free());
}

#[test]
fn a_detached_chunk_can_be_taken_up_again() {
    let smb = smb(1, 4096);
    let chunk = smb.try_acquire(0, PageLayout::Div1).unwrap();
    smb.write_header(&chunk, header(3, 1));
    smb.complete(chunk).unwrap();
    let token = smb.try_begin_read(0, 0).unwrap().detach();
    assert_eq!(token.header(), header(3, 1));
    assert_eq!(smb.snapshot(0).unwrap().state(0), Some(ChunkState::BeingRead));
    smb.attach(token).release().unwrap();
    assert!(smb.snapshot(0).unwrap().is_free());
}

#[test]
fn a_scrape_sees_what_is_finished_and_changes_nothing() {
    let smb = smb(3, 4096);
    let complete = smb.try_acquire(0, PageLayout::Div1).unwrap();
    smb.write_header(&complete, header(0, 1));
    smb.complete(complete).unwrap();
    let [fresh, started, running, reading] = [(); 4].map(|()| smb.try_acquire(1, PageLayout::Div4).unwrap());
    smb.write_header(&started, header(1, 1));
    smb.write_header(&running, header(2, 1));
    smb.write_payload(&running, 0, &[1, b'x']);
    smb.set_fragments(&running, 2, ChunkFlags::LAST_CONTINUES);
    smb.write_header(&reading, header(3, 2));
    smb.complete(reading).unwrap();
    let reading = smb.try_begin_read(1, 3).unwrap();
    let before = [word(&smb, 0), word(&smb, 1), word(&smb, 2)];

    let seen: Vec<_> =
        smb.scrape().map(|c| (c.header().chunk_id, c.header().fragments, c.is_complete())).collect();
    assert_eq!(seen, [(0, 1, true), (2, 2, false)]);
    let scraped = smb.scrape().nth(1).unwrap();
    assert_eq!(scraped.header().flags, ChunkFlags::LAST_CONTINUES);
    assert_eq!(scraped.payload().size_bytes(), 1012);
    let mut bytes = [0; 2];
    scraped.payload().copy_range(0, &mut bytes);
    assert_eq!(bytes, [1, b'x']);
    assert_eq!(before, [word(&smb, 0), word(&smb, 1), word(&smb, 2)]);
    drop((fresh, started, running, reading));
}

#[test]
fn the_patching_flag_is_cleared_alone() {
    let smb = smb(1, 4096);
    let chunk = smb.try_acquire(0, PageLayout::Div1).unwrap();
    let flags = ChunkFlags::NEEDS_PATCHING.with(ChunkFlags::LAST_CONTINUES);
    smb.write_header(&chunk, ChunkHeader { flags, ..header(1, 5) });
    smb.clear_needs_patching(&chunk);
    smb.complete(chunk).unwrap();
    let header_now = smb.try_begin_read(0, 0).unwrap().header();
    assert_eq!(header_now, ChunkHeader { flags: ChunkFlags::LAST_CONTINUES, ..header(1, 5) });
}

#[test]
fn forged_bitmaps_are_refused_softly() {
    let smb = smb(2, 4096);
    // No such page, no such chunk, unpartitioned, reserved layouts.
    assert_eq!(smb.try_begin_read(2, 0).err(), Some(TransitionError::NoSuchChunk));
    assert_eq!(smb.try_begin_read(usize::MAX, usize::MAX).err(), Some(TransitionError::NoSuchChunk));
    assert_eq!(smb.try_begin_read(0, 0).err(), Some(TransitionError::NoSuchChunk));
    for reserved in [6 << 28, 7 << 28, 0x8000_0000, u32::MAX] {
        forge(&smb, 0, reserved);
        assert_eq!(smb.snapshot(0).unwrap().num_chunks(), 0);
        assert!(!smb.snapshot(0).unwrap().is_complete());
        assert_eq!(smb.try_begin_read(0, 0).err(), Some(TransitionError::NoSuchChunk));
        assert_eq!(smb.try_acquire(0, PageLayout::Div1).unwrap().page(), 1, "such a page gives nothing");
        forge(&smb, 1, 0);
    }
    // The layout changes under a chunk that is being read.
    forge(&smb, 0, PageSnapshot::partitioned(PageLayout::Div2).with_state(1, ChunkState::Complete).word());
    let chunk = smb.try_begin_read(0, 1).unwrap();
    forge(&smb, 0, PageSnapshot::partitioned(PageLayout::Div14).word());
    assert_eq!(chunk.release(), Err(TransitionError::LayoutChanged));
    // The state changes under a chunk that is being read, and under one that is being written.
    forge(&smb, 0, PageSnapshot::partitioned(PageLayout::Div1).with_state(0, ChunkState::Complete).word());
    let chunk = smb.try_begin_read(0, 0).unwrap();
    forge(&smb, 0, PageSnapshot::partitioned(PageLayout::Div1).word());
    assert_eq!(chunk.release(), Err(TransitionError::WrongState(ChunkState::Free)));
    let chunk = smb.try_acquire(0, PageLayout::Div1).unwrap();
    forge(&smb, 0, 0);
    assert_eq!(smb.complete(chunk), Err(TransitionError::LayoutChanged));
    assert_eq!(word(&smb, 0), 0);
}

#[test]
fn any_bitmap_can_be_scraped() {
    let smb = smb(1, 4096);
    for layout in 0..8_u32 {
        for states in [0, 0x0555_5555, 0x0AAA_AAAA, 0x0FFF_FFFF, 0x0123_4567] {
            forge(&smb, 0, layout << 28 | states);
            for chunk in smb.scrape() {
                let mut all = vec![0; chunk.payload().size_bytes()];
                chunk.payload().copy_range(0, &mut all);
            }
        }
    }
}

#[test]
#[should_panic(expected = "outside a payload")]
fn reading_past_a_payload_is_a_callers_bug() {
    let smb = smb(1, 4096);
    smb.complete(smb.try_acquire(0, PageLayout::Div1).unwrap()).unwrap();
    smb.try_begin_read(0, 0).unwrap().payload().copy_range(4079, &mut [0; 2]);
}

#[test]
#[should_panic(expected = "do not fit")]
fn writing_past_a_payload_is_a_callers_bug() {
    let smb = smb(1, 4096);
    let chunk = smb.try_acquire(0, PageLayout::Div1).unwrap();
    smb.write_payload(&chunk, usize::MAX, &[0; 2]);
}

#[test]
fn sizes_follow_the_rules_of_the_service() {
    let sizes = |page, size| {
        let negotiated = SmbSize::negotiate(page, size);
        (negotiated.page_size_bytes(), negotiated.size_bytes())
    };
    assert_eq!(sizes(0, 0), (4096, 262_144));
    assert_eq!(sizes(32768, 2 << 20), (32768, 2 << 20));
    assert_eq!(sizes(65536, usize::MAX), (32768, 32 << 20), "too much is cut down");
    assert_eq!(sizes(8192, 8192), (8192, 8192));
    for bad in [(4095, 0), (12288, 12288 * 4), (6000, 0), (8192, 4096), (4096, 4097), (1, 1)] {
        assert_eq!(sizes(bad.0, bad.1), (4096, 262_144), "{bad:?} falls back as a pair");
    }
    assert_eq!(SmbSize::exact(65536, 65536), None);
    assert_eq!(SmbSize::negotiate(4096, 40960).num_pages(), 10);
}

#[test]
fn a_view_needs_pages_that_fit() {
    let memory = Arc::new(SharedMemory::anonymous(3 * 4096).unwrap());
    assert_eq!(Smb::new(memory.clone(), 4096).unwrap().num_pages(), 3);
    for page_size_bytes in [0, 1, 2048, 8192, 65536] {
        assert_eq!(
            Smb::new(memory.clone(), page_size_bytes).err(),
            Some(GeometryError { page_size_bytes, size_bytes: 3 * 4096 })
        );
    }
}

#[test]
fn sizes_of_memory_are_checked() {
    for size in [0, 1, 4095, 4097, (32 << 20) + 4096, usize::MAX] {
        assert!(matches!(SharedMemory::create(size), Err(MapError::Size { .. })), "{size}");
        assert!(matches!(SharedMemory::anonymous(size), Err(MapError::Size { .. })), "{size}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn both_ends_of_a_sealed_mapping_see_the_same_chunks() {
    let memory = SharedMemory::create(8192).unwrap();
    let fd = memory.fd().unwrap().try_clone_to_owned().unwrap();
    assert!(rustix::fs::ftruncate(&fd, 4096).is_err(), "sealed against shrinking");
    assert!(rustix::fs::ftruncate(&fd, 16384).is_err(), "sealed against growing");
    let service = Smb::new(Arc::new(memory), 4096).unwrap();
    let producer = Smb::new(Arc::new(SharedMemory::adopt(fd).unwrap()), 4096).unwrap();
    let chunk = producer.try_acquire(1, PageLayout::Div1).unwrap();
    producer.write_header(&chunk, header(5, 1));
    producer.write_payload(&chunk, 0, b"hello");
    producer.complete(chunk).unwrap();
    let chunk = service.try_begin_read(1, 0).unwrap();
    let mut bytes = [0; 5];
    chunk.payload().copy_range(0, &mut bytes);
    assert_eq!((chunk.header().chunk_id, &bytes), (5, b"hello"));
    drop(chunk);
    assert!(producer.snapshot(1).unwrap().is_free());
}

/// Chunks of `page`, cut into `layout`, that have been taken for reading: those with these indices,
/// in this order; the others stay complete.
fn taken(smb: &Smb, page: usize, layout: PageLayout, indices: &[usize]) -> Vec<ReadToken> {
    for id in 0..layout.num_chunks() {
        let chunk = smb.try_acquire(page, layout).unwrap();
        smb.write_header(&chunk, header(id as u32 + 1, 1));
        smb.write_payload(&chunk, 0, &[id as u8]);
        smb.complete(chunk).unwrap();
    }
    indices.iter().map(|&index| smb.try_begin_read(page, index).unwrap().detach()).collect()
}

#[test]
fn chunks_of_one_page_are_freed_together_and_with_the_last_the_page() {
    let smb = smb(2, 4096);
    for layout in [PageLayout::Div4, PageLayout::Div14] {
        let tokens = taken(&smb, 0, layout, &[2, 0, 3]);
        let before = word(&smb, 0);
        let mut reads = Reads::new();
        assert!(reads.attach(&tokens[0]).is_none(), "no memory");
        reads.take_up(smb.clone());
        for (token, expected) in tokens.iter().zip([2, 0, 3]) {
            let chunk = reads.attach(token).unwrap();
            let mut byte = [0];
            chunk.payload().copy_range(0, &mut byte);
            assert_eq!((byte, chunk.payload().size_bytes()), ([expected], token.size_bytes()));
            drop(chunk);
            let words = smb.region.header(token.place().offset_bytes());
            assert_eq!(words.chunk_id.load(Ordering::Relaxed), 0, "the header is zeroed at once");
            assert_eq!(word(&smb, 0), before, "the chunk is not free yet");
        }
        reads.free();
        for (index, state) in smb.snapshot(0).unwrap().states() {
            let freed = [0, 2, 3].contains(&index);
            assert_eq!(state, if freed { ChunkState::Free } else { ChunkState::Complete }, "{index}");
        }
        let rest: Vec<_> = (0..layout.num_chunks()).filter(|index| ![0, 2, 3].contains(index)).collect();
        for index in rest {
            drop(reads.attach(&smb.try_begin_read(0, index).unwrap().detach()));
        }
        drop(reads);
        assert!(smb.snapshot(0).unwrap().is_free(), "{layout:?}");
    }
}

#[test]
fn another_page_another_memory_and_putting_down_free_what_was_read() {
    let (first, second) = (smb(2, 4096), smb(2, 4096));
    let tokens =
        [(&first, 0), (&first, 1), (&second, 1)].map(|(smb, page)| taken(smb, page, PageLayout::Div1, &[0]));
    let mut reads = Reads::new();
    reads.take_up(first.clone());
    drop(reads.attach(&tokens[0][0]));
    drop(reads.attach(&tokens[1][0]));
    let words = |smb: &Smb| [0, 1].map(|page| word(smb, page) == 0);
    assert_eq!(words(&first), [true, false], "another page");
    reads.take_up(first.clone());
    assert_eq!(words(&first), [true, false], "the same memory");
    reads.take_up(second.clone());
    assert_eq!((words(&first), words(&second)), ([true; 2], [true, false]), "another memory");
    drop(reads.attach(&tokens[2][0]));
    let back = reads.put_down().unwrap();
    assert_eq!(words(&second), [true; 2], "put down");
    assert!(std::ptr::eq(&raw const **back.memory(), &raw const **second.memory()));
    assert!(reads.put_down().is_none(), "nothing is left");
}

/// What the producer does to one chunk of a page, or to all of it, is its own loss.
#[test]
fn chunks_that_were_tampered_with_hold_up_no_others() {
    let smb = smb(1, 4096);
    for state in [ChunkState::Free, ChunkState::BeingWritten, ChunkState::Complete] {
        let tokens = taken(&smb, 0, PageLayout::Div4, &[0, 1, 2, 3]);
        let mut reads = Reads::new();
        reads.take_up(smb.clone());
        tokens.iter().for_each(|token| drop(reads.attach(token)));
        forge(&smb, 0, smb.snapshot(0).unwrap().with_state(1, state).word());
        drop(reads);
        let left = PageSnapshot::partitioned(PageLayout::Div4).with_state(1, state).word();
        assert_eq!(word(&smb, 0), if state == ChunkState::Free { 0 } else { left }, "{state:?}");
        forge(&smb, 0, 0);
    }
    let tokens = taken(&smb, 0, PageLayout::Div4, &[0, 1]);
    let reading = ChunkState::BeingRead;
    let other =
        PageSnapshot::partitioned(PageLayout::Div2).with_state(0, reading).with_state(1, reading).word();
    let mut reads = Reads::new();
    reads.take_up(smb.clone());
    tokens.iter().for_each(|token| drop(reads.attach(token)));
    forge(&smb, 0, other);
    drop(reads);
    assert_eq!(word(&smb, 0), other, "a page that was cut anew is left alone");
}

/// The inode of a memfd is in the process's list of mappings as long as it is mapped. A file
/// elsewhere may have the same number.
#[cfg(target_os = "linux")]
#[test]
fn memory_is_unmapped_with_the_last_clone_however_it_is_dropped() {
    for in_reads in [false, true] {
        let memory = SharedMemory::create(8192).unwrap();
        let inode = rustix::fs::fstat(memory.fd().unwrap()).unwrap().st_ino;
        let is_mapped = || {
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let mut memfds = maps.lines().filter(|line| line.contains("/memfd:"));
            memfds.any(|line| line.split_whitespace().nth(4) == Some(&inode.to_string()))
        };
        let first = Smb::new(Arc::new(memory), 4096).unwrap();
        let clones = [(); 5].map(|()| first.clone());
        let chunk = first.try_acquire(1, PageLayout::Div1).unwrap();
        if in_reads {
            let mut all = Reads::new();
            clones.into_iter().for_each(|clone| all.take_up(clone));
            drop(first.clone());
            all.take_up(first);
            assert!(is_mapped());
        } else {
            drop(first);
            assert!(is_mapped());
            clones[4].write_payload(&chunk, 0, b"still there");
            drop(clones);
        }
        assert!(!is_mapped(), "{in_reads}");
    }
}

#[cfg(target_os = "linux")]
#[test]
fn memory_that_could_shrink_is_not_adopted() {
    use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
    let memfd = |size: u64, seals: SealFlags| -> OwnedFd {
        let fd = memfd_create("test", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&fd, size).unwrap();
        fcntl_add_seals(&fd, seals).unwrap();
        fd
    };
    let all = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    for missing in [SealFlags::SHRINK, SealFlags::GROW, SealFlags::SEAL] {
        assert!(matches!(SharedMemory::adopt(memfd(4096, all - missing)), Err(MapError::NotSealed)));
    }
    for size in [0, 5000, (32 << 20) + 4096] {
        assert!(
            matches!(SharedMemory::adopt(memfd(size, all)), Err(MapError::Size { size_bytes }) if size_bytes == size)
        );
    }
    // Sealed against writing: the system refuses a writable shared mapping.
    assert!(matches!(SharedMemory::adopt(memfd(4096, all | SealFlags::WRITE)), Err(MapError::System { .. })));
    // Not a memfd at all.
    assert!(matches!(
        SharedMemory::adopt(std::fs::File::open("/dev/null").unwrap().into()),
        Err(MapError::NotSealed)
    ));
    assert_eq!(SharedMemory::adopt(memfd(4096, all)).unwrap().size_bytes(), 4096);
    assert_eq!(SharedMemory::map_trusted(memfd(4096, SealFlags::empty())).unwrap().size_bytes(), 4096);
}

#[test]
fn many_writers_and_one_reader_lose_nothing() {
    const WRITERS: u16 = 4;
    const CHUNKS: u32 = 500;
    let smb = smb(2, 4096);
    std::thread::scope(|scope| {
        for writer_id in 1..=WRITERS {
            let smb = smb.clone();
            scope.spawn(move || {
                let mut chunk_id = 0;
                while chunk_id < CHUNKS {
                    let Ok(chunk) = smb.try_acquire(usize::from(writer_id), PageLayout::Div7) else {
                        std::thread::yield_now();
                        continue;
                    };
                    smb.write_header(&chunk, ChunkHeader { chunk_id, writer_id, ..header(0, 0) });
                    smb.write_payload(&chunk, 0, &[chunk_id as u8 ^ writer_id as u8; 64]);
                    smb.set_fragments(&chunk, 1, ChunkFlags::NONE);
                    smb.complete(chunk).unwrap();
                    chunk_id += 1;
                }
            });
        }
        let mut seen = vec![vec![false; CHUNKS as usize]; WRITERS as usize];
        let mut left = u32::from(WRITERS) * CHUNKS;
        while left > 0 {
            for page in 0..2 {
                for index in 0..7 {
                    let Ok(chunk) = smb.try_begin_read(page, index) else { continue };
                    let ChunkHeader { chunk_id, writer_id, .. } = chunk.header();
                    let mut bytes = [0; 64];
                    chunk.payload().copy_range(0, &mut bytes);
                    assert_eq!(bytes, [chunk_id as u8 ^ writer_id as u8; 64]);
                    let first =
                        !std::mem::replace(&mut seen[writer_id as usize - 1][chunk_id as usize], true);
                    assert!(first, "each chunk is taken once");
                    left -= 1;
                    chunk.release().unwrap();
                }
            }
            std::thread::yield_now();
        }
    });
    assert!(smb.snapshot(0).unwrap().is_free() && smb.snapshot(1).unwrap().is_free());
}

/// Words of all layouts, the reserved ones too, with states that a multiplication has mixed.
#[test]
fn the_first_free_chunk_is_the_first_that_is_free() {
    for n in 0..100_000_u32 {
        let word = match n {
            // Full but for one chunk, or full.
            0..120 => (n % 8) << 28 | 0x0FFF_FFFF & !(3 << (2 * (n / 8))),
            _ => n.wrapping_mul(0x9E37_79B9),
        };
        let page = PageSnapshot::from_word(word);
        let found = page.states().find(|(_, state)| *state == ChunkState::Free).map(|(index, _)| index);
        assert_eq!(page.first_free(), found, "{word:#x}");
    }
}

#[test]
fn no_more_pages_are_tried_than_allowed() {
    let smb = smb(4, 4096);
    let _held = [0, 1, 2].map(|page| smb.try_acquire(page, PageLayout::Div1).unwrap());
    for (first, allowed, found) in [
        (0, 3, None),
        (0, 4, Some(3)),
        (3, 1, Some(3)),
        (2, 1, None),
        (2, 2, Some(3)),
        (7, 9, Some(3)),
        (0, 0, None),
    ] {
        let chunk = smb.try_acquire_within(first, allowed, PageLayout::Div1).ok();
        assert_eq!(chunk.as_ref().map(WriteChunk::page), found, "{allowed} from {first}");
        if let Some(chunk) = chunk {
            smb.abandon(chunk).unwrap();
        }
    }
}

#[test]
fn only_the_service_moves_the_epoch() {
    let smb = smb(2, 4096);
    let taken = |page| smb.try_acquire_within(page, 1, PageLayout::Div1).unwrap();
    let complete = |page| {
        smb.complete(taken(page)).unwrap();
        smb.try_begin_read(page, 0).unwrap()
    };
    let epoch = || smb.free_epoch().map(|epoch| epoch.get());
    smb.abandon(taken(0)).unwrap();
    assert_eq!(epoch(), None, "a service that counts nothing");
    smb.publish_free_epoch();
    smb.publish_free_epoch();
    assert_eq!(epoch(), Some(1));
    smb.abandon(taken(0)).unwrap();
    complete(0).release().unwrap();
    assert_eq!((epoch(), smb.last_freed_page()), (Some(2), 0));
    drop(complete(1));
    assert_eq!((epoch(), smb.last_freed_page()), (Some(3), 1));
    let (first, second) = (complete(0).detach(), complete(1).detach());
    let mut reads = Reads::new();
    reads.take_up(smb.clone());
    drop(reads.attach(&first));
    drop(reads.attach(&second));
    assert_eq!(epoch(), Some(4), "once a page");
    drop(reads);
    assert_eq!((epoch(), smb.last_freed_page()), (Some(5), 1));
    smb.region.page_word(smb.page_size_bytes() + 4).store(u32::MAX, Ordering::Relaxed);
    assert_eq!(smb.last_freed_page(), 1, "a page of this memory, whatever stands there");
    assert!(smb.snapshot(0).unwrap().is_free());
}
