//! Reads with a pool, slow ones and failing ones: always what one thread would have read.

mod common;

use common::{Got, Random, drain, info, next_bytes, parse, payload, pools, watched, write_packet};
use std::convert::Infallible;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant};
use watershed_engine::Packet;
use watershed_shards::{PacketWriter, ShardedBuffer, ShardedConfig};

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

/// What one thread reads of a copy.
fn expected(buffer: &ShardedBuffer) -> Vec<Got> {
    drain(&mut buffer.clone_read_only().unwrap().read_pass(write_packet))
}

fn busy_for(time: Duration) {
    let started = Instant::now();
    while started.elapsed() < time {}
}

#[test]
fn several_threads_read_what_one_would() {
    for num_shards in [1, 2, 5, 16] {
        let buffer = filled(num_shards);
        let expected = expected(&buffer);
        for pool in pools() {
            let copy = buffer.clone_read_only().unwrap();
            let mut bytes = Vec::new();
            let mut pass = copy.read_pass(write_packet).with_pool(pool);
            assert!(pass.unread_bytes() > 16 << 20);
            pass.write_all(|pieces| pieces.write_to(&mut bytes)).unwrap();
            drop(pass);
            assert!(parse(&bytes) == expected, "{num_shards} shards");
            assert_eq!(copy.extracted_bytes(), 0);
        }
    }
}

/// A disk may be slow: the pool's threads are others' meanwhile.
#[test]
fn a_read_does_not_wait_for_a_reader_that_writes() {
    let (slow, other, pool) = (filled(2), filled(2), pools()[1]);
    let (writing, is_writing) = mpsc::channel();
    let (read, is_read) = mpsc::channel();
    std::thread::scope(|scope| {
        let reader = scope.spawn(move || {
            let mut waited = None;
            let mut pass = slow.read_pass(write_packet).with_pool(pool);
            let written = pass.write_all(|_| {
                waited.get_or_insert_with(|| {
                    writing.send(()).unwrap();
                    is_read.recv_timeout(Duration::from_secs(10))
                });
                Ok::<_, ()>(())
            });
            written.unwrap();
            waited.expect("there is something to write")
        });
        is_writing.recv().unwrap();
        other.read_pass(write_packet).with_pool(pool).write_all(|_| Ok::<_, ()>(())).unwrap();
        read.send(()).unwrap();
        assert_eq!(reader.join().unwrap(), Ok(()), "it was read when the reader went on");
    });
}

#[test]
fn threads_of_different_speed_read_what_one_would() {
    let reader = std::thread::current().id();
    for (num_shards, reader_is_slow) in [(2, false), (2, true), (3, false), (8, true)] {
        let buffer = filled(num_shards);
        let expected = expected(&buffer);
        let write = |packet: &Packet<'_>, out: &mut Vec<u8>| {
            if (std::thread::current().id() == reader) == reader_is_slow {
                busy_for(Duration::from_micros(3));
            }
            write_packet(packet, out)
        };
        let mut bytes = Vec::new();
        let mut pass = buffer.read_pass(write).with_pool(pools()[1]);
        pass.write_all(|pieces| pieces.write_to(&mut bytes)).unwrap();
        assert!(parse(&bytes) == expected, "{num_shards} shards");
    }
}

/// Threads that are far enough ahead sleep, and are woken when the writer has caught up. Until then
/// memory is bounded.
#[test]
fn no_more_is_extracted_ahead_of_a_slow_writer_than_the_bound() {
    for (num_shards, pool) in [(1, pools()[1]), (2, pools()[2])] {
        let buffer = filled(num_shards);
        let expected = expected(&buffer);
        let extracted_bytes = AtomicUsize::new(0);
        let write = |packet: &Packet<'_>, out: &mut Vec<u8>| {
            let before = out.len();
            write_packet(packet, out);
            // Relaxed: the writer only looks whether it is too large.
            extracted_bytes.fetch_add(out.len() - before, Ordering::Relaxed);
            true
        };
        let (mut bytes, mut most_ahead_bytes) = (Vec::new(), 0);
        let mut pass = buffer.read_pass(write).with_pool(pool);
        let written = pass.write_all(|pieces| {
            // Slow until nothing more is extracted ahead, whatever the speed of the other threads.
            let mut ahead_bytes = 0;
            while let extracted = extracted_bytes.load(Ordering::Relaxed)
                && extracted > ahead_bytes
            {
                ahead_bytes = extracted;
                std::thread::sleep(Duration::from_millis(20));
            }
            most_ahead_bytes = most_ahead_bytes.max(ahead_bytes - bytes.len());
            pieces.write_to(&mut bytes)
        });
        written.unwrap();
        assert!(parse(&bytes) == expected);
        assert!((1 << 20..12 << 20).contains(&most_ahead_bytes), "{most_ahead_bytes}");
    }
}

