//! A thread that serves what it has committed, in the place of workers that are parked.

mod common;

use std::collections::BTreeMap;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, ThreadId};

use common::{info, read_all, shared_chunk, wait_until};
use watershed_engine::ByteSource;
use watershed_shards::{
    Batch, Committer, OwnedBytes, ShardedBuffer, ShardedConfig, Source, Topology, WorkerPool,
};
use watershed_smb::{SharedMemory, Smb};

fn pool() -> WorkerPool {
    let workers = WorkerPool::start(1, &Topology::of_this_process(), false).unwrap();
    wait_until("the worker is parked", || workers.all_parked());
    workers
}

fn buffer(workers: &WorkerPool) -> (ShardedBuffer, Committer) {
    let buffer = ShardedBuffer::create(ShardedConfig {
        num_shards: Some(2),
        workers: Some(workers.clone()),
        ..ShardedConfig::ring(4 << 20)
    })
    .unwrap();
    wait_until("the worker knows of it", || workers.all_parked());
    let mut committer = buffer.committer().unwrap();
    committer.leave_wakes();
    (buffer, committer)
}

/// How many chunks each thread has copied.
type Copies = Arc<Mutex<BTreeMap<String, usize>>>;

/// A chunk that notes who copies it. With a gate, the copy says so and waits.
struct Noted(Copies, Option<Gate>);

type Gate = (Sender<()>, Mutex<Receiver<()>>);

fn name(thread: ThreadId) -> String {
    format!("{thread:?}")
}

impl ByteSource for Noted {
    fn size_bytes(&self) -> usize {
        2
    }

    fn copy_range(&self, _: usize, dst: &mut [u8]) {
        if let Some((begun, go_on)) = &self.1 {
            begun.send(()).unwrap();
            go_on.lock().unwrap().recv().unwrap();
        }
        *self.0.lock().unwrap().entry(name(thread::current().id())).or_default() += 1;
        dst.copy_from_slice(b"\x01.");
    }
}

fn own_copies(copies: &Copies) -> usize {
    copies.lock().unwrap().get(&name(thread::current().id())).copied().unwrap_or(0)
}

fn all_copies(copies: &Copies) -> usize {
    copies.lock().unwrap().values().sum()
}

/// Commits so many chunks of a writer, each in a batch of its own.
fn commit(committer: &mut Committer, copies: &Copies, writer: u16, num_chunks: u32) {
    for id in 0..num_chunks {
        let source = Source::Owned(OwnedBytes::new(Noted(Arc::clone(copies), None)));
        let chunks = vec![(info(1, writer, id, 1, 0), source)];
        committer.commit(&mut Batch { chunks, ..Batch::default() }).unwrap();
    }
}

/// On both ways of a commit: the first chunk of a sequence, and one that follows it.
#[test]
fn little_is_served_without_a_worker() {
    let workers = pool();
    let (buffer, mut committer) = buffer(&workers);
    let smb = Smb::new(Arc::new(SharedMemory::anonymous(4096).unwrap()), 4096).unwrap();
    for id in 0..3 {
        let chunk = shared_chunk(&smb, 0, (1, 1, id), vec![7; 100]);
        committer
            .commit(&mut Batch { memory: Some(smb.clone()), chunks: vec![chunk], ..Batch::default() })
            .unwrap();
        assert!(!smb.snapshot(0).unwrap().is_free(), "nobody was woken");
        workers.serve();
        assert!(smb.snapshot(0).unwrap().is_free() && workers.all_parked());
        assert_eq!(workers.stats().turns, u64::from(id) + 1);
    }
    assert_eq!(read_all(&buffer).len(), 3);
}

#[test]
fn a_worker_does_what_is_left_of_much() {
    let workers = pool();
    let (buffer, mut committer) = buffer(&workers);
    let copies = Copies::default();
    for writer in 1..=4 {
        commit(&mut committer, &copies, writer, 60);
    }
    assert_eq!(all_copies(&copies), 0, "nobody was woken");
    workers.serve();
    let own = own_copies(&copies);
    assert!((1..=128).contains(&own), "{own} chunks");
    wait_until("a worker has done the rest", || all_copies(&copies) == 240);
    assert_eq!(own_copies(&copies), own);
    assert_eq!(read_all(&buffer).len(), 240);
}

/// It has to come by again anyway.
#[test]
fn a_worker_that_is_up_does_it() {
    let workers = pool();
    let (buffer, mut committer) = buffer(&workers);
    let (copies, (begun, has_begun), (go_on, may_go_on)) =
        (Copies::default(), mpsc::channel(), mpsc::channel());
    let source =
        Source::Owned(OwnedBytes::new(Noted(Arc::clone(&copies), Some((begun, Mutex::new(may_go_on))))));
    // Of a committer that wakes workers.
    let mut batch = Batch { chunks: vec![(info(2, 1, 0, 1, 0), source)], ..Batch::default() };
    buffer.committer().unwrap().commit(&mut batch).unwrap();
    has_begun.recv().unwrap();
    for writer in 1..=4 {
        commit(&mut committer, &copies, writer, 3);
    }
    workers.serve();
    assert_eq!(all_copies(&copies), 0);
    go_on.send(()).unwrap();
    wait_until("the worker has done all", || all_copies(&copies) == 13);
    assert_eq!(own_copies(&copies), 0);
    assert_eq!(read_all(&buffer).len(), 13);
}
