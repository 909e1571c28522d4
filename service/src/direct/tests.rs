//! Writers that commit themselves, with the service's side called by hand.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use watershed_engine::{ClientIdentity, Packet};
use watershed_shards::{Homes, ShardedBuffer, ShardedConfig};
use watershed_smb::{ChunkFlags, ChunkHeader, ChunkState, PageLayout, SharedMemory, Smb};

use super::*;
use crate::read::SharedSequences;

const PRODUCER: ProducerId = ProducerId(1);
const BUFFER: BufferId = BufferId(1);
const QUEUE_CAPACITY: usize = 4;
/// What does not happen within this time never will, however busy the machine is.
const WATCHDOG: Duration = Duration::from_secs(300);

struct World {
    direct: DirectCommits,
    smb: Smb,
    sequences: SharedSequences,
}

impl World {
    fn new() -> World {
        let memory = Arc::new(SharedMemory::anonymous(64 << 12).unwrap());
        let smb = Smb::new(memory, 4096).unwrap();
        World { direct: DirectCommits::default(), smb, sequences: SharedSequences::default() }
    }

    /// A buffer of one shard to which the producer may write.
    fn buffer(&self) -> Arc<ShardedBuffer> {
        let config = ShardedConfig {
            num_shards: Some(1),
            homes: Homes::RoundRobin,
            queue_capacity: QUEUE_CAPACITY,
            ..ShardedConfig::ring(1 << 20)
        };
        let trace = Arc::new(ShardedBuffer::create(config).unwrap());
        let (smb, sequences) = (self.smb.clone(), self.sequences.clone());
        let target =
            Target { smb, identity: ClientIdentity::default(), trace: Arc::clone(&trace), sequences };
        self.direct.allow(PRODUCER, BUFFER, target);
        trace
    }

    fn committer(&self, writer_id: u16) -> DirectCommitter {
        self.direct.committer(PRODUCER, writer_id, BUFFER.0).expect("a new writer")
    }

    /// Commits a chunk with one packet: its number.
    fn commit(&self, committer: &mut DirectCommitter, chunk_id: u8) {
        let chunk = self.smb.try_acquire(0, PageLayout::Div1).expect("a free chunk");
        let writer_id = committer.writer.writer_id.0;
        let flags = ChunkFlags::NONE;
        let header = ChunkHeader { chunk_id: chunk_id.into(), writer_id, fragments: 1, flags };
        self.smb.write_payload(&chunk, 0, &[1, chunk_id]);
        self.smb.write_header(&chunk, header);
        let (page, index) = (chunk.page(), chunk.index());
        self.smb.complete(chunk).unwrap();
        committer.commit_chunk(page, index);
    }

    fn num_in_use(&self) -> usize {
        (0..self.smb.num_pages()).filter(|page| !self.smb.snapshot(*page).unwrap().is_free()).count()
    }
}

/// Takes what is in a buffer: writers and numbers.
fn read(trace: &ShardedBuffer) -> Vec<(u16, u8)> {
    let found = Mutex::new(Vec::new());
    let note = |packet: &Packet<'_>, _: &mut Vec<u8>| {
        lock(&found).push((packet.writer_id.0, packet.to_vec()[0]));
        true
    };
    let mut pass = trace.read_pass(note);
    pass.write_all(|_| Ok::<_, std::convert::Infallible>(())).unwrap();
    drop(pass);
    found.into_inner().unwrap()
}

#[test]
fn what_is_committed_is_there_at_once_and_its_sequence_is_known() {
    let world = World::new();
    let trace = world.buffer();
    let [mut one, mut two] = [1, 2].map(|writer_id| world.committer(writer_id));
    for chunk_id in 0..3 {
        world.commit(&mut one, chunk_id);
        world.commit(&mut two, chunk_id);
    }
    assert_eq!(world.num_in_use(), 0, "the memory is free again");
    assert_eq!(read(&trace), [(1, 0), (2, 0), (1, 1), (2, 1), (1, 2), (2, 2)]);
    let table = world.sequences.table();
    assert!([1, 2].iter().all(|id| table.id_of(PRODUCER, WriterId(*id)).is_some()));
}

