//! Commits, patches, ends of writers (spec, trace-buffer 2.5, 2.6).

use crate::fragments::{Cut, touches_header, valid_prefix};
use crate::model::Model;
use crate::record::{Data, Ended, Record, Sequence, flags_after_cut, outer_bytes};
use crate::types::{Chunk, Patch, Policy, flag, is_newer, key_of, loss};

/// A commit after its untrusted bytes were parsed.
struct Sized<'a> {
    chunk: &'a Chunk<'a>,
    key: u64,
    visible: &'a [u8],
    reserved: usize,
    flags: u8,
    cut: Option<Cut>,
}

impl<'a> Sized<'a> {
    fn of(chunk: &'a Chunk<'a>) -> Self {
        let mut flags = chunk.flags & flag::FIELD;
        let mut count = chunk.num_fragments;
        if !chunk.complete && count > 0 {
            count -= 1;
            flags = flags_after_cut(flags);
        }
        let (visible, cut) = valid_prefix(chunk.bytes, count);
        if cut.is_some() {
            flags = flags_after_cut(flags);
        }
        Self {
            chunk,
            key: key_of(chunk.producer_id, chunk.writer_id),
            visible: &chunk.bytes[..visible],
            reserved: if chunk.complete { visible } else { chunk.bytes.len() },
            flags,
            cut,
        }
    }

    fn outer(&self) -> usize {
        outer_bytes(self.reserved)
    }
}

impl Model {
    /// Commits a chunk. False: the call itself is refused and nothing moved.
    pub fn commit(&mut self, chunk: &Chunk<'_>) -> bool {
        let key = key_of(chunk.producer_id, chunk.writer_id);
        if self.read_only || key == 0 || chunk.bytes.len() > usize::from(u16::MAX) {
            return false;
        }
        self.end_read_pass();
        let new_life = self.starts_new_life(key, chunk.chunk_id);
        let listed = if new_life { None } else { self.find_in_newest_life(key, chunk.chunk_id) };
        if self.sealed && listed.is_none() {
            self.stats.chunks_discarded += 1;
            return true;
        }
        let sized = Sized::of(chunk);
        if sized.cut == Some(Cut::Malformed) {
            self.stats.abi_violations += 1;
        }
        if sized.outer() > self.size {
            self.stats.abi_violations += 1;
            if !new_life && listed.is_none() && chunk.complete {
                self.mark_oversize(key, chunk.chunk_id);
            }
            return true;
        }
        match listed {
            Some(offset) => self.recommit(&sized, offset),
            None => self.commit_unlisted(&sized, new_life),
        }
        true
    }

    fn commit_unlisted(&mut self, sized: &Sized<'_>, new_life: bool) {
        let (key, chunk) = (sized.key, sized.chunk);
        let sequence = self.sequences.entry(key).or_insert_with(|| Sequence {
            identity: chunk.identity,
            life: 0,
            ended: None,
            list: Vec::new(),
            last: None,
            pending_loss: 0,
            stalled_in: 0,
        });
        if new_life {
            sequence.life += 1;
            sequence.ended = None;
            sequence.identity = chunk.identity;
        }
        let mut skip = 0;
        if let Some(last) = sequence.last.filter(|last| last.life == sequence.life)
            && !is_newer(chunk.chunk_id, last.chunk_id)
        {
            let same = chunk.chunk_id == last.chunk_id;
            if same && last.incomplete && sized.visible.len() > last.payload_bytes {
                skip = last.payload_bytes;
            } else if same && sized.visible.len() == last.payload_bytes {
                self.ledger.duplicate_commits += 1;
                return;
            } else {
                self.stats.chunks_discarded += 1;
                return;
            }
        }
        self.write(sized, skip);
    }

