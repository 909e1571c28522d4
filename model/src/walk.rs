//! Reading and eviction: the outer walk in buffer order, the inner one in the order of a sequence
//! (spec, trace-buffer 3 and 4).

use crate::fragments::{Token, token};
use crate::model::{Model, Pass, Walker};
use crate::record::{Consumption, Record};
use crate::types::{Packet, flag, loss};

/// What a fragment is to its packet (spec, trace-buffer 1.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Whole,
    Begin,
    Continue,
    End,
}

/// What comes next in a record.
enum Next {
    Fragment(Role, Part),
    Nothing { damaged: bool },
}

/// A fragment of a record.
#[derive(Clone, Copy)]
struct Part {
    offset: usize,
    body: usize,
    end: usize,
}

/// Outcome of a look-ahead; the parts found so far go with it.
enum Reassembly {
    Success(Vec<Part>),
    NotEnoughData(Vec<Part>),
    Loss(Vec<Part>, u32),
}

impl Model {
    /// Starts a pass at the oldest data.
    pub fn begin_read(&mut self) {
        self.generation += 1;
        let cursor = if self.cursor == self.used { 0 } else { self.cursor };
        self.pass = Some(Pass { cursor, cut: None, walker: None });
    }

    /// As [`begin_read`](Self::begin_read), in a shard: chunks come in the order of their tickets,
    /// and of those below `cut`.
    pub fn begin_read_below(&mut self, cut: u64) {
        self.begin_read();
        self.pass = self.pass.take().map(|pass| Pass { cut: Some(cut), ..pass });
    }

    /// The next packet of this pass; none when there is no more, or when there is no pass.
    pub fn read_next(&mut self) -> Option<Packet> {
        let mut pass = self.pass.take()?;
        let packet = match pass.cut {
            None => self.walk_buffer(&mut pass),
            Some(cut) => self.walk_by_ticket(&mut pass, cut),
        };
        self.pass = Some(pass);
        packet
    }

    fn walk_buffer(&mut self, pass: &mut Pass) -> Option<Packet> {
        if self.used == 0 {
            return None;
        }
        loop {
            let record = &self.records[&pass.cursor];
            let mut next = pass.cursor + record.outer;
            if let Some(walker) = &pass.walker {
                let walker = walker.clone();
                if let Some(mut packet) = self.walk_sequence(&walker) {
                    packet.loss = std::mem::take(&mut self.sequence_mut(walker.key).pending_loss);
                    return Some(packet);
                }
                next = walker.target + self.records[&walker.target].outer;
            } else if let Some(data) = &record.data {
                let key = data.key;
                pass.walker = Some(Walker { key, target: pass.cursor, mode: Consumption::Read });
                self.arrive_at_front(key);
                continue;
            }
            pass.walker = None;
            if next == self.cursor || next >= self.used && self.cursor == 0 {
                return None;
            }
            pass.cursor = if next >= self.used { 0 } else { next };
        }
    }

    fn walk_by_ticket(&mut self, pass: &mut Pass, cut: u64) -> Option<Packet> {
        loop {
            if let Some(walker) = pass.walker.clone()
                && let Some(mut packet) = self.walk_sequence(&walker)
            {
                packet.loss = std::mem::take(&mut self.sequence_mut(walker.key).pending_loss);
                return Some(packet);
            }
            pass.walker = None;
            let listed =
                self.records.iter().filter_map(|(&offset, record)| Some((offset, record.data.as_ref()?)));
            let ready = listed.filter(|(_, data)| {
                data.turn.0 < cut && self.sequence(data.key).stalled_in != self.generation
            });
            let (target, key) =
                ready.min_by_key(|(_, data)| data.turn).map(|(offset, data)| (offset, data.key))?;
            pass.walker = Some(Walker { key, target, mode: Consumption::Read });
            self.arrive_at_front(key);
        }
    }

