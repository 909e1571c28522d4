//! Well-behaved writers: packets through shared-memory chunks, batches, patches, scrapes.
//!
//! An oracle without the model: what was written is known, so what may be read is known too.
//! Without eviction every packet comes out once, whole, in the order of its writer, and no loss is
//! reported. With eviction packets come out whole, in order, never twice, and a packet before which
//! others are missing reports the loss.

use std::collections::VecDeque;

use crate::subject::Subject;
use crate::{Chunk, Identity, Patch, flag, loss};

/// Random numbers that depend on a seed only (splitmix64).
#[derive(Clone, Debug)]
pub struct Dice(pub u64);

impl Dice {
    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % n as u64) as usize
    }

    /// True once in `n`.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// A chunk in shared memory.
#[derive(Clone, Debug)]
struct Slot {
    writer: usize,
    id: u32,
    count: u16,
    flags: u8,
    bytes: Vec<u8>,
    filled: usize,
    is_complete: bool,
}

/// Four bytes that were not known when their chunk was completed.
#[derive(Clone, Debug)]
struct Hole {
    writer: usize,
    id: u32,
    patch: Patch,
    is_ready: bool,
}

#[derive(Clone, Debug, Default)]
struct Writer {
    next_id: u32,
    written: VecDeque<Vec<u8>>,
    serial: u32,
    /// An overwriting was reported, and another one may have been with it: a write may evict newer
    /// chunks of its own sequence, and what it writes, which comes before them, is the next
    /// packet.
    said_early: bool,
}

/// A producer with some writers, its shared memory, and the buffer that it writes to.
pub struct Writers<S> {
    /// The buffer.
    pub subject: S,
    dice: Dice,
    chunk_bytes: usize,
    writers: Vec<Writer>,
    slots: Vec<Slot>,
    holes: Vec<Hole>,
    evicts: bool,
    packets_read: u64,
    packets_lost: u64,
}

impl<S: Subject> Writers<S> {
    /// `count` writers with chunks of `chunk_bytes` payload; `evicts` says that the buffer may be
    /// too small.
    pub fn new(subject: S, count: usize, chunk_bytes: usize, evicts: bool, seed: u64) -> Self {
        Self {
            subject,
            dice: Dice(seed),
            chunk_bytes,
            writers: vec![Writer::default(); count],
            slots: Vec::new(),
            holes: Vec::new(),
            evicts,
            packets_read: 0,
            packets_lost: 0,
        }
    }

    /// Does `steps` steps, then ends all writers and reads the rest. Returns packets read and
    /// packets lost.
    ///
    /// # Errors
    ///
    /// A packet that should not have come out, or one that is missing.
    pub fn run(&mut self, steps: usize) -> Result<(u64, u64), String> {
        for _ in 0..steps {
            match self.dice.below(20) {
                0..14 => self.write_packet(),
                14..17 => self.send(),
                17 => self.scrape(),
                18 => self.read(usize::MAX)?,
                _ => {
                    let limit = self.dice.below(12);
                    self.read(limit)?;
                }
            }
        }
        for writer in 0..self.writers.len() {
            self.give_back(writer);
        }
        self.send();
        self.read(usize::MAX)?;
        for (index, writer) in self.writers.iter().enumerate() {
            if !self.evicts && !writer.written.is_empty() {
                return Err(format!("writer {index}: {} packets did not come out", writer.written.len()));
            }
        }
        Ok((self.packets_read, self.packets_lost))
    }

    fn open(&mut self, writer: usize) -> &mut Slot {
        let found = self.slots.iter().position(|slot| slot.writer == writer && !slot.is_complete);
        let index = found.unwrap_or_else(|| {
            let id = self.writers[writer].next_id;
            self.writers[writer].next_id += 1;
            let bytes = vec![0; self.chunk_bytes];
            self.slots.push(Slot { writer, id, count: 0, flags: 0, bytes, filled: 0, is_complete: false });
            self.slots.len() - 1
        });
        &mut self.slots[index]
    }

    /// The writer is done with its chunk; a header that was counted in advance becomes an empty
    /// fragment.
    fn give_back(&mut self, writer: usize) {
        let slot = self.open(writer);
        if slot.count > 0 && slot.filled < slot.bytes.len() {
            slot.bytes[slot.filled] = 0;
        }
        slot.is_complete = true;
    }

