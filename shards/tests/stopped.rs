//! Workers that stop, between two batches and in the middle of a copy, and sources that panic: what
//! goes on, what waits, and that nothing is lost.

mod common;

use std::collections::HashMap;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use common::{Bytes, Got, info, owned, payload, read_all, wait_until, write_packet};
use watershed_engine::ByteSource;
use watershed_shards::{
    Batch, CommitError, Committer, QueueFull, ShardedBuffer, ShardedConfig, Source, WorkerPool,
};

const SHARDS: usize = 4;
const WRITERS: usize = 12;
/// As many as `common::workers` starts.
const WORKERS: u32 = 4;

fn buffer() -> ShardedBuffer {
    buffer_with(common::workers(true).unwrap())
}

fn buffer_with(workers: WorkerPool) -> ShardedBuffer {
    let config = ShardedConfig {
        num_shards: Some(SHARDS),
        workers: Some(workers),
        queue_capacity: 16,
        ..ShardedConfig::ring(4 << 20)
    };
    let buffer = ShardedBuffer::create(config).unwrap();
    assert_eq!(buffer.report().layout.num_shards, SHARDS);
    buffer
}

/// Writers of all shards, whose chunks hold one packet each, with its number.
struct Writers {
    committer: Committer,
    next_ids: [u32; WRITERS],
}

impl Writers {
    fn new(buffer: &ShardedBuffer) -> Writers {
        Writers { committer: buffer.committer().unwrap(), next_ids: [0; WRITERS] }
    }

    /// The shard of a writer: each gets three, as long as nobody else commits.
    fn shard(writer: usize) -> usize {
        writer % SHARDS
    }

    fn write(&mut self, writer: usize) -> Result<(), QueueFull> {
        let id = self.next_ids[writer];
        let mut body = id.to_le_bytes().to_vec();
        body.resize(1500, 0);
        self.committer.set_cpu(Some(Writers::shard(writer)));
        let chunk = info(1, 1 + writer as u16, id, 1, 0);
        match self.committer.commit_chunk(&chunk, &payload(&[body])) {
            Ok(()) => {
                self.next_ids[writer] += 1;
                Ok(())
            }
            Err(CommitError::QueueFull(full)) => Err(full),
            Err(error) => panic!("{error}"),
        }
    }

    /// A chunk of each writer, in one batch.
    fn write_all(&mut self) -> Result<(), QueueFull> {
        let bodies = self.next_ids.map(|id| payload(&[id.to_le_bytes().to_vec()]));
        let mut batch = Batch::default();
        for (writer, (id, body)) in self.next_ids.iter().zip(&bodies).enumerate() {
            batch.chunks.push((info(1, 1 + writer as u16, *id, 1, 0), Source::Borrowed(body)));
        }
        match self.committer.commit(&mut batch) {
            Ok(()) => {
                assert!(batch.is_empty());
                self.next_ids.iter_mut().for_each(|id| *id += 1);
                Ok(())
            }
            Err(CommitError::QueueFull(full)) => Err(full),
            Err(error) => panic!("{error}"),
        }
    }

    fn write_for_sure(&mut self, writer: usize) {
        while self.write(writer).is_err() {
            thread::yield_now();
        }
    }
}

/// Packets come in order, and missing ones are reported. The newest packet of each writer.
fn check(list: &[Got]) -> HashMap<u16, u32> {
    let mut newest: HashMap<u16, u32> = HashMap::new();
    for got in list {
        let number = u32::from_le_bytes(got.bytes[..4].try_into().unwrap());
        let next = newest.get(&got.writer_id).map_or(0, |last| last + 1);
        assert!(number >= next, "writer {}: {number} after {next}", got.writer_id);
        assert_eq!(got.loss != 0, number != next, "writer {}: packet {number}, not {next}", got.writer_id);
        newest.insert(got.writer_id, number);
    }
    newest
}

