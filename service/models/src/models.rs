//! Loom models: every interleaving of a writer's thread with the service's, on the shipped
//! handshake.
//!
//! ```text
//!   chunk     Complete -> BeingRead, as it is put -> Free, as it is committed
//!   buffer    chunks in the order in which they were scraped and committed
//! ```

use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU8, AtomicUsize, Ordering};
use loom::thread;

use crate::handshake::{Handshake, Left, Pending};
use crate::sync::{Mutex, lock};

const CHUNKS: usize = 2;

// States of a chunk.
const COMPLETE: u8 = 1;
const BEING_READ: u8 = 2;
const FREE: u8 = 3;

#[derive(Default)]
struct Batch(Vec<usize>);

impl Pending for Batch {
    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn append(&mut self, later: &mut Self) {
        self.0.append(&mut later.0);
    }
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Entry {
    Scraped(usize),
    Committed(usize),
}

/// A buffer.
struct Buffer {
    entries: Mutex<Vec<Entry>>,
    /// So many commits find no room.
    refusals: AtomicUsize,
    is_gone: AtomicBool,
}

impl Buffer {
    fn new(refusals: usize) -> Self {
        let (entries, is_gone) = (Mutex::new(Vec::new()), AtomicBool::new(false));
        Self { entries, refusals: AtomicUsize::new(refusals), is_gone }
    }

    fn entries(&self) -> Vec<Entry> {
        lock(&self.entries).clone()
    }
}

/// To which buffer is committed; `None`: to none any more.
type Access = Option<usize>;

struct World {
    handshake: Handshake<Access, Batch>,
    chunks: [AtomicU8; CHUNKS],
    written: AtomicUsize,
    buffers: [Buffer; 2],
    discarded: AtomicUsize,
}

impl World {
    fn new(refusals: usize) -> Arc<Self> {
        Arc::new(Self {
            handshake: Handshake::new(Some(0)),
            chunks: [(); CHUNKS].map(|()| AtomicU8::new(0)),
            written: AtomicUsize::new(0),
            buffers: [Buffer::new(refusals), Buffer::new(0)],
            discarded: AtomicUsize::new(0),
        })
    }

    fn commit(&self, access: &mut Access, batch: &mut Batch) -> Left {
        let Some(buffer) = access.map(|buffer| &self.buffers[buffer]) else {
            self.discarded.fetch_add(batch.0.drain(..).count(), Ordering::Relaxed);
            return Left::Nothing;
        };
        assert!(!buffer.is_gone.load(Ordering::Relaxed), "a commit to a buffer that is gone");
        let refusals = buffer.refusals.load(Ordering::Relaxed);
        if refusals > 0 {
            buffer.refusals.store(refusals - 1, Ordering::Relaxed);
            return Left::NoRoom;
        }
        for chunk in batch.0.drain(..) {
            let state = self.chunks[chunk].swap(FREE, Ordering::AcqRel);
            assert_eq!(state, BEING_READ, "a chunk is committed twice");
            lock(&buffer.entries).push(Entry::Committed(chunk));
        }
        Left::Nothing
    }

    fn commit_all(&self) -> bool {
        self.handshake.commit_all(|access, batch| self.commit(access, batch), |_| false)
    }

    /// The writer's thread: all chunks. Whether something was left for the lack of room.
    fn write(&self) -> bool {
        let mut is_stuck = false;
        for (chunk, state) in self.chunks.iter().enumerate() {
            state.store(COMPLETE, Ordering::Release);
            self.written.store(chunk + 1, Ordering::Release);
            self.handshake.with_waiting(|batch| {
                state.store(BEING_READ, Ordering::Release);
                batch.0.push(chunk);
            });
            let left = self.handshake.try_commit(|access, batch| self.commit(access, batch), |_| ());
            is_stuck |= matches!(left, Some((Left::NoRoom, ())));
        }
        is_stuck
    }

    /// The service's thread: what a flush does. What was written before it is in the buffer then.
    fn scrape(&self) {
        let written = self.written.load(Ordering::Acquire);
        let held = self.handshake.hold();
        for (chunk, state) in self.chunks.iter().enumerate() {
            if state.load(Ordering::Acquire) == COMPLETE {
                lock(&self.buffers[0].entries).push(Entry::Scraped(chunk));
            }
        }
        drop(held);
        if self.commit_all() {
            let entries = self.buffers[0].entries();
            let is_there = |chunk| entries.iter().any(|entry| chunk_of(*entry) == chunk);
            assert!((0..written).all(is_there), "{written} were written before: {entries:?}");
        }
    }

    /// The service's thread: another buffer, or none.
    fn leave_buffer(&self, access: Access) {
        self.handshake.change(|own| *own = access);
        self.buffers[0].is_gone.store(true, Ordering::Relaxed);
        assert!(self.commit_all());
    }

    fn is_nothing_left(&self) -> bool {
        self.handshake.with_waiting(|batch| batch.is_empty())
    }
}

fn chunk_of(entry: Entry) -> usize {
    match entry {
        Entry::Scraped(chunk) | Entry::Committed(chunk) => chunk,
    }
}

/// All chunks, once and in their order, none of them scraped behind its commit.
fn assert_in_order(entries: &[Entry]) {
    let is_commit = |entry: &&Entry| matches!(entry, Entry::Committed(_));
    let commits: Vec<_> = entries.iter().filter(is_commit).map(|entry| chunk_of(*entry)).collect();
    assert_eq!(commits, (0..CHUNKS).collect::<Vec<_>>());
    for chunk in 0..CHUNKS {
        let at = |wanted| entries.iter().position(|entry| *entry == wanted);
        assert!(at(Entry::Scraped(chunk)) <= at(Entry::Committed(chunk)), "{entries:?}");
    }
}

fn model(refusals: usize, service: fn(&World), check: fn(&World)) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(4);
    builder.check(move || {
        let world = World::new(refusals);
        let writer = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.write())
        };
        service(&world);
        if writer.join().expect("the writer") {
            // It has told the service.
            world.commit_all();
        }
        assert!(world.is_nothing_left(), "something waits, and nobody comes");
        check(&world);
    });
}

#[test]
fn what_is_written_while_the_service_scrapes_is_committed_once() {
    model(0, World::scrape, |world| assert_in_order(&world.buffers[0].entries()));
}

#[test]
fn what_finds_no_room_is_committed_in_order() {
    model(
        1,
        |world| {
            world.scrape();
            // The service tries again what has found no room.
            while !world.commit_all() {}
        },
        |world| assert_in_order(&world.buffers[0].entries()),
    );
}

#[test]
fn nothing_is_committed_to_a_buffer_that_is_gone() {
    model(
        0,
        |world| world.leave_buffer(None),
        |world| {
            let committed = world.buffers[0].entries().len();
            assert_eq!(committed + world.discarded.load(Ordering::Relaxed), CHUNKS);
        },
    );
}

#[test]
fn a_buffer_that_replaces_another_one_goes_on() {
    model(
        0,
        |world| world.leave_buffer(Some(1)),
        |world| assert_in_order(&[world.buffers[0].entries(), world.buffers[1].entries()].concat()),
    );
}
