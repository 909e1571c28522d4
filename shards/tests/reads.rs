//! Reads by several threads, slow ones and failing ones: always what one thread would have read.
#![cfg(feature = "parallel")]

mod common;

use common::{Got, drain, info, parse, payload, write_packet};
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use watershed_engine::Packet;
use watershed_shards::{ShardedBuffer, ShardedConfig};

/// Sixteen megabytes of two sequences for each of `num_shards` shards, in turns.
fn filled(num_shards: usize) -> ShardedBuffer {
    let config = ShardedConfig { num_shards: Some(num_shards), ..ShardedConfig::ring(32 << 20) };
    let buffer = ShardedBuffer::create(config).unwrap();
    let mut committer = buffer.committer().unwrap();
    for id in 0..(16 << 20) / 4000 / (2 * num_shards as u32) {
        for writer in 0..2 * num_shards {
            committer.set_cpu(Some(writer / 2));
            let bodies = (0..4).map(|part| [part, writer as u8, id as u8, (id >> 8) as u8]);
            let bodies: Vec<Vec<u8>> = bodies.map(|body| body.repeat(250)).collect();
            committer.commit_chunk(&info(1, 1 + writer as u16, id, 4, 0), &payload(&bodies)).unwrap();
        }
    }
    assert!(buffer.shard_stats().iter().all(|(stats, _)| stats.chunks_written > 0), "all shards are used");
    buffer
}

fn serially(buffer: &ShardedBuffer) -> Vec<Got> {
    drain(&mut buffer.read_pass(write_packet).on_one_thread())
}

#[test]
fn several_threads_read_what_one_would() {
    for num_shards in [1, 2, 5, 16] {
        let buffer = filled(num_shards);
        let expected = serially(&buffer.clone_read_only().unwrap());
        let mut bytes = Vec::new();
        buffer.read_pass(write_packet).write_all(|pieces| pieces.write_to(&mut bytes)).unwrap();
        assert!(parse(&bytes) == expected, "{num_shards} shards");
    }
}

#[test]
fn threads_of_different_speed_read_what_one_would() {
    let reader = std::thread::current().id();
    for (num_shards, reader_is_slow) in [(2, false), (2, true), (3, false), (8, true)] {
        let buffer = filled(num_shards);
        let expected = serially(&buffer.clone_read_only().unwrap());
        let write = |packet: &Packet<'_>, out: &mut Vec<u8>| {
            if (std::thread::current().id() == reader) == reader_is_slow {
                let started = Instant::now();
                while started.elapsed() < Duration::from_micros(3) {}
            }
            write_packet(packet, out)
        };
        let mut bytes = Vec::new();
        buffer.read_pass(write).write_all(|pieces| pieces.write_to(&mut bytes)).unwrap();
        assert!(parse(&bytes) == expected, "{num_shards} shards");
        assert_eq!(buffer.extracted_bytes(), 0);
    }
}

#[test]
fn threads_that_read_ahead_sleep_while_the_writer_does_and_are_woken() {
    let buffer = filled(2);
    let expected = serially(&buffer.clone_read_only().unwrap());
    let mut bytes = Vec::new();
    let written = buffer.read_pass(write_packet).write_all(|pieces| {
        std::thread::sleep(Duration::from_millis(20));
        pieces.write_to(&mut bytes)
    });
    written.unwrap();
    assert!(parse(&bytes) == expected);
}

#[test]
fn what_a_failed_write_left_comes_first_in_the_next_pass_and_is_in_clones() {
    let buffer = filled(4);
    let expected = serially(&buffer.clone_read_only().unwrap());
    let (mut bytes, mut pieces_left) = (Vec::new(), 3);
    let failed = buffer.read_pass(write_packet).write_all(|pieces| {
        pieces_left -= 1;
        // What is given is handed out, whatever becomes of it.
        pieces.write_to(&mut bytes).unwrap();
        if pieces_left == 0 { Err("the disk is full") } else { Ok(()) }
    });
    assert_eq!(failed, Err("the disk is full"));
    assert!(buffer.extracted_bytes() > 0, "others had read ahead");
    let got = parse(&bytes);
    assert!(got.len() < expected.len());
    assert!(serially(&buffer.clone_read_only().unwrap()) == expected[got.len()..], "the rest is in a clone");
    buffer.read_pass(write_packet).write_all(|pieces| pieces.write_to(&mut bytes)).unwrap();
    assert!(parse(&bytes) == expected);
    assert_eq!(buffer.extracted_bytes(), 0);
}