#[test]
fn what_stopped_workers_leave_is_drained_by_others() {
    let workers = common::workers(true).unwrap();
    let elsewhere = buffer_with(workers.clone());
    let buffer = buffer_with(workers);
    let mut writers = Writers::new(&buffer);
    (0..WRITERS).for_each(|writer| writers.write_for_sure(writer));
    buffer.ledger();
    // All workers but one stop in the middle of a copy, for another buffer.
    let gates: Vec<Gate> = (1..WORKERS as usize).map(|shard| stop_a_worker(&elsewhere, shard)).collect();
    // More than the ring holds, so that all shards evict; a queue holds sixteen.
    for round in 0..600 * WRITERS {
        writers.write_for_sure(round % WRITERS);
    }
    let mut pass = buffer.read_pass(write_packet);
    let mut bytes = Vec::new();
    pass.write_all(|pieces| pieces.write_to(&mut bytes)).unwrap();
    drop(pass);
    let newest = check(&common::parse(&bytes));
    for (writer, next) in writers.next_ids.iter().enumerate() {
        assert_eq!(newest[&(1 + writer as u16)], next - 1, "the newest packet of writer {writer} was read");
    }
    let ledger = buffer.ledger();
    assert!(ledger.is_balanced() && ledger.overwritten.chunks > 0, "{ledger:?}");
    assert_eq!(ledger.written.chunks, writers.next_ids.iter().map(|&next| u64::from(next)).sum::<u64>());
    gates.iter().for_each(open);
}

/// Stops whoever drains this shard in the middle of a copy.
fn stop_a_worker(buffer: &ShardedBuffer, shard: usize) -> Gate {
    let (source, has_begun, gate) = stopping(payload(&[vec![7; 100]]));
    let mut committer = buffer.committer().unwrap();
    committer.set_cpu(Some(shard));
    let chunk = info(9, 1 + shard as u16, 0, 1, 0);
    committer.commit(&mut Batch { chunks: vec![(chunk, source)], ..Batch::default() }).unwrap();
    has_begun.recv_timeout(Duration::from_secs(20)).expect("a worker is in the middle of the copy");
    gate
}

fn open(gate: &Gate) {
    *gate.0.lock().unwrap() = true;
    gate.1.notify_all();
}

/// Whether it is open, and a notification of that.
type Gate = Arc<(Mutex<bool>, Condvar)>;

/// A source in whose copy the thread stops until the gate opens.
struct Stopping {
    bytes: Vec<u8>,
    begun: Mutex<Sender<()>>,
    gate: Gate,
}

impl ByteSource for Stopping {
    fn size_bytes(&self) -> usize {
        self.bytes.len()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        let (front, back) = dst.split_at_mut(dst.len() / 2);
        front.copy_from_slice(&self.bytes[offset_bytes..][..front.len()]);
        self.begun.lock().unwrap().send(()).unwrap();
        let (is_open, news) = &*self.gate;
        drop(news.wait_while(is_open.lock().unwrap(), |is_open| !*is_open).unwrap());
        back.copy_from_slice(&self.bytes[offset_bytes + front.len()..][..back.len()]);
    }
}

fn stopping(bytes: Vec<u8>) -> (Source<'static>, Receiver<()>, Gate) {
    let (begun, has_begun) = channel();
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let source = Stopping { bytes, begun: Mutex::new(begun), gate: Arc::clone(&gate) };
    (owned(source), has_begun, gate)
}

#[test]
fn a_worker_that_stops_in_the_middle_of_a_copy_delays_its_own_shard_only() {
    let buffer = buffer();
    let mut writers = Writers::new(&buffer);
    (0..WRITERS).for_each(|writer| writers.write_for_sure(writer));
    let stuck = Writers::shard(1);
    let mut body = 1_u32.to_le_bytes().to_vec();
    body.resize(2000, 0);
    let (source, has_begun, gate) = stopping(payload(&[body]));
    let mut batch = Batch { chunks: vec![(info(1, 2, 1, 1, 0), source)], ..Batch::default() };
    writers.committer.commit(&mut batch).unwrap();
    writers.next_ids[1] = 2;
    has_begun.recv_timeout(Duration::from_secs(20)).expect("the worker is in the middle of the copy");

    // Ten megabytes for the other shards: they are taken only if their evictions go on.
    let mut refused = 0;
    for round in 0..800 * WRITERS {
        let writer = round % WRITERS;
        if Writers::shard(writer) != stuck {
            writers.write_for_sure(writer);
        } else if let Err(full) = writers.write(writer) {
            assert_eq!(full.shard, stuck);
            refused += 1;
        }
    }
    assert!(refused > 0, "the queue of the stopped shard is full");
    check_that_a_read_waits(&buffer, stuck, || open(&gate));
    for (shard, (stats, _)) in buffer.shard_stats().iter().enumerate() {
        assert!(shard == stuck || stats.chunks_overwritten > 0, "shard {shard} evicted");
    }
    let newest = check(&read_all(&buffer));
    for (writer, next) in writers.next_ids.iter().enumerate() {
        let newest = newest.get(&(1 + writer as u16)).copied();
        // What was queued at the stopped shard is the oldest of all by now: others may have evicted
        // it.
        let is_evicted = newest.is_none() && Writers::shard(writer) == stuck;
        assert!(is_evicted || newest == Some(next - 1), "writer {writer}: {newest:?} of {next}");
    }
    let accepted = writers.next_ids.iter().map(|&next| u64::from(next)).sum::<u64>();
    let ledger = buffer.ledger();
    assert!(ledger.is_balanced(), "{ledger:?}");
    assert_eq!(ledger.written.chunks, accepted, "what was queued behind the copy was written after it");
}

