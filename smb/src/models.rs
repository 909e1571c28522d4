//! Loom models of the chunk states: every interleaving, and every value that a weak memory order
//! allows, of small histories. Run with `RUSTFLAGS="--cfg loom" cargo test -p watershed-smb
//! --release models`.

use loom::thread;

use crate::*;

/// Runs `body` in every order, of which there must be at least `orders_min`: a model that explores
/// nothing proves nothing.
fn model(orders_min: usize, body: impl Fn() + Sync + Send + 'static) {
    let orders = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let counted = orders.clone();
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(move || {
        counted.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        body();
    });
    let orders = orders.load(std::sync::atomic::Ordering::Relaxed);
    assert!(orders >= orders_min, "{orders} orders explored");
}

fn write(smb: &Smb, writer_id: u16, chunk_id: u32) -> bool {
    let Ok(chunk) = smb.try_acquire(0, PageLayout::Div2) else { return false };
    smb.write_header(&chunk, ChunkHeader { chunk_id, writer_id, ..ChunkHeader::default() });
    smb.write_payload(&chunk, 0, &[writer_id as u8, chunk_id as u8]);
    smb.set_fragments(&chunk, 1, ChunkFlags::NONE);
    smb.complete(chunk).unwrap();
    true
}

/// Takes each complete chunk once, checks that it is whole, and returns how many there were.
fn read_all(smb: &Smb) -> usize {
    let mut taken = 0;
    for page in 0..smb.num_pages() {
        for index in 0..2 {
            let Ok(chunk) = smb.try_begin_read(page, index) else { continue };
            let mut bytes = [0; 2];
            chunk.payload().copy_range(0, &mut bytes);
            let header = chunk.header();
            assert_eq!(bytes, [header.writer_id as u8, header.chunk_id as u8]);
            assert_eq!(header.fragments, 1);
            chunk.release().unwrap();
            taken += 1;
        }
    }
    taken
}

#[test]
fn a_complete_chunk_is_whole_and_can_be_used_again() {
    model(20, || {
        let smb = Smb::modelled(&[PageLayout::Div1], 4096);
        let writer = thread::spawn({
            let smb = smb.clone();
            move || {
                let mut written = 0;
                for chunk_id in 1..=2 {
                    let Ok(chunk) = smb.try_acquire(0, PageLayout::Div1) else { break };
                    smb.write_header(
                        &chunk,
                        ChunkHeader { chunk_id, writer_id: 3, ..ChunkHeader::default() },
                    );
                    smb.write_payload(&chunk, 0, &[3, chunk_id as u8]);
                    smb.set_fragments(&chunk, 1, ChunkFlags::NONE);
                    smb.complete(chunk).unwrap();
                    written += 1;
                }
                written
            }
        });
        let early = read_all(&smb);
        let written = writer.join().unwrap();
        assert_eq!(early + read_all(&smb), written);
        assert!(smb.snapshot(0).unwrap().is_free());
    });
}

#[test]
fn a_chunk_that_was_not_seen_free_changes_the_epoch() {
    for together in [false, true] {
        model(3, move || {
            let smb = Smb::modelled(&[PageLayout::Div1; 2], 4096);
            let chunk = smb.try_acquire_within(1, 1, PageLayout::Div1).unwrap();
            smb.complete(chunk).unwrap();
            let service = thread::spawn({
                let smb = smb.clone();
                move || {
                    let chunk = smb.try_begin_read(1, 0).unwrap();
                    if together {
                        let token = chunk.detach();
                        let mut reads = Reads::new();
                        reads.take_up(smb.clone());
                        drop(reads.attach(&token).unwrap());
                    } else {
                        chunk.release().unwrap();
                    }
                }
            });
            let epoch = smb.free_epoch();
            assert!(epoch.is_none() || smb.last_freed_page() == 1);
            let found = smb.try_acquire_within(1, 1, PageLayout::Div1).is_ok();
            service.join().unwrap();
            assert!(found || smb.free_epoch() != epoch);
        });
    }
}