    /// Makes room and places a record of which the first `skip` bytes were read before.
    fn write(&mut self, sized: &Sized<'_>, skip: usize) {
        let (key, chunk, outer) = (sized.key, sized.chunk, sized.outer());
        if outer > self.size - self.cursor {
            if self.policy == Policy::Discard {
                self.sealed = true;
                self.stats.chunks_discarded += 1;
                return;
            }
            self.evict(self.cursor, self.size);
            self.cursor = 0;
            self.stats.write_wrap_count += 1;
        }
        let end = self.cursor + outer;
        self.evict(self.cursor, end);
        self.split_at(end);
        self.records.retain(|&offset, _| offset < self.cursor || offset >= end);

        let (life, identity) = {
            let sequence = self.sequence(key);
            (sequence.life, sequence.identity)
        };
        self.records.insert(
            self.cursor,
            Record {
                outer,
                data: Some(Data {
                    key,
                    life,
                    chunk_id: chunk.chunk_id,
                    identity,
                    reserved: sized.reserved,
                    payload: sized.visible.to_vec(),
                    consumed: skip,
                    flags: sized.flags,
                    incomplete: !chunk.complete,
                    cut: false,
                    aborted: false,
                    gap_accounted: false,
                    counted_read: false,
                    drained_by: None,
                    turn: (self.ticket.unwrap_or_default(), self.stats.chunks_written),
                }),
            },
        );
        let at = self.insertion_point(key, chunk.chunk_id);
        let offset = self.cursor;
        let list = &mut self.sequence_mut(key).list;
        let is_last = at == list.len();
        list.insert(at, offset);
        if !is_last {
            self.stats.chunks_committed_out_of_order += 1;
        }
        self.cursor = end;
        self.used = self.used.max(end);
        self.stats.chunks_written += 1;
        self.stats.bytes_written += outer as u64;
        self.ledger.written.add(outer);
        self.ledger.listed.add(outer);
        self.count_size(key, sized.visible.len());
        self.mark_cut(offset, sized.cut);
    }

    fn recommit(&mut self, sized: &Sized<'_>, offset: usize) {
        let (key, complete) = (sized.key, sized.chunk.complete);
        let is_front = self.sequence(key).list[0] == offset;
        let policy = self.policy;
        let data = self.data_mut(offset);
        let (old, new) = (data.payload.len(), sized.visible.len());
        let lost_flags = data.flags & flag::KNOWN & !sized.flags;
        if new < old || new > data.reserved || lost_flags != 0 {
            self.stats.abi_violations += 1;
            return;
        }
        let relocates = data.incomplete && data.is_drained() && complete && new > old;
        if relocates && is_front && policy == Policy::Ring {
            self.stats.chunks_relocated += 1;
            self.erase_front(key);
            self.write(sized, old);
            return;
        }
        if complete {
            data.incomplete = false;
        }
        if new > old {
            data.payload = sized.visible.to_vec();
            data.flags |= sized.flags;
            data.incomplete |= !complete;
            data.drained_by = None;
            self.stats.chunks_rewritten += 1;
            self.count_size(key, new);
        }
        self.mark_cut(offset, sized.cut);
    }

    /// Notes at the record's end what came after its visible fragments.
    fn mark_cut(&mut self, offset: usize, cut: Option<Cut>) {
        let data = self.data_mut(offset);
        match cut {
            None => {}
            Some(Cut::Malformed) => data.cut = true,
            Some(Cut::Sentinel) if data.aborted => {}
            Some(Cut::Sentinel) => {
                data.aborted = true;
                self.stats.trace_writer_packet_loss += 1;
            }
        }
    }

    /// A chunk larger than the buffer has no record: its loss is recorded where it would have been.
    fn mark_oversize(&mut self, key: u64, chunk_id: u32) {
        let Some(sequence) = self.sequences.get(&key) else {
            return;
        };
        if sequence.last.is_some_and(|last| last.life == sequence.life && !is_newer(chunk_id, last.chunk_id))
        {
            return;
        }
        match self.insertion_point(key, chunk_id) {
            0 => self.add_loss(key, loss::CHUNK_CORRUPTED),
            n => {
                let offset = self.sequence(key).list[n - 1];
                self.data_mut(offset).cut = true;
            }
        }
    }