/// The thread that has a pass asks how much lies extracted: it does not wait for itself.
#[test]
fn what_lies_extracted_is_known_during_a_pass() {
    for pool in pools() {
        let buffer = filled(4);
        let mut pass = buffer.read_pass(write_packet).with_pool(pool);
        assert_eq!(watched("extracted_bytes", || buffer.extracted_bytes()), 0);
        let bytes = next_bytes(&mut pass, 1).unwrap().len();
        let extracted_bytes = buffer.extracted_bytes();
        assert!(extracted_bytes >= 4 * (64 << 10) - bytes, "a block of each shard: {extracted_bytes}");
        pass.take_back(bytes);
        assert_eq!(buffer.extracted_bytes(), extracted_bytes + bytes);
        let Ok(()) = pass.write_all(|_| {
            assert!(buffer.extracted_bytes() < 16 << 20);
            Ok::<_, Infallible>(())
        });
        assert_eq!(buffer.extracted_bytes(), 0);
    }
}

#[test]
fn a_pool_that_is_busy_elsewhere_stops_no_read() {
    let buffer = filled(2);
    let expected = expected(&buffer);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(1).build().unwrap();
    let (release, released) = mpsc::channel::<()>();
    pool.spawn(move || _ = released.recv());
    let (mut bytes, size_bytes) = (Vec::new(), expected.iter().map(Got::written_bytes).sum::<usize>());
    let mut pass = buffer.read_pass(write_packet).with_pool(Some(&pool));
    let Ok(()) = pass.write_all(|pieces| -> Result<(), Infallible> {
        pieces.write_to(&mut bytes).unwrap();
        if bytes.len() == size_bytes {
            release.send(()).unwrap();
        }
        Ok(())
    });
    assert!(parse(&bytes) == expected);
}

/// Reads in portions, of which the reader has no room for the end, in several passes.
#[test]
fn portions_and_what_is_taken_back_of_them_come_in_order() {
    let mut random = Random(1);
    for num_shards in [1, 2, 5] {
        let buffer = filled(num_shards);
        let expected = expected(&buffer);
        for pool in pools() {
            let copy = buffer.clone_read_only().unwrap();
            let mut bytes = Vec::new();
            let mut is_over = false;
            while !is_over {
                let mut pass = copy.read_pass(write_packet).with_pool(pool);
                for _ in 0..random.below(3) + 1 {
                    let portion_bytes = random.below(3 << 20) as usize + 1;
                    let before = bytes.len();
                    let written = pass.write_up_to(portion_bytes, |pieces| {
                        pieces.write_to(&mut bytes).unwrap();
                        let too_many = random.below(pieces.size_bytes() as u64) as usize;
                        if random.one_in(4) { Err(too_many) } else { Ok(()) }
                    });
                    assert!(bytes.len() - before < portion_bytes + (17 << 10));
                    is_over = bytes.len() == before;
                    if let Err(too_many) = written {
                        pass.take_back(too_many);
                        bytes.truncate(bytes.len() - too_many);
                    }
                }
            }
            assert!(parse(&bytes) == expected, "{num_shards} shards");
        }
    }
}

#[test]
fn writes_of_any_speed_get_all_in_order() {
    let mut random = Random(2);
    for num_shards in [1, 2, 5] {
        let buffer = filled(num_shards);
        let expected = expected(&buffer);
        for pool in pools() {
            let copy = buffer.clone_read_only().unwrap();
            let mut bytes = Vec::with_capacity(32 << 20);
            let mut pass = copy.read_pass(write_packet).with_pool(pool);
            let written = pass.write_all(|pieces| {
                busy_for(Duration::from_micros(random.below(256)));
                pieces.write_to(&mut bytes)
            });
            written.unwrap();
            assert!(parse(&bytes) == expected, "{num_shards} shards");
        }
    }
}