#[test]
fn two_writers_never_share_a_chunk() {
    model(20, || {
        let smb = Smb::modelled(&[PageLayout::Div2], 4096);
        let other = thread::spawn({
            let smb = smb.clone();
            move || write(&smb, 1, 10)
        });
        assert!(write(&smb, 2, 20));
        assert!(other.join().unwrap());
        assert!(smb.snapshot(0).unwrap().is_complete());
        assert_eq!(read_all(&smb), 2);
        assert!(smb.snapshot(0).unwrap().is_free(), "the last release gives the page back");
    });
}

/// Takes what is complete in page 0 and reads it as from a queue: freed together.
fn read_together(smb: &Smb) -> usize {
    let tokens: Vec<_> =
        (0..2).filter_map(|index| smb.try_begin_read(0, index).ok()).map(ReadChunk::detach).collect();
    let mut reads = Reads::new();
    reads.take_up(smb.clone());
    for token in &tokens {
        let chunk = reads.attach(token).unwrap();
        let (mut bytes, header) = ([0; 2], token.header());
        chunk.payload().copy_range(0, &mut bytes);
        assert_eq!(bytes, [header.writer_id as u8, header.chunk_id as u8]);
    }
    tokens.len()
}

#[test]
fn chunks_that_are_freed_together_can_be_used_again() {
    model(20, || {
        let smb = Smb::modelled(&[PageLayout::Div2], 4096);
        assert!(write(&smb, 1, 1));
        assert!(write(&smb, 1, 2));
        let writer = thread::spawn({
            let smb = smb.clone();
            move || write(&smb, 2, 3)
        });
        let early = read_together(&smb);
        assert!(early >= 2);
        let written = 2 + usize::from(writer.join().unwrap());
        assert_eq!(early + read_together(&smb), written);
        assert!(smb.snapshot(0).unwrap().is_free());
    });
}

#[test]
fn a_page_is_partitioned_anew_only_when_nobody_is_in_it() {
    model(20, || {
        let smb = Smb::modelled(&[PageLayout::Div2], 4096);
        assert!(write(&smb, 1, 1));
        let writer = thread::spawn({
            let smb = smb.clone();
            move || write(&smb, 2, 2)
        });
        let early = read_all(&smb);
        assert!(writer.join().unwrap());
        assert_eq!(early + read_all(&smb), 2);
        assert!(smb.snapshot(0).unwrap().is_free());
    });
}

#[test]
fn a_scrape_sees_every_finished_fragment_and_the_right_writer() {
    model(20, || {
        let smb = Smb::modelled(&[PageLayout::Div1], 4096);
        let writer = thread::spawn({
            let smb = smb.clone();
            move || {
                let chunk = smb.try_acquire(0, PageLayout::Div1).unwrap();
                smb.write_header(
                    &chunk,
                    ChunkHeader { chunk_id: 4, writer_id: 9, fragments: 1, ..Default::default() },
                );
                smb.write_payload(&chunk, 0, &[1, 0xAA]);
                smb.set_fragments(&chunk, 2, ChunkFlags::NONE);
                smb.write_payload(&chunk, 2, &[1, 0xBB]);
                smb.set_fragments(&chunk, 3, ChunkFlags::NONE);
            }
        });
        for chunk in smb.scrape() {
            let header = chunk.header();
            assert_eq!((header.chunk_id, header.writer_id), (4, 9));
            let mut bytes = [0; 4];
            chunk.payload().copy_range(0, &mut bytes);
            assert_eq!(bytes[..2], [1, 0xAA]);
            assert!(header.fragments < 3 || bytes[2..] == [1, 0xBB]);
        }
        writer.join().unwrap();
    });
}

#[test]
fn a_header_that_starts_with_two_fragments_shows_them() {
    model(3, || {
        let smb = Smb::modelled(&[PageLayout::Div1], 4096);
        let chunk = smb.try_acquire(0, PageLayout::Div1).unwrap();
        let writer = thread::spawn({
            let smb = smb.clone();
            move || {
                smb.write_payload(&chunk, 0, &[1, 0xAA]);
                smb.write_header(
                    &chunk,
                    ChunkHeader { chunk_id: 4, writer_id: 9, fragments: 2, ..Default::default() },
                );
            }
        });
        for chunk in smb.scrape() {
            let mut bytes = [0; 2];
            chunk.payload().copy_range(0, &mut bytes);
            assert_eq!((chunk.header().chunk_id, chunk.header().writer_id, bytes), (4, 9, [1, 0xAA]));
        }
        writer.join().unwrap();
    });
}