/// What a scrape looks at stays as it is, and what is committed meanwhile comes behind it: of
/// writers that had a committer before and of those that come.
#[test]
fn a_scrape_comes_before_what_is_committed_meanwhile() {
    let world = World::new();
    let trace = world.buffer();
    let mut old = world.committer(1);
    world.commit(&mut old, 0);
    let mut new = world.committer(2);
    let scraped = world.direct.while_held(PRODUCER, || {
        world.commit(&mut old, 1);
        world.commit(&mut new, 0);
        let mut newest = world.committer(3);
        world.commit(&mut newest, 0);
        world.commit(&mut old, 2);
        assert_eq!(world.num_in_use(), 4, "nothing is freed");
        read(&trace)
    });
    assert_eq!(scraped, [(1, 0)]);
    let mut after = read(&trace);
    after.sort_unstable();
    assert_eq!(after, [(1, 1), (1, 2), (2, 0), (3, 0)], "nobody else had to come");
    assert_eq!(world.num_in_use(), 0);
}

/// A thread that is stopped on the way from its chunk to the batch that waits: a scrape finds it.
#[test]
fn no_chunk_is_out_of_sight() {
    let world = World::new();
    let trace = world.buffer();
    let mut committer = world.committer(1);
    let writer = Arc::clone(&committer.writer);
    std::thread::scope(|scope| {
        writer.handshake.with_waiting(|_| {
            scope.spawn(|| world.commit(&mut committer, 0));
            let is_found = || world.smb.scrape().any(|chunk| chunk.is_complete());
            let is_taken = || {
                let states = |page| world.smb.snapshot(page).unwrap().states();
                (0..world.smb.num_pages()).flat_map(states).any(|(_, state)| state == ChunkState::BeingRead)
            };
            let started = Instant::now();
            while !is_found() {
                assert!(!is_taken() && started.elapsed() < WATCHDOG);
                std::thread::yield_now();
            }
            // Time for the thread to get further than it may.
            for _ in 0..100 {
                std::thread::sleep(Duration::from_micros(200));
                assert!(is_found());
            }
        });
    });
    assert_eq!(read(&trace), [(1, 0)]);
}

#[test]
fn what_finds_no_room_waits_in_order_and_the_service_is_told() {
    let world = World::new();
    let trace = world.buffer();
    let woken = Arc::new(AtomicU64::new(0));
    let wake = Arc::clone(&woken);
    world.direct.on_wanted(move || {
        wake.fetch_add(1, Ordering::Relaxed);
    });
    let mut committer = world.committer(1);
    world.commit(&mut committer, 0);
    let stopped = trace.stop_shard(0);
    let num_chunks = 3 * QUEUE_CAPACITY as u8;
    (1..num_chunks).for_each(|chunk_id| world.commit(&mut committer, chunk_id));
    assert!(world.direct.is_stuck());
    assert_eq!(woken.load(Ordering::Relaxed), 1, "once, until it has come");
    world.direct.forget_wake();
    world.direct.retry();
    assert!(world.direct.is_stuck(), "still");
    drop(stopped);
    world.direct.retry();
    assert!(!world.direct.is_stuck());
    trace.drain();
    assert_eq!(world.num_in_use(), 0);
    let expected: Vec<_> = (0..num_chunks).map(|chunk_id| (1, chunk_id)).collect();
    assert_eq!(read(&trace), expected);
    assert!(world.direct.num_stuck_ever() > 0);
}

/// What the service could not commit comes before what the writer has left meanwhile.
#[test]
fn what_is_put_back_comes_first() {
    let world = World::new();
    let trace = world.buffer();
    let mut committer = world.committer(1);
    world.direct.while_held(PRODUCER, || {
        let writer = Arc::clone(&committer.writer);
        world.commit(&mut committer, 0);
        let mut taken = writer.handshake.with_waiting(std::mem::take);
        world.commit(&mut committer, 1);
        writer.handshake.put_back(&mut taken);
        assert!(taken.is_empty());
    });
    assert_eq!(trace.stats().chunks_committed_out_of_order, 0);
    assert_eq!(read(&trace), [(1, 0), (1, 1)]);
}