/// A read waits for a shard that is stopped until `go_on`.
fn check_that_a_read_waits(buffer: &ShardedBuffer, stuck: usize, go_on: impl FnOnce()) {
    thread::scope(|scope| {
        let (sender, receiver) = channel();
        scope.spawn(move || {
            drop(buffer.read_pass(write_packet));
            sender.send(()).unwrap();
        });
        wait_until("the read waits", || buffer.is_waited_for(stuck));
        assert!(receiver.try_recv().is_err());
        go_on();
        receiver.recv_timeout(Duration::from_secs(20)).unwrap();
    });
}

/// Without workers: whoever commits writes itself where a shard is free.
#[test]
fn a_stopped_shard_delays_no_other() {
    const QUEUE: usize = 16;
    let config =
        ShardedConfig { num_shards: Some(SHARDS), queue_capacity: QUEUE, ..ShardedConfig::ring(4 << 20) };
    let buffer = ShardedBuffer::create(config).unwrap();
    let mut writers = Writers::new(&buffer);
    (0..WRITERS).for_each(|writer| writers.write_for_sure(writer));
    let stuck = Writers::shard(1);
    let stopped = buffer.stop_shard(stuck);
    // Ten megabytes for the other shards: they are taken only if their evictions go on.
    let mut queued = 0;
    for round in 0..800 * WRITERS {
        match writers.write(round % WRITERS) {
            Ok(()) => queued += usize::from(Writers::shard(round % WRITERS) == stuck),
            Err(full) => assert_eq!((full.shard, queued), (stuck, QUEUE)),
        }
    }
    check_that_a_read_waits(&buffer, stuck, || drop(stopped));
    let newest = check(&read_all(&buffer));
    assert!((0..WRITERS).all(|writer| {
        Writers::shard(writer) == stuck || newest[&(1 + writer as u16)] == writers.next_ids[writer] - 1
    }));
    assert!(buffer.ledger().is_balanced());
}

/// A source that cannot be copied.
struct Broken;

impl ByteSource for Broken {
    fn size_bytes(&self) -> usize {
        100
    }

    fn copy_range(&self, _offset_bytes: usize, _dst: &mut [u8]) {
        // Without the panic's message.
        std::panic::resume_unwind(Box::new("broken"));
    }
}

#[test]
fn a_source_that_panics_takes_one_chunk_with_it() {
    let buffer =
        ShardedBuffer::create(ShardedConfig { num_shards: Some(1), ..ShardedConfig::ring(1 << 20) }).unwrap();
    let stopped = buffer.stop_shard(0);
    let body = |number: u32| payload(&[number.to_le_bytes().to_vec()]);
    let mut batch = Batch {
        chunks: vec![
            (info(1, 1, 0, 1, 0), owned(Bytes(body(0)))),
            (info(1, 1, 1, 1, 0), owned(Broken)),
            (info(1, 1, 2, 1, 0), owned(Bytes(body(2)))),
        ],
        ..Batch::default()
    };
    buffer.committer().unwrap().commit(&mut batch).unwrap();
    drop(stopped);
    thread::scope(|scope| {
        assert!(
            scope.spawn(|| buffer.ledger()).join().is_err(),
            "the thread that drains the queue copies the source"
        );
    });
    // The node is used again, by another committer that gets the same pool.
    buffer.committer().unwrap().commit_chunk(&info(1, 1, 3, 1, 0), &body(3)).unwrap();
    let numbers: Vec<(u8, bool)> =
        read_all(&buffer).iter().map(|got| (got.bytes[0], got.loss != 0)).collect();
    assert_eq!(numbers, [(0, false), (2, true), (3, false)]);
    let ledger = buffer.ledger();
    assert_eq!(ledger.written.chunks, 3);
    assert!(ledger.is_balanced());
}