    /// Destroys every record that begins in `[start, end)`.
    pub(crate) fn evict(&mut self, start: usize, end: usize) {
        let mut at = start;
        while at < end.min(self.used) {
            let record = &self.records[&at];
            let outer = record.outer;
            match &record.data {
                None => self.stats.padding_bytes_cleared += outer as u64,
                Some(data) => self.evict_up_to(data.key, at),
            }
            at += outer;
        }
    }

    fn evict_up_to(&mut self, key: u64, target: usize) {
        let walker = Walker { key, target, mode: Consumption::Evict };
        self.arrive_at_front(key);
        let mut is_lost = false;
        while let Some(mut packet) = self.walk_sequence(&walker) {
            packet.loss = self.sequence(key).pending_loss;
            let is_absorbed = self.absorb.is_some_and(|absorb| absorb(&packet));
            if self.absorb.is_some() {
                self.evicted.push(packet);
            }
            is_lost |= !is_absorbed;
        }
        if is_lost {
            self.add_loss(key, loss::OVERWRITE);
        }
    }

    /// Leaves padding behind `end` where it falls into a record.
    pub(crate) fn split_at(&mut self, end: usize) {
        let Some((&offset, record)) = self.records.range_mut(..end).next_back() else {
            return;
        };
        let rest = (offset + record.outer).saturating_sub(end);
        if rest > 0 {
            record.outer -= rest;
            self.records.insert(end, Record { outer: rest, data: None });
            self.stats.padding_bytes_written += rest as u64;
        }
    }

    /// The next packet of a sequence up to the walker's target.
    fn walk_sequence(&mut self, walker: &Walker) -> Option<Packet> {
        let key = walker.key;
        if walker.mode == Consumption::Read && self.sequence(key).stalled_in == self.generation {
            return None;
        }
        // Only the front is ever erased, so the walker stands on the front. A target that is gone
        // ends the walk.
        while self.records[&walker.target].data.is_some() {
            let front = self.sequence(key).list[0];
            match self.next_in(front) {
                Next::Nothing { damaged } => {
                    if !self.leave_front(walker, damaged) {
                        return None;
                    }
                }
                Next::Fragment(Role::Whole, part) => {
                    if let Some(packet) = self.take_packet(key, &[part], walker.mode) {
                        return Some(packet);
                    }
                }
                Next::Fragment(Role::Continue | Role::End, part) => {
                    self.add_loss(key, loss::ORPHAN_CONTINUATION);
                    self.consume(part, walker.mode);
                }
                Next::Fragment(Role::Begin, begin) => match self.reassemble(key, begin) {
                    Reassembly::Success(parts) => {
                        self.stats.readaheads_succeeded += 1;
                        if let Some(packet) = self.take_packet(key, &parts, walker.mode) {
                            return Some(packet);
                        }
                    }
                    failure => {
                        self.stats.readaheads_failed += 1;
                        if !self.give_up(walker, failure) {
                            return None;
                        }
                    }
                },
            }
        }
        None
    }

    /// Done with the front record's fragments. False: the walk ends here.
    fn leave_front(&mut self, walker: &Walker, damaged: bool) -> bool {
        let key = walker.key;
        let front = self.sequence(key).list[0];
        if walker.mode == Consumption::Read && self.data(front).incomplete && self.is_in_newest_life(front) {
            self.stall(key);
            return false;
        }
        if damaged {
            self.add_loss(key, loss::CHUNK_CORRUPTED);
        }
        self.erase_front(key);
        if front == walker.target || self.sequence(key).list.is_empty() {
            return false;
        }
        self.arrive_at_front(key);
        true
    }

    /// A begin that does not become a packet. False: the sequence stalls.
    fn give_up(&mut self, walker: &Walker, failure: Reassembly) -> bool {
        let front = self.sequence(walker.key).list[0];
        let (parts, bits) = match failure {
            Reassembly::Success(_) => unreachable!("only failures are given up"),
            Reassembly::Loss(parts, bits) => (parts, bits),
            Reassembly::NotEnoughData(parts) if walker.mode == Consumption::Evict => (parts, loss::OVERWRITE),
            Reassembly::NotEnoughData(parts) if !self.is_in_newest_life(front) => {
                (parts, loss::REASSEMBLY_BROKEN_CHAIN)
            }
            Reassembly::NotEnoughData(_) => {
                self.stall(walker.key);
                return false;
            }
        };
        self.add_loss(walker.key, bits);
        for part in parts {
            self.consume(part, walker.mode);
        }
        true
    }