#[test]
fn writes_of_any_speed_get_all_in_order() {
    for num_shards in [2, 5] {
        let buffer = filled(num_shards);
        let read = |copy: &ShardedBuffer, is_serial: bool, pause: &mut dyn FnMut()| {
            let mut pass = copy.read_pass(write_packet);
            if is_serial {
                pass = pass.on_one_thread();
            }
            let mut bytes = Vec::with_capacity(32 << 20);
            let written = pass.write_all(|pieces| {
                pause();
                pieces.write_to(&mut bytes)
            });
            written.map(|()| bytes).unwrap()
        };
        let expected = read(&buffer.clone_read_only().unwrap(), true, &mut || {});
        let mut random = 1u32;
        for round in 0..8 {
            let mut pause = || {
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let started = Instant::now();
                while started.elapsed() < Duration::from_micros(u64::from(random >> 24)) {}
            };
            let got = read(&buffer.clone_read_only().unwrap(), false, &mut pause);
            assert!(got == expected, "{num_shards} shards, round {round}");
        }
    }
}

#[test]
fn what_was_joined_ahead_of_a_slow_write_that_fails_comes_first_in_the_next_pass() {
    if std::thread::available_parallelism().is_ok_and(|threads| threads.get() == 1) {
        return;
    }
    for (num_shards, panics) in [(1, false), (2, false), (2, true), (5, false), (16, true)] {
        let buffer = filled(num_shards);
        let expected = serially(&buffer.clone_read_only().unwrap());
        let (mut bytes, mut num_joined, num_packets) = (Vec::new(), 0, AtomicU64::new(0));
        let write = |packet: &Packet<'_>, out: &mut Vec<u8>| {
            num_packets.fetch_add(1, Ordering::Relaxed);
            write_packet(packet, out)
        };
        // Until nobody has anything to extract: then pieces are joined.
        let wait = || {
            let mut before = u64::MAX;
            while before != num_packets.load(Ordering::Relaxed) {
                before = num_packets.load(Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(30));
            }
        };
        let slowly = AssertUnwindSafe(|| {
            buffer.read_pass(write).write_all(|pieces| {
                num_joined += usize::from(pieces.iter().count() == 1);
                pieces.write_to(&mut bytes).unwrap();
                wait();
                match num_joined {
                    0..5 => Ok(()),
                    // Without the panic's message.
                    _ if panics => resume_unwind(Box::new("broken")),
                    _ => Err("the disk is full"),
                }
            })
        });
        let end = catch_unwind(slowly);
        assert!(matches!(end, Err(_) | Ok(Err(_))), "{num_shards} shards: pieces are joined");
        let got = parse(&bytes);
        assert!(got.len() < expected.len() && expected.starts_with(&got), "{num_shards} shards");
        assert!(buffer.extracted_bytes() > 1 << 20, "others had read ahead");
        let rest = &expected[got.len()..];
        assert!(
            serially(&buffer.clone_read_only().unwrap()) == rest,
            "{num_shards} shards: the rest is in a clone"
        );
        let mut pass = buffer.read_pass(write_packet);
        assert!(drain(&mut pass) == rest, "{num_shards} shards: the rest comes next");
        drop(pass);
        assert_eq!(buffer.extracted_bytes(), 0);
    }
}

/// A caller's panic in another thread than its own comes out of the read, which does not wait for what that thread was at.
#[test]
fn a_panic_in_another_thread_of_a_read_comes_out_of_it() {
    if rayon::current_num_threads() == 1 {
        return;
    }
    let buffer = filled(4);
    let (said, heard) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let (reader, has_panicked) = (std::thread::current().id(), AtomicBool::new(false));
        let mark = |_: &Packet<'_>, out: &mut Vec<u8>| {
            if std::thread::current().id() != reader {
                has_panicked.store(true, Ordering::Relaxed);
                // Without the panic's message.
                resume_unwind(Box::new("broken"));
            }
            // The reader's own thread leaves the others something to do.
            while !has_panicked.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            out.push(1);
            true
        };
        let read = || buffer.read_pass(mark).write_all(|_| Ok::<_, Infallible>(()));
        let _ = said.send(catch_unwind(AssertUnwindSafe(read)).is_err());
    });
    assert_eq!(heard.recv_timeout(Duration::from_secs(60)), Ok(true), "a panic, and no end without one");
}
