//! Reading: shards are extracted into blocks, blocks are merged in the order of tickets.
//!
//! ```text
//!   shard 0 --extract--> block: [ run t=3 | run t=9 | run t=12 ... ] --+
//!   shard 1 --extract--> block: [ run t=4 | run t=5 ............... ] --+-- heap by ticket --> pieces: 3 | 4 5 | 9 | ...
//!   shard 2 --extract--> block: [ run t=7 ........................ ] --+
//!            (in parallel)       at most 1 MiB each
//! ```
//!
//! A **run** is what the packets of one turn of the shard's outer walk became: its ticket is that of the record whose turn it was. Runs of
//! one shard come in the order of tickets, so the merge of all is the order that one shard would have given.
//!
//! A shard's word is held only to copy some packets out. What was extracted and not handed out stays here, counts as unread,
//! comes first in the next pass, and goes into clones.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::MutexGuard;
use std::time::Instant;

use rayon::prelude::*;
use watershed_engine::Packet;

use crate::inner::Inner;
use crate::own::{Drained, Owned};
use crate::word::OwnerId;

/// A block is handed out when it has this many bytes.
pub const BLOCK_BYTES: usize = 1 << 20;

/// Below this much unread data one thread extracts all shards.
const PARALLEL_BYTES: u64 = 1 << 20;

/// Packets between two looks at the clock, and the longest time that a reader keeps a word.
const PACKETS_A_LOOK: usize = 64;
const MOST_TIME_US: u128 = 50;

/// What a packet becomes on its way out.
pub trait PacketWriter: Sync {
    /// Appends to `out` what the packet shall become: framed and stamped, for a file. False: the packet is dropped, what was appended is
    /// taken back, and the losses that the packet carried stay pending for the next of its sequence.
    fn write(&self, packet: &Packet<'_>, out: &mut Vec<u8>) -> bool;
}

impl<F: Fn(&Packet<'_>, &mut Vec<u8>) -> bool + Sync> PacketWriter for F {
    fn write(&self, packet: &Packet<'_>, out: &mut Vec<u8>) -> bool {
        self(packet, out)
    }
}

#[derive(Clone, Copy, Debug)]
struct Run {
    ticket: u64,
    /// Where it ends in the block's bytes.
    end: usize,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Supply {
    /// The shard may have more below the cut.
    More,
    /// Nothing more in this pass.
    #[default]
    Nothing,
}

/// What was extracted of one shard.
#[derive(Clone, Debug, Default)]
struct Stream {
    bytes: Vec<u8>,
    runs: Vec<Run>,
    /// The next run to be handed out.
    next: usize,
    supply: Supply,
}

impl Stream {
    fn head(&self) -> Option<u64> {
        self.runs.get(self.next).map(|run| run.ticket)
    }

    fn is_empty(&self) -> bool {
        self.next == self.runs.len()
    }

    /// Hands out the runs before `limit`: where they lie.
    fn take_until(&mut self, limit: u64) -> Range<usize> {
        let start = self.next.checked_sub(1).map_or(0, |last| self.runs[last].end);
        while self.runs.get(self.next).is_some_and(|run| run.ticket <= limit) {
            self.next += 1;
        }
        start..self.runs[self.next - 1].end
    }

    fn unread_bytes(&self) -> usize {
        self.bytes.len() - self.next.checked_sub(1).map_or(0, |last| self.runs[last].end)
    }
}

/// What readers share: one pass at a time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reading {
    streams: Vec<Stream>,
}

impl Reading {
    /// Bytes that were extracted and not handed out.
    pub(crate) fn unread_bytes(&self) -> usize {
        self.streams.iter().map(Stream::unread_bytes).sum()
    }
}

/// A pass over everything that was committed before it began. Dropping it keeps what was not handed out for the next pass.
pub struct ReadPass<'a, W> {
    inner: &'a Inner,
    reading: MutexGuard<'a, Reading>,
    writer: W,
    cut: u64,
    owner: OwnerId,
    is_parallel: bool,
    pieces: Vec<(usize, Range<usize>)>,
    heap: BinaryHeap<Reverse<(u64, usize)>>,
    waits: Vec<Wait>,
}

/// Somebody for whom a read had to wait: the owner of a shard that was at work, or is stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wait {
    /// Whose shard.
    pub shard: usize,
    /// Who has it.
    pub owner: OwnerId,
}

