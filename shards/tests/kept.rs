//! Words that are kept between commits: they are, and nobody waits for a keeper that does nothing.
#![cfg(target_os = "linux")] // Elsewhere no word is kept.

mod common;

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use common::{info, payload, read_all, write_packet};
use watershed_engine::ByteSource;
use watershed_shards::{Batch, CommitError, Committer, OwnedBytes, ShardedBuffer, ShardedConfig, Source};

/// More takes in a row than it needs until a word is kept again.
const MANY: u32 = 3000;

fn buffer(num_shards: usize, size_bytes: usize) -> ShardedBuffer {
    let config = ShardedConfig { num_shards: Some(num_shards), ..ShardedConfig::ring(size_bytes) };
    ShardedBuffer::create(config).unwrap()
}

/// A writer of numbered packets, one to a chunk.
struct Writer {
    committer: Committer,
    id: u16,
    next: u32,
}

impl Writer {
    fn new(buffer: &ShardedBuffer, id: u16) -> Writer {
        Writer { committer: buffer.committer().unwrap(), id, next: 0 }
    }

    fn write(&mut self) {
        let body = payload(&[self.next.to_le_bytes().to_vec()]);
        while let Err(error) = self.committer.commit_chunk(&info(1, self.id, self.next, 1, 0), &body) {
            assert!(matches!(error, CommitError::HandedBack(_)), "{error}");
            thread::yield_now();
        }
        self.next += 1;
    }

    fn write_many(&mut self, count: u32) {
        (0..count).for_each(|_| self.write());
    }

    /// Commits a chunk whose bytes come from `source`.
    fn write_from(&mut self, source: impl ByteSource + Send + Sync + 'static) {
        let chunk = info(1, self.id, self.next, 1, 0);
        self.next += 1;
        let source = Source::Owned(OwnedBytes(Box::new(source)));
        let mut batch = Batch { chunks: vec![(chunk, source)], ..Batch::default() };
        self.committer.commit(&mut batch).unwrap();
    }

    fn write_until_kept(&mut self, buffer: &ShardedBuffer) {
        self.write_many(MANY);
        assert_eq!(buffer.num_kept(), 1, "does this system have membarrier?");
    }
}

fn wait_until(mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(60), "the word is not kept");
        thread::yield_now();
    }
}

/// The numbers that were read, by writer. They must come in order, and without a loss.
#[derive(Default)]
struct Reader(HashMap<u16, u32>);

impl Reader {
    fn read(&mut self, buffer: &ShardedBuffer) {
        for packet in read_all(buffer) {
            assert_eq!(packet.loss & !1, 0, "writer {}: {:#x}", packet.writer_id, packet.loss);
            let next = self.0.entry(packet.writer_id).or_default();
            assert_eq!(packet.bytes, next.to_le_bytes(), "writer {}", packet.writer_id);
            *next += 1;
        }
    }
}

#[test]
fn a_word_is_kept_until_somebody_else_wants_the_shard() {
    let buffer = buffer(1, 4 << 20);
    let (mut writer, mut reader) = (Writer::new(&buffer, 1), Reader::default());
    writer.write_until_kept(&buffer);
    reader.read(&buffer);
    assert_eq!((reader.0[&1], buffer.num_kept()), (writer.next, 0), "all was read, and the word was revoked");

    writer.write_many(500);
    assert_eq!(buffer.num_kept(), 0, "not at once again");
    writer.write_many(MANY);
    assert_eq!(buffer.num_kept(), 1);
    let mut other = Writer::new(&buffer, 2);
    other.write();
    assert_eq!(buffer.num_kept(), 0, "another committer writes there");
    for _ in 0..MANY {
        writer.write();
        assert_eq!(buffer.num_kept(), 0, "two take turns");
        other.write();
    }
    writer.write_many(MANY);
    assert_eq!(buffer.num_kept(), 1);
    drop(writer);
    assert_eq!(buffer.num_kept(), 0, "a committer that goes gives back what it keeps");
    reader.read(&buffer);
    assert_eq!(reader.0[&2], other.next);
    buffer.check().unwrap();
}

#[test]
fn a_keeper_that_never_comes_back_holds_nobody_up() {
    let buffer = buffer(1, 4 << 20);
    let mut writer = Writer::new(&buffer, 1);
    writer.write_until_kept(&buffer);
    let written = writer.next;
    // Its thread has died, or stands still for good.
    std::mem::forget(writer);
    let (mut other, mut reader) = (Writer::new(&buffer, 2), Reader::default());
    other.write_many(MANY);
    assert_eq!(buffer.num_kept(), 1, "by the other one");
    let mut copy = Reader::default();
    copy.read(&buffer.clone_read_only().unwrap());
    reader.read(&buffer);
    assert_eq!((reader.0[&1], reader.0[&2], copy.0[&1]), (written, other.next, written));
}