    /// Index in the list for a chunk of the newest life: after the first older one, seen from the
    /// back.
    fn insertion_point(&self, key: u64, chunk_id: u32) -> usize {
        let sequence = self.sequence(key);
        let older = |&offset: &usize| {
            let data = self.data(offset);
            data.life < sequence.life || is_newer(chunk_id, data.chunk_id)
        };
        sequence.list.iter().rposition(older).map_or(0, |i| i + 1)
    }

    fn find_in_newest_life(&self, key: u64, chunk_id: u32) -> Option<usize> {
        let sequence = self.sequences.get(&key)?;
        let newest_first = sequence.list.iter().rev().copied();
        newest_first
            .take_while(|&offset| self.data(offset).life == sequence.life)
            .take_while(|&offset| !is_newer(chunk_id, self.data(offset).chunk_id))
            .find(|&offset| self.data(offset).chunk_id == chunk_id)
    }

    fn starts_new_life(&self, key: u64, chunk_id: u32) -> bool {
        let Some(sequence) = self.sequences.get(&key) else {
            return false;
        };
        match sequence.ended {
            None => false,
            Some(Ended::Producer) => true,
            Some(Ended::Writer) => {
                let back = sequence.list.last().map(|&offset| self.data(offset));
                let listed = back.filter(|d| d.life == sequence.life).map(|d| d.chunk_id);
                let consumed = sequence.last.filter(|l| l.life == sequence.life).map(|l| l.chunk_id);
                listed.is_some_and(|id| !is_newer(chunk_id, id))
                    || consumed.is_some_and(|id| !is_newer(chunk_id, id))
            }
        }
    }

    /// Writes all patches into a listed chunk, or none.
    pub fn patch(
        &mut self,
        producer_id: u32,
        writer_id: u16,
        chunk_id: u32,
        patches: &[Patch],
        other_patches_pending: bool,
    ) -> bool {
        if self.read_only {
            return false;
        }
        self.end_read_pass();
        let key = key_of(producer_id, writer_id);
        let sequence = self.sequences.get(&key);
        let list = sequence.map_or(&[][..], |sequence| &sequence.list);
        // A whole chunk of a writer that has ended is not meant: that of the newest one is gone, or
        // was never taken.
        let writes_on = |data: &Data| sequence.is_some_and(|s| s.life == data.life && s.ended.is_none());
        let is_meant = |&offset: &usize| {
            let data = self.data(offset);
            data.chunk_id == chunk_id && (writes_on(data) || data.flags & flag::NEEDS_PATCHING != 0)
        };
        let found = list.iter().rev().copied().find(is_meant);
        let Some(offset) = found.filter(|&offset| self.are_applicable(offset, patches)) else {
            self.stats.patches_failed += 1;
            return false;
        };
        let data = self.data_mut(offset);
        for patch in patches {
            data.payload[patch.offset as usize..][..4].copy_from_slice(&patch.data);
        }
        if !other_patches_pending {
            data.flags &= !flag::NEEDS_PATCHING;
        }
        self.stats.patches_succeeded += patches.len() as u64;
        true
    }

    fn are_applicable(&self, offset: usize, patches: &[Patch]) -> bool {
        let payload = &self.data(offset).payload;
        patches.iter().all(|patch| {
            let at = patch.offset as usize;
            at + 4 <= payload.len() && !touches_header(payload, at, 4)
        })
    }

    /// Nothing more comes from this writer; its ids may start again.
    pub fn end_writer(&mut self, producer_id: u32, writer_id: u16) {
        self.end(|key| key == key_of(producer_id, writer_id), Ended::Writer);
    }

    /// Nothing more comes from this producer; another process may get its id.
    pub fn end_producer(&mut self, producer_id: u32) {
        self.end(|key| key >> 16 == u64::from(producer_id), Ended::Producer);
    }

    fn end(&mut self, is_meant: impl Fn(u64) -> bool, ended: Ended) {
        if self.read_only {
            return;
        }
        self.end_read_pass();
        for (_, sequence) in self.sequences.iter_mut().filter(|(key, _)| is_meant(**key)) {
            if sequence.ended != Some(Ended::Producer) {
                sequence.ended = Some(ended);
            }
        }
    }
}