impl<'a, W: PacketWriter> ReadPass<'a, W> {
    pub(crate) fn begin(inner: &'a Inner, writer: W, owner: OwnerId, limit: Option<u64>) -> ReadPass<'a, W> {
        let reading = inner.reading.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let cut = limit.unwrap_or_else(|| inner.tickets.cut());
        let mut pass = ReadPass {
            inner,
            reading,
            writer,
            cut,
            owner,
            is_parallel: false,
            pieces: Vec::new(),
            heap: BinaryHeap::new(),
            waits: Vec::new(),
        };
        pass.reading.streams.resize_with(inner.places.len(), Stream::default);
        let mut unread_bytes = 0;
        for shard in 0..inner.places.len() {
            let (supply, bytes) = pass.prepare(shard);
            pass.reading.streams[shard].supply = supply;
            unread_bytes += bytes;
        }
        pass.is_parallel = inner.places.len() > 1 && unread_bytes >= PARALLEL_BYTES;
        pass
    }

    /// Lets a shard drain up to the cut and starts its pass.
    fn prepare(&mut self, shard: usize) -> (Supply, u64) {
        loop {
            let mut owned = Owned::wait_for(self.inner, shard, self.owner, |shard, owner| {
                note(&mut self.waits, Wait { shard, owner });
            });
            if owned.drain(true) != Drained::Everything {
                drop(owned);
                std::thread::yield_now();
                continue;
            }
            let Some(engine) = &mut owned.state.engine else { return (Supply::Nothing, 0) };
            engine.begin_read();
            return (Supply::More, engine.ledger().listed.bytes);
        }
    }

    /// The next pieces of the merged stream, in order: about `most_bytes` (at least one run), until the pass is over. They are valid until the
    /// next call.
    pub fn next_pieces(&mut self, most_bytes: usize) -> Option<Pieces<'_>> {
        self.pieces.clear();
        self.refill();
        let streams = &mut self.reading.streams;
        self.heap.clear();
        self.heap.extend(
            streams.iter().enumerate().filter_map(|(shard, stream)| Some(Reverse((stream.head()?, shard)))),
        );
        let mut bytes = 0;
        while bytes < most_bytes
            && let Some(Reverse((_, shard))) = self.heap.pop()
        {
            let limit = self.heap.peek().map_or(u64::MAX, |&Reverse((ticket, _))| ticket);
            let stream = &mut streams[shard];
            let piece = stream.take_until(limit);
            bytes += piece.len();
            self.pieces.push((shard, piece));
            match stream.head() {
                Some(ticket) => self.heap.push(Reverse((ticket, shard))),
                // More of it may come next: nothing can be said of the order before it is there.
                None if stream.supply == Supply::More => break,
                None => {}
            }
        }
        (!self.pieces.is_empty()).then_some(Pieces { streams: &self.reading.streams, list: &self.pieces })
    }

    /// Extracts from every shard whose block has been handed out.
    fn refill(&mut self) {
        let (inner, writer, cut, owner) = (self.inner, &self.writer, self.cut, self.owner);
        let needs = |stream: &Stream| stream.is_empty() && stream.supply == Supply::More;
        let extract = |shard: usize, stream: &mut Stream| extract(inner, writer, cut, owner, shard, stream);
        let streams = &mut self.reading.streams;
        let waits: Vec<Wait> = if self.is_parallel {
            let needy = streams.par_iter_mut().enumerate().filter(|(_, stream)| needs(stream));
            needy.flat_map_iter(|(shard, stream)| extract(shard, stream)).collect()
        } else {
            let needy = streams.iter_mut().enumerate().filter(|(_, stream)| needs(stream));
            needy.flat_map(|(shard, stream)| extract(shard, stream)).collect()
        };
        waits.into_iter().for_each(|wait| note(&mut self.waits, wait));
        self.inner.attend(self.owner);
    }

    /// For whom this pass had to wait so far, each once.
    pub fn waits(&self) -> &[Wait] {
        &self.waits
    }

    /// Every chunk with a ticket below this belongs to the pass.
    pub fn cut(&self) -> u64 {
        self.cut
    }
}

fn note(waits: &mut Vec<Wait>, wait: Wait) {
    if !waits.contains(&wait) {
        waits.push(wait);
    }
}

/// Fills a block with the next packets of a shard. Gives the word back between two turns.
fn extract(
    inner: &Inner,
    writer: &dyn PacketWriter,
    cut: u64,
    owner: OwnerId,
    shard: usize,
    stream: &mut Stream,
) -> Vec<Wait> {
    let mut waits = Vec::new();
    stream.bytes.clear();
    stream.runs.clear();
    stream.next = 0;
    while stream.supply == Supply::More && stream.bytes.len() < BLOCK_BYTES {
        let mut owned =
            Owned::wait_for(inner, shard, owner, |shard, owner| note(&mut waits, Wait { shard, owner }));
        take_turn(&mut owned, writer, cut, stream);
        if inner.has_extents() {
            owned.return_emptied(false);
        }
        drop(owned);
        if !inner.places[shard].inbox.is_empty() {
            inner.visit(shard, owner);
        }
    }
    waits
}

fn take_turn(owned: &mut Owned<'_>, writer: &dyn PacketWriter, cut: u64, stream: &mut Stream) {
    let Some(engine) = &mut owned.state.engine else {
        stream.supply = Supply::Nothing;
        return;
    };
    let started = Instant::now();
    let mut packets = 0;
    while stream.bytes.len() < BLOCK_BYTES {
        let Some((ticket, packet)) = engine.read_next(cut) else {
            stream.supply = Supply::Nothing;
            return;
        };
        let before = stream.bytes.len();
        if !writer.write(&packet, &mut stream.bytes) {
            stream.bytes.truncate(before);
            let (producer, writer, loss) = (packet.producer_id, packet.writer_id, packet.loss);
            engine.return_loss(producer, writer, loss);
        }
        let end = stream.bytes.len();
        match stream.runs.last_mut() {
            Some(run) if run.ticket == ticket => run.end = end,
            _ => stream.runs.push(Run { ticket, end }),
        }
        packets += 1;
        if packets % PACKETS_A_LOOK == 0 && started.elapsed().as_micros() >= MOST_TIME_US {
            return;
        }
    }
}

/// Pieces of the merged stream, in order.
pub struct Pieces<'a> {
    streams: &'a [Stream],
    list: &'a [(usize, Range<usize>)],
}

impl<'a> Pieces<'a> {
    /// The pieces.
    pub fn iter(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let streams = self.streams;
        self.list.iter().map(move |(shard, range)| &streams[*shard].bytes[range.clone()])
    }

    /// Bytes of all of them.
    pub fn size_bytes(&self) -> usize {
        self.list.iter().map(|(_, range)| range.len()).sum()
    }
}