/// Also where another thread has the shard, for which the service waits then.
#[test]
fn a_buffer_is_drained_whatever_waits() {
    let world = World::new();
    let trace = world.buffer();
    let mut committer = world.committer(1);
    world.commit(&mut committer, 0);
    let (stopped, is_stopped) = mpsc::channel();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let shard = trace.stop_shard(0);
            stopped.send(()).unwrap();
            let started = Instant::now();
            while !trace.is_waited_for(0) && started.elapsed() < WATCHDOG {
                std::thread::yield_now();
            }
            drop(shard);
        });
        is_stopped.recv().unwrap();
        (1..20).for_each(|chunk_id| world.commit(&mut committer, chunk_id));
        world.direct.drain(BUFFER);
    });
    assert_eq!(read(&trace).len(), 20);
}

/// Also when the number of the buffer is given to another one.
#[test]
fn a_buffer_that_goes_takes_its_writers_with_it() {
    let world = World::new();
    let trace = world.buffer();
    let [mut has_committed, mut has_not] = [1, 2].map(|writer_id| world.committer(writer_id));
    world.commit(&mut has_committed, 0);
    assert_eq!(Arc::strong_count(&trace), 3, "this one, the table's, the committer's");
    world.direct.remove_buffer(BUFFER);
    assert_eq!(Arc::strong_count(&trace), 1, "its memory goes with it");
    let other = world.buffer();
    for chunk_id in 1..4 {
        world.commit(&mut has_committed, chunk_id);
        world.commit(&mut has_not, chunk_id);
    }
    has_committed.commit_patches(0, vec![(0, [0; 4]), (4, [0; 4])], false);
    assert_eq!(read(&other), []);
    assert_eq!((world.direct.discarded(), world.num_in_use()), ((6, 2), 0));
    assert!(world.direct.committer(PRODUCER, 1, BUFFER.0).is_none(), "the number is in use");
    world.direct.remove_writer(PRODUCER, WriterId(1));
    world.commit(&mut world.committer(1), 0);
    assert_eq!(read(&other), [(1, 0)]);
}

#[test]
fn what_is_for_a_shard_that_has_failed_is_counted() {
    let world = World::new();
    let trace = world.buffer();
    let mut committer = world.committer(1);
    world.commit(&mut committer, 0);
    assert!(catch_unwind(AssertUnwindSafe(|| trace.panic_in_shard(0))).is_err());
    (1..4).for_each(|chunk_id| world.commit(&mut committer, chunk_id));
    assert_eq!((world.direct.discarded(), world.num_in_use()), ((3, 0), 0));
}

#[test]
fn writers_follow_to_the_buffer_that_replaces_theirs() {
    let world = World::new();
    let trace = world.buffer();
    let mut committer = world.committer(1);
    world.commit(&mut committer, 0);
    let other = World::new().buffer();
    world.direct.replace(BUFFER, &other);
    world.commit(&mut committer, 1);
    assert_eq!((read(&trace), read(&other)), (vec![(1, 0)], vec![(1, 1)]));
    assert_eq!(Arc::strong_count(&trace), 1);
}

#[test]
fn nobody_commits_for_another_writer_or_where_it_may_not() {
    let world = World::new();
    let trace = world.buffer();
    let (mut one, mut two) = (world.committer(1), world.committer(2));
    let chunk = world.smb.try_acquire(0, PageLayout::Div1).unwrap();
    let header = ChunkHeader { chunk_id: 0, writer_id: 1, fragments: 1, flags: ChunkFlags::NONE };
    world.smb.write_payload(&chunk, 0, &[1, 5]);
    world.smb.write_header(&chunk, header);
    let (page, index) = (chunk.page(), chunk.index());
    world.smb.complete(chunk).unwrap();
    two.commit_chunk(page, index);
    one.commit_chunk(page, index);
    one.commit_chunk(usize::MAX, 77);
    assert_eq!((read(&trace).len(), world.num_in_use()), (0, 0));
    for (producer, writer_id, buffer) in [(2, 3, 1), (1, 0, 1), (1, 32768, 1), (1, 3, 2), (1, 3, 0)] {
        assert!(world.direct.committer(ProducerId(producer), writer_id, buffer).is_none());
    }
}