    /// Looks for the rest of a packet; consumes nothing.
    fn reassemble(&self, key: u64, begin: Part) -> Reassembly {
        let mut parts = vec![begin];
        let front = self.data(begin.offset);
        if front.has(flag::NEEDS_PATCHING) {
            return Reassembly::NotEnoughData(parts);
        }
        let mut id = front.chunk_id;
        for &offset in &self.sequence(key).list[1..] {
            let data = self.data(offset);
            if data.life != front.life {
                break;
            }
            let next = self.next_in(offset);
            let is_end = matches!(next, Next::Fragment(Role::End, _));
            if data.has(flag::NEEDS_PATCHING) && !is_end {
                break;
            }
            id = id.wrapping_add(1);
            if data.chunk_id != id {
                return Reassembly::Loss(parts, loss::REASSEMBLY_GAP);
            }
            match next {
                Next::Fragment(Role::End, part) => {
                    parts.push(part);
                    return Reassembly::Success(parts);
                }
                Next::Fragment(Role::Continue, part) => parts.push(part),
                Next::Fragment(..) => return Reassembly::Loss(parts, loss::REASSEMBLY_BROKEN_CHAIN),
                Next::Nothing { damaged } if damaged || data.cut => {
                    return Reassembly::Loss(parts, loss::CHUNK_CORRUPTED);
                }
                Next::Nothing { .. } if data.incomplete => break,
                Next::Nothing { .. } => {}
            }
        }
        Reassembly::NotEnoughData(parts)
    }

    fn next_in(&self, offset: usize) -> Next {
        let data = self.data(offset);
        match token(&data.payload, data.consumed) {
            Token::End | Token::Sentinel => Next::Nothing { damaged: false },
            Token::Malformed => Next::Nothing { damaged: true },
            Token::Fragment { body, end } => {
                let continues = data.consumed == 0 && data.has(flag::FIRST_CONTINUES);
                let goes_on = end == data.payload.len() && data.has(flag::LAST_CONTINUES);
                let role = match (continues, goes_on) {
                    (true, true) => Role::Continue,
                    (true, false) => Role::End,
                    (false, true) => Role::Begin,
                    (false, false) => Role::Whole,
                };
                Next::Fragment(role, Part { offset, body, end })
            }
        }
    }

    /// Consumes the parts and makes a packet of them, unless all are empty.
    fn take_packet(&mut self, key: u64, parts: &[Part], mode: Consumption) -> Option<Packet> {
        let identity = self.data(parts[0].offset).identity;
        let bodies = parts.iter().map(|part| self.data(part.offset).payload[part.body..part.end].to_vec());
        let slices: Vec<_> = bodies.filter(|body| !body.is_empty()).collect();
        for &part in parts {
            self.consume(part, mode);
        }
        let (producer_id, writer_id) = ((key >> 16) as u32, key as u16);
        (!slices.is_empty()).then_some(Packet { producer_id, writer_id, identity, loss: 0, slices })
    }

    fn consume(&mut self, part: Part, mode: Consumption) {
        let outer = self.records[&part.offset].outer as u64;
        let data = self.data_mut(part.offset);
        data.consumed = part.end;
        if !data.is_drained() {
            return;
        }
        data.drained_by = Some(mode);
        if mode == Consumption::Evict {
            self.stats.chunks_overwritten += 1;
            self.stats.bytes_overwritten += outer;
        } else if !std::mem::replace(&mut data.counted_read, true) {
            self.stats.chunks_read += 1;
            self.stats.bytes_read += outer;
        }
    }

    fn stall(&mut self, key: u64) {
        self.sequence_mut(key).stalled_in = self.generation;
    }

    fn is_in_newest_life(&self, offset: usize) -> bool {
        let data = self.data(offset);
        data.life == self.sequence(data.key).life
    }
}