#[test]
fn one_keeps_one_word_and_the_other_shards_evict_from_it() {
    let buffer = buffer(2, 8 << 20);
    let mut writer = Writer::new(&buffer, 1);
    writer.committer.set_cpu(Some(0));
    writer.write_until_kept(&buffer);
    // The same committer in the other shard.
    let (first, first_next) = (writer.id, writer.next);
    (writer.id, writer.next) = (2, 0);
    writer.committer.set_cpu(Some(1));
    writer.write_many(4 * MANY);
    assert_eq!(buffer.num_kept(), 1, "the other one");
    let shards: Vec<u64> = buffer.shard_stats().iter().map(|(stats, _)| stats.chunks_written).collect();
    assert_eq!(shards, [u64::from(first_next), u64::from(writer.next)]);

    // Both are kept by two committers, and one of these stands still while the other pushes its data out.
    let mut still = Writer::new(&buffer, first);
    still.next = first_next;
    still.write_many(MANY);
    writer.write_many(MANY);
    assert_eq!(buffer.num_kept(), 2);
    let body = payload(&[vec![7; 3000]]);
    for _ in 0..(2 * buffer.size_bytes()) / 3000 {
        writer.committer.commit_chunk(&info(1, 2, writer.next, 1, 0), &body).unwrap();
        writer.next += 1;
    }
    let stats = buffer.stats();
    assert!(stats.chunks_overwritten > u64::from(first_next + MANY), "{stats:?}");
    buffer.check().unwrap();
    assert!(buffer.ledger().is_balanced());
    still.write();
    assert!(read_all(&buffer).iter().any(|packet| packet.writer_id == first));
}

/// Bytes whose copy lasts until it is told to end, and may then fail.
struct Slow {
    body: Vec<u8>,
    has_begun: Mutex<Sender<()>>,
    may_end: Mutex<Receiver<bool>>,
}

impl ByteSource for Slow {
    fn size_bytes(&self) -> usize {
        self.body.len()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        let _ = self.has_begun.lock().unwrap().send(());
        // Once the other end is gone, at once.
        assert!(self.may_end.lock().unwrap().recv().unwrap_or(true), "as planned");
        dst.copy_from_slice(&self.body[offset_bytes..][..dst.len()]);
    }
}

fn slow(number: u32) -> (Slow, Receiver<()>, Sender<bool>) {
    let ((has_begun, begun), (end, may_end)) = (channel(), channel());
    let body = payload(&[number.to_le_bytes().to_vec()]);
    (Slow { body, has_begun: Mutex::new(has_begun), may_end: Mutex::new(may_end) }, begun, end)
}

#[test]
fn a_keeper_that_stops_in_mid_copy_holds_up_a_read_alone() {
    let buffer = buffer(1, 4 << 20);
    let (mut writer, mut other) = (Writer::new(&buffer, 1), Writer::new(&buffer, 2));
    writer.write_until_kept(&buffer);
    let (source, begun, end) = slow(writer.next);
    let keeper = writer.committer.owner();
    thread::scope(|scope| {
        let stopped = scope.spawn(|| {
            writer.write_from(source);
            writer
        });
        begun.recv().unwrap();
        assert_eq!(buffer.num_kept(), 1);
        // Commits are queued, and nobody waits.
        other.write_many(10);
        assert_eq!(buffer.num_kept(), 0);
        let read = scope.spawn(|| {
            let mut pass = buffer.read_pass(write_packet);
            let got = common::drain(&mut pass).len();
            (got, pass.waits().iter().any(|wait| wait.owner == keeper))
        });
        thread::sleep(Duration::from_millis(50));
        assert!(!read.is_finished(), "a read waits for the copy");
        drop(end);
        let written = stopped.join().unwrap().next + other.next;
        assert_eq!(read.join().unwrap(), (written as usize, true), "all of it, and who held it up");
    });
}

#[test]
fn a_copy_that_fails_in_a_kept_shard_gives_it_back() {
    let buffer = buffer(1, 4 << 20);
    let mut writer = Writer::new(&buffer, 1);
    writer.write_until_kept(&buffer);
    let (source, _begun, end) = slow(writer.next);
    end.send(false).unwrap();
    assert!(catch_unwind(AssertUnwindSafe(|| writer.write_from(source))).is_err());
    let mut other = Writer::new(&buffer, 2);
    other.write_many(10);
    writer.write_many(MANY);
    let read = read_all(&buffer);
    assert_eq!(read.iter().filter(|packet| packet.writer_id == 2).count(), 10);
    buffer.check().unwrap();
}

/// One thread that commits, while others want its shard each time that it keeps it: to commit, to read, to clone.
#[test]
fn a_keeper_among_others() {
    let buffer = buffer(1, 4 << 20);
    let (mut writer, mut other) = (Writer::new(&buffer, 1), Writer::new(&buffer, 2));
    writer.write_until_kept(&buffer);
    let mut reader = Reader::default();
    let (is_over, goal) = (AtomicBool::new(false), AtomicU32::new(writer.next));
    let written = thread::scope(|scope| {
        let keeper = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                if writer.next < goal.load(Ordering::Relaxed) {
                    writer.write();
                } else {
                    thread::yield_now();
                }
            }
            writer.next
        });
        // Also when this fails, or the writer would go on for ever.
        let stop = Stop(&is_over);
        for turn in 0..24 {
            // Enough for the word to be kept, and for some more while the others are there.
            goal.fetch_add(MANY, Ordering::Relaxed);
            wait_until(|| buffer.num_kept() == 1);
            match turn % 3 {
                0 => other.write_many(1 + turn % 7),
                1 => buffer.clone_read_only().unwrap().check().unwrap(),
                _ => {}
            }
            reader.read(&buffer);
        }
        drop(stop);
        [keeper.join().unwrap(), other.next]
    });
    reader.read(&buffer);
    assert_eq!([reader.0[&1], reader.0[&2]], written);
    assert!(buffer.ledger().is_balanced());
}

/// Tells a thread to stop when it is dropped.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