#[test]
fn a_source_that_panics_on_the_fast_path_leaves_the_shard_unlocked() {
    let buffer =
        ShardedBuffer::create(ShardedConfig { num_shards: Some(1), ..ShardedConfig::ring(1 << 20) }).unwrap();
    let mut committer = buffer.committer().unwrap();
    let body = |number: u32| payload(&[number.to_le_bytes().to_vec()]);
    // The home is known from here on.
    committer.commit_chunk(&info(1, 1, 0, 1, 0), &body(0)).unwrap();
    let mut batch = Batch { chunks: vec![(info(1, 1, 1, 1, 0), owned(Broken))], ..Batch::default() };
    let commit = std::panic::AssertUnwindSafe(|| committer.commit(&mut batch));
    assert!(std::panic::catch_unwind(commit).is_err(), "the committing thread copies");
    buffer.committer().unwrap().commit_chunk(&info(1, 2, 0, 1, 0), &body(1)).unwrap();
    committer.commit_chunk(&info(1, 1, 2, 1, 0), &body(2)).unwrap();
    let numbers: Vec<(u8, bool)> =
        read_all(&buffer).iter().map(|got| (got.bytes[0], got.loss != 0)).collect();
    assert_eq!(numbers, [(0, false), (1, false), (2, true)]);
    buffer.check().unwrap();
}

#[test]
fn a_batch_for_many_shards_is_taken_whole_or_not_at_all() {
    const QUEUE: usize = 4;
    let config =
        ShardedConfig { num_shards: Some(SHARDS), queue_capacity: QUEUE, ..ShardedConfig::ring(4 << 20) };
    let buffer = ShardedBuffer::create(config).unwrap();
    let mut writers = Writers::new(&buffer);
    // Each writer gets its home.
    (0..WRITERS).for_each(|writer| writers.write_for_sure(writer));
    let held = buffer.stop_shard(1);
    let mut taken = 0;
    let full = loop {
        match writers.write_all() {
            Ok(()) => taken += 1,
            Err(full) => break full,
        }
    };
    assert_eq!((full.shard, taken), (1, QUEUE), "three shards write at once, the fourth queues");
    drop(held);
    writers.write_all().expect("the shard is free");
    let newest = check(&read_all(&buffer));
    assert_eq!(newest.len(), WRITERS);
    assert!(newest.values().all(|&number| number as usize == QUEUE + 1), "{newest:?}");
    assert!(buffer.ledger().is_balanced());
}

/// While one thread is stopped in the middle of a copy no second one serves, where one may: it
/// returns at once, and the first one does what has come meanwhile.
#[test]
fn no_more_threads_serve_than_there_are_workers() {
    let workers = WorkerPool::new(1);
    let buffer = buffer_with(workers.clone());
    let (asked, is_asked) = channel();
    workers.on_work(move || asked.send(()).unwrap());
    let (source, has_begun, gate) = stopping(payload(&[vec![7; 100]]));
    let mut writers = Writers::new(&buffer);
    let first = Batch { chunks: vec![(info(9, 1, 0, 1, 0), source)], ..Batch::default() };
    writers.committer.set_cpu(Some(0));
    writers.committer.commit(&mut { first }).unwrap();
    is_asked.recv_timeout(Duration::from_secs(20)).expect("a thread is asked for");
    assert!(workers.worker().has_work());
    thread::scope(|scope| {
        scope.spawn(|| workers.worker().serve());
        has_begun.recv_timeout(Duration::from_secs(20)).expect("it serves");
        (0..SHARDS).for_each(|writer| writers.write_for_sure(writer));
        assert!(is_asked.try_recv().is_err(), "there is one");
        workers.worker().serve();
        assert_eq!(workers.stats().turns, 0, "nothing was done");
        open(&gate);
    });
    assert!(workers.is_idle());
    assert!(workers.stats().turns >= SHARDS as u64, "{:?}", workers.stats());
    assert_eq!(read_all(&buffer).len(), 1 + SHARDS);
}