/// A writer that fails, or panics, after it has taken some pieces: what others have extracted ahead
/// of it is not lost.
#[test]
fn what_a_failed_write_left_comes_first_in_the_next_pass_and_is_in_clones() {
    for (num_shards, panics) in [(1, false), (2, false), (2, true), (5, false), (16, true)] {
        for pool in pools() {
            let buffer = filled(num_shards);
            let expected = expected(&buffer);
            let (mut bytes, mut num_calls) = (Vec::new(), 0);
            let failing = AssertUnwindSafe(|| {
                buffer.read_pass(write_packet).with_pool(pool).write_all(|pieces| {
                    num_calls += 1;
                    // What is given is handed out, whatever becomes of it.
                    pieces.write_to(&mut bytes).unwrap();
                    // The threads of the pool may be late on a busy machine.
                    let limit = Instant::now() + Duration::from_secs(60);
                    while pool.is_some()
                        && num_calls == 5
                        && buffer.extracted_bytes() <= 512 << 10
                        && Instant::now() < limit
                    {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                    match num_calls {
                        0..5 => Ok(()),
                        // Without the panic's message.
                        _ if panics => resume_unwind(Box::new("broken")),
                        _ => Err("the disk is full"),
                    }
                })
            });
            let end = catch_unwind(failing);
            assert!(if panics { end.is_err() } else { matches!(end, Ok(Err("the disk is full"))) });
            let got = parse(&bytes);
            assert!(got.len() < expected.len() && expected.starts_with(&got), "{num_shards} shards");
            if pool.is_some() {
                assert!(buffer.extracted_bytes() > 512 << 10, "{} bytes ahead", buffer.extracted_bytes());
            }
            let rest = &expected[got.len()..];
            let of_clone = drain(&mut buffer.clone_read_only().unwrap().read_pass(write_packet));
            assert!(of_clone == rest, "{num_shards} shards: the rest is in a clone");
            let mut pass = buffer.read_pass(write_packet);
            assert!(drain(&mut pass) == rest, "{num_shards} shards: the rest comes next");
            drop(pass);
            assert_eq!(buffer.extracted_bytes(), 0);
        }
    }
}

/// Reads with a packet writer of which one call panics, with a limit of time. What was handed out,
/// and whether the panic came out.
fn read_with_a_panic(
    buffer: &ShardedBuffer,
    pool: Option<&rayon::ThreadPool>,
    write: impl PacketWriter + Send,
) -> (Vec<u8>, bool) {
    let (said, heard) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            let mut bytes = Vec::new();
            let mut pass = buffer.read_pass(write).with_pool(pool);
            let read = || pass.write_all(|pieces| pieces.write_to(&mut bytes));
            let panics = catch_unwind(AssertUnwindSafe(read)).is_err();
            drop(pass);
            let _ = said.send((bytes, panics));
        });
        heard.recv_timeout(Duration::from_secs(60)).expect("the read ends")
    })
}

/// A panic of a packet writer, in whatever thread, comes out of the read. Only the packet at which
/// it happened is lost.
#[test]
fn a_panic_of_a_packet_writer_comes_out_and_loses_nothing_else() {
    for num_shards in [1, 5] {
        let buffer = filled(num_shards);
        let expected = expected(&buffer);
        for pool in pools() {
            for panics_at in [0, 777, expected.len() - 1] {
                let copy = buffer.clone_read_only().unwrap();
                let num_packets = AtomicUsize::new(0);
                let write = |packet: &Packet<'_>, out: &mut Vec<u8>| {
                    write_packet(packet, out);
                    // Relaxed: one call gets the number.
                    if num_packets.fetch_add(1, Ordering::Relaxed) == panics_at {
                        // Without the panic's message.
                        resume_unwind(Box::new("broken"));
                    }
                    true
                };
                let (bytes, panics) = read_with_a_panic(&copy, pool, write);
                assert!(panics, "{num_shards} shards");
                let mut got = parse(&bytes);
                got.extend(drain(&mut copy.read_pass(write_packet)));
                let lost = got.iter().zip(&expected).take_while(|(got, expected)| got == expected).count();
                assert!(got[..lost] == expected[..lost] && got[lost..] == expected[lost + 1..]);
                assert_eq!(copy.extracted_bytes(), 0);
            }
        }
    }
}

/// The calling thread does not wait for a shard that a thread of the pool has given up.
#[test]
fn a_panic_in_a_thread_of_the_pool_ends_the_read() {
    for pool in [pools()[1], pools()[2]] {
        let buffer = filled(4);
        let is_panicking = AtomicUsize::new(0);
        let write = |_: &Packet<'_>, out: &mut Vec<u8>| {
            if rayon::current_thread_index().is_some() {
                is_panicking.store(1, Ordering::Relaxed);
                resume_unwind(Box::new("broken"));
            }
            // The reader's own thread leaves the others something to do.
            while is_panicking.load(Ordering::Relaxed) == 0 {
                std::thread::yield_now();
            }
            out.push(1);
            true
        };
        assert!(read_with_a_panic(&buffer, pool, write).1, "a panic, and no end without one");
    }
}