    fn write_packet(&mut self) {
        let writer = self.dice.below(self.writers.len());
        let len = match self.dice.below(8) {
            0 => 4,
            1..5 => 4 + self.dice.below(40),
            5 | 6 => 4 + self.dice.below(self.chunk_bytes),
            // Seldom over dozens of chunks.
            _ if self.dice.one_in(12) => 4 + self.dice.below(50 * self.chunk_bytes),
            _ => 4 + self.dice.below(3 * self.chunk_bytes),
        };
        let needs_patches = self.dice.one_in(3);
        self.writers[writer].serial += 1;
        let serial = self.writers[writer].serial;
        let mut packet: Vec<u8> = (0..len).map(|i| (serial as usize + i) as u8).collect();
        packet[..4].copy_from_slice(&serial.to_le_bytes());

        let mut rest = &packet[..];
        let mut is_first = true;
        loop {
            let size = self.chunk_bytes;
            let slot = self.open(writer);
            if size - slot.filled < 12 {
                self.give_back(writer);
                continue;
            }
            if !is_first {
                slot.flags |= flag::FIRST_CONTINUES;
            }
            // A finished packet has counted the next fragment in advance where there was room for
            // its header.
            slot.count += u16::from(slot.count == 0);
            let body = rest.len().min(size - slot.filled - 4);
            let header = [body as u8 | 0x80, (body >> 7) as u8 | 0x80, (body >> 14) as u8 | 0x80, 0];
            slot.bytes[slot.filled..][..4].copy_from_slice(&header);
            let begin = slot.filled + 4;
            slot.bytes[begin..][..body].copy_from_slice(&rest[..body]);
            slot.filled = begin + body;
            rest = &rest[body..];
            let id = slot.id;
            if rest.is_empty() {
                slot.count += u16::from(slot.filled < size);
                break;
            }
            is_first = false;
            slot.flags |= flag::LAST_CONTINUES;
            if needs_patches && body >= 4 {
                slot.flags |= flag::NEEDS_PATCHING;
                let mut data = [0; 4];
                data.copy_from_slice(&slot.bytes[begin..][..4]);
                slot.bytes[begin..][..4].fill(0);
                let patch = Patch { offset: begin as u32, data };
                self.holes.push(Hole { writer, id, patch, is_ready: false });
            }
            self.open(writer).is_complete = true;
            // The next fragment may be written much later: other writers, batches and reads come
            // between in a scrape.
            if self.dice.one_in(4) {
                self.scrape();
            }
            if self.dice.one_in(4) {
                self.send();
            }
        }
        self.holes.iter_mut().filter(|hole| hole.writer == writer).for_each(|hole| hole.is_ready = true);
        self.writers[writer].written.push_back(packet);
    }

    fn commit(&mut self, slot: &Slot, complete: bool) {
        let chunk = Chunk {
            producer_id: 1,
            writer_id: 1 + slot.writer as u16,
            identity: Identity { uid: 1, pid: 2, machine_id: 3 },
            chunk_id: slot.id,
            num_fragments: slot.count,
            flags: slot.flags,
            complete,
            bytes: &slot.bytes,
        };
        assert!(self.subject.commit(&chunk), "a writer that behaves is not refused");
    }

    /// One request: all finished chunks, then all patches that are known.
    fn send(&mut self) {
        let (finished, open) = std::mem::take(&mut self.slots).into_iter().partition(|slot| slot.is_complete);
        self.slots = open;
        let finished: Vec<Slot> = finished;
        for slot in &finished {
            self.commit(slot, true);
        }
        let is_sent =
            |slots: &[Slot], hole: &Hole| !slots.iter().any(|s| s.writer == hole.writer && s.id == hole.id);
        let (ready, waiting): (Vec<_>, _) = std::mem::take(&mut self.holes)
            .into_iter()
            .partition(|hole| hole.is_ready && is_sent(&self.slots, hole));
        self.holes = waiting;
        for Hole { writer, id, patch, .. } in ready {
            let found = self.subject.patch(1, 1 + writer as u16, id, &[patch], false);
            assert!(found || self.evicts, "chunk {id} of writer {writer} is waiting for this patch");
        }
    }

    /// What a flush does: all chunks as they are, in any order, at once.
    fn scrape(&mut self) {
        let mut slots = self.slots.clone();
        while !slots.is_empty() {
            let slot = slots.swap_remove(self.dice.below(slots.len()));
            if slot.is_complete || slot.count >= 2 {
                self.commit(&slot, slot.is_complete);
            }
        }
    }

    fn read(&mut self, limit: usize) -> Result<(), String> {
        self.subject.begin_read();
        for _ in 0..limit {
            let Some(packet) = self.subject.read_next() else {
                return Ok(());
            };
            let index = usize::from(packet.writer_id) - 1;
            let writer = &mut self.writers[index];
            let bytes = packet.slices.concat();
            let Some(at) = writer.written.iter().position(|written| *written == bytes) else {
                return Err(format!(
                    "writer {index}: a packet that was not written, or twice, or late: {packet:?}"
                ));
            };
            if packet.loss & loss::OVERWRITE != 0 {
                writer.said_early = true;
            } else if at > 0 && packet.loss == 0 && !std::mem::take(&mut writer.said_early) {
                return Err(format!("writer {index}: {at} packets are missing before {packet:?}"));
            }
            if packet.loss != 0 && !self.evicts {
                return Err(format!("writer {index}: a loss that was not: {packet:?}"));
            }
            writer.written.drain(..=at);
            self.packets_lost += at as u64;
            self.packets_read += 1;
        }
        Ok(())
    }
}
