//! Packets into fragments, fragments into chunks.

use watershed_smb::{ChunkFlags, ChunkHeader, MAX_FRAGMENTS_WRITTEN, WriteChunk};

use super::patches::PatchList;
use super::varint::{DROPPED, MAX_SIZE, MAX_VARINT_BYTES, redundant};
use crate::arbiter::{ExhaustedPolicy, Returned, Shared};
use crate::endpoint::Done;
use crate::sync::Arc;

/// Bytes of a size field whose size is not known yet.
const SIZE_FIELD_BYTES: usize = 4;
/// A packet starts only where a size field and this much more fits.
const MIN_PACKET_ROOM_BYTES: usize = SIZE_FIELD_BYTES + 8;
/// Sizes below this get a size field of one byte.
const COMPACT_BELOW: usize = 127;
/// A tag and a number, each at its longest.
pub(super) const MAX_FIELD_BYTES: usize = 2 * MAX_VARINT_BYTES;
/// From this length on bytes go straight to shared memory instead of through the image.
const DIRECT_FROM_BYTES: usize = 512;

/// `first_packet_on_sequence` (87) = true.
const FIRST_PACKET_ON_SEQUENCE: &[u8] = &[0xB8, 0x05, 0x01];
/// `previous_packet_dropped` (42) = present (1) | shared memory full (256).
const PREVIOUS_PACKET_DROPPED: &[u8] = &[0xD0, 0x02, 0x81, 0x02];

/// The chunk that the writer is filling.
#[derive(Debug)]
struct Current {
    chunk: WriteChunk,
    chunk_id: u32,
    /// Fragments started, as the header says; with `inflated` one more than there are.
    fragments: u16,
    /// The count was raised past the last finished packet so that a scrape sees it; the next packet takes the slot.
    inflated: bool,
    first_continues: bool,
}

impl Current {
    fn flags(&self) -> ChunkFlags {
        if self.first_continues { ChunkFlags::FIRST_CONTINUES } else { ChunkFlags::NONE }
    }
}

/// Where the size field of an open message is.
#[derive(Clone, Copy, Debug)]
enum SizeField {
    /// In the current chunk, at this payload offset.
    Here(usize),
    /// In a chunk that was returned: the ticket in the patch list.
    Patch(u64),
    /// In a chunk that was given up.
    Lost,
}

#[derive(Debug)]
struct OpenMessage {
    size_field: SizeField,
    /// `Core::body_bytes` behind the size field.
    body_start: u64,
}

/// Invariants: `synced <= position <= capacity`; `image[synced..position]` is what shared memory does not have yet, and
/// lies behind every byte that was written directly. `current` is `None` when `position` and `capacity` are 0.
#[derive(Debug)]
pub(super) struct Core {
    arbiter: Arc<Shared>,
    writer_id: u16,
    target_buffer: u16,
    policy: ExhaustedPolicy,

    current: Option<Current>,
    next_chunk_id: u32,
    image: Vec<u8>,
    capacity: usize,
    position: usize,
    synced: usize,

    /// Payload offset of the current fragment's size field.
    fragment_start: usize,
    /// Bytes of the current packet so far, size fields of fragments not counted.
    body_bytes: u64,
    open: Vec<OpenMessage>,
    patches: PatchList,
    in_packet: bool,
    /// The current packet goes nowhere.
    discarding: bool,
    /// The last chunk promised a continuation that never came: the next chunk must say so.
    owes_continuation: bool,
    /// The last attempt to get a chunk failed.
    exhausted: bool,
    /// Packets were dropped and no packet that says so has got through yet.
    loss_to_report: bool,
    /// The first packet of the sequence has got through.
    begun: bool,
    packets_dropped: u64,
}

impl Core {
    pub(super) fn new(
        arbiter: Arc<Shared>,
        writer_id: u16,
        target_buffer: u16,
        policy: ExhaustedPolicy,
    ) -> Self {
        Self {
            arbiter,
            writer_id,
            target_buffer,
            policy,
            current: None,
            next_chunk_id: 0,
            image: Vec::new(),
            capacity: 0,
            position: 0,
            synced: 0,
            fragment_start: 0,
            body_bytes: 0,
            open: Vec::new(),
            patches: PatchList::default(),
            in_packet: false,
            discarding: false,
            owes_continuation: false,
            exhausted: false,
            loss_to_report: false,
            begun: false,
            packets_dropped: 0,
        }
    }

    pub(super) fn writer_id(&self) -> u16 {
        self.writer_id
    }

    pub(super) fn packets_dropped(&self) -> u64 {
        self.packets_dropped
    }

    // --- packets

    pub(super) fn begin_packet(&mut self) {
        // Only a leaked MessageWriter leaves a packet open.
        self.finish_packet();
        self.in_packet = true;
        self.body_bytes = 0;
        self.discarding = false;
        if !self.room_for_packet() {
            self.lose_packet();
        }
        let Some(current) = &mut self.current else { return };
        if current.inflated {
            current.inflated = false;
        } else {
            current.fragments += 1;
            let (fragments, flags) = (current.fragments, current.flags());
            self.arbiter.smb().set_fragments(&current.chunk, fragments, flags);
        }
        self.begin_fragment();
        if !self.begun {
            self.append(FIRST_PACKET_ON_SEQUENCE);
        }
        if self.loss_to_report {
            self.append(PREVIOUS_PACKET_DROPPED);
        }
    }

    pub(super) fn finish_packet(&mut self) {
        if !self.in_packet {
            return;
        }
        self.close_messages(0);
        self.in_packet = false;
        if !self.discarding {
            self.end_last_fragment();
            (self.begun, self.loss_to_report) = (true, false);
        }
        if self.patches.has_group() {
            self.arbiter.return_patches(self.writer_id, self.target_buffer, &mut self.patches);
        }
    }

    /// Makes sure that a packet can start; false if there is no memory for it.
    fn room_for_packet(&mut self) -> bool {
        if self.current.is_some() {
            // What has no room for another packet was returned when its last packet ended.
            debug_assert!(self.capacity - self.position >= MIN_PACKET_ROOM_BYTES);
            return true;
        }
        if self.owes_continuation && !self.pay_continuation() {
            return false;
        }
        let Some(chunk) = self.acquire() else { return false };
        self.start_chunk(chunk, false);
        true
    }

    /// A chunk that continues the abandoned packet with the mark of a drop. Nothing can follow the mark in its chunk.
    fn pay_continuation(&mut self) -> bool {
        let Some(chunk) = self.acquire() else { return false };
        self.start_chunk(chunk, true);
        self.begin_fragment();
        self.overwrite(self.fragment_start, DROPPED);
        self.sync();
        self.return_current(ChunkFlags::NONE);
        self.owes_continuation = false;
        true
    }

    // --- bytes of the current packet

    /// Appends a field that is at most [`MAX_FIELD_BYTES`] long: `put` writes it and returns its length. Where there is
    /// room for the longest one it is written in its place.
    #[inline]
    pub(super) fn append_field(&mut self, put: impl FnOnce(&mut [u8; MAX_FIELD_BYTES]) -> usize) {
        let place = self.image[..self.capacity].get_mut(self.position..);
        if let Some(place) = place.and_then(|place| place.first_chunk_mut()) {
            let len = put(place);
            self.position += len;
            self.body_bytes += len as u64;
        } else {
            let mut bytes = [0; MAX_FIELD_BYTES];
            let len = put(&mut bytes);
            self.append(&bytes[..len]);
        }
    }

    #[inline]
    pub(super) fn append(&mut self, bytes: &[u8]) {
        // No room at all while discarding: there is no chunk then.
        if bytes.len() <= self.capacity - self.position && bytes.len() < DIRECT_FROM_BYTES {
            self.image[self.position..self.position + bytes.len()].copy_from_slice(bytes);
            self.position += bytes.len();
            self.body_bytes += bytes.len() as u64;
        } else {
            self.append_slowly(bytes);
        }
    }

    #[cold]
    fn append_slowly(&mut self, mut bytes: &[u8]) {
        self.body_bytes += bytes.len() as u64;
        while !self.discarding && !bytes.is_empty() {
            let room = self.capacity - self.position;
            let (now, later) = bytes.split_at(bytes.len().min(room));
            self.place(now);
            bytes = later;
            if !bytes.is_empty() {
                self.cross();
            }
        }
    }

    /// Puts bytes that fit behind the others of the fragment.
    fn place(&mut self, bytes: &[u8]) {
        let end = self.position + bytes.len();
        if bytes.len() < DIRECT_FROM_BYTES {
            self.image[self.position..end].copy_from_slice(bytes);
        } else {
            self.sync();
            if let Some(current) = &self.current {
                self.arbiter.smb().write_payload(&current.chunk, self.position, bytes);
            }
            self.synced = end;
        }
        self.position = end;
    }

    /// Four zero bytes in one chunk, for a size; returns where.
    fn reserve_size_field(&mut self) -> SizeField {
        if !self.discarding && self.capacity - self.position < SIZE_FIELD_BYTES {
            self.cross();
        }
        self.body_bytes += SIZE_FIELD_BYTES as u64;
        if self.discarding {
            return SizeField::Lost;
        }
        let at = self.position;
        self.image[at..at + SIZE_FIELD_BYTES].fill(0);
        self.position += SIZE_FIELD_BYTES;
        SizeField::Here(at)
    }

    // --- nested messages

    /// Opens a message behind a tag that was just appended.
    pub(super) fn open_message(&mut self) {
        let size_field = self.reserve_size_field();
        self.open.push(OpenMessage { size_field, body_start: self.body_bytes });
    }

    /// Closes all messages that are deeper than `depth`, innermost first.
    pub(super) fn close_messages(&mut self, depth: usize) {
        while self.open.len() > depth {
            let Some(message) = self.open.pop() else { return };
            self.close_message(message);
        }
    }

    fn close_message(&mut self, OpenMessage { size_field, body_start }: OpenMessage) {
        // Within MAX_SIZE: a larger packet was given up, and what its size fields say then does not matter.
        let size = (self.body_bytes - body_start).min(MAX_SIZE);
        let field = redundant(size as u32);
        match size_field {
            SizeField::Lost => {}
            SizeField::Patch(ticket) => self.patches.resolve(ticket, field),
            SizeField::Here(at) if (size as usize) < COMPACT_BELOW && at >= self.synced => {
                self.compact(at, size as u8);
                self.body_bytes -= (SIZE_FIELD_BYTES - 1) as u64;
            }
            SizeField::Here(at) => self.overwrite(at, field),
        }
    }

    /// Shortens the size field at `at` to one byte; its `size` bytes are the last ones, and private still.
    fn compact(&mut self, at: usize, size: u8) {
        debug_assert_eq!(self.position, at + SIZE_FIELD_BYTES + usize::from(size));
        self.image[at] = size;
        self.image.copy_within(at + SIZE_FIELD_BYTES..self.position, at + 1);
        self.position -= SIZE_FIELD_BYTES - 1;
    }

    /// Fills in a size field of the current chunk, wherever it is by now.
    fn overwrite(&mut self, at: usize, field: [u8; SIZE_FIELD_BYTES]) {
        if at >= self.synced {
            self.image[at..at + SIZE_FIELD_BYTES].copy_from_slice(&field);
        } else if let Some(current) = &self.current {
            // Size fields are never half synced: they lie in front of what was synced with them.
            self.arbiter.smb().write_payload(&current.chunk, at, &field);
        }
    }

    // --- fragments

    fn begin_fragment(&mut self) {
        self.fragment_start = self.position;
        // The size comes later; what is here until then nobody reads.
        self.position += SIZE_FIELD_BYTES;
    }

    fn fragment_body_bytes(&self) -> usize {
        self.position - self.fragment_start - SIZE_FIELD_BYTES
    }

    /// The packet is complete: its last fragment gets its size and becomes visible.
    fn end_last_fragment(&mut self) {
        let size = self.fragment_body_bytes();
        if size < COMPACT_BELOW && self.fragment_start >= self.synced {
            self.sync_compact(size as u8);
        } else {
            self.overwrite(self.fragment_start, redundant(size as u32));
            self.sync();
        }
        let full = self.capacity - self.position < MIN_PACKET_ROOM_BYTES;
        let Some(current) = &mut self.current else { return };
        if full || current.fragments >= MAX_FRAGMENTS_WRITTEN {
            self.return_current(ChunkFlags::NONE);
        } else {
            current.fragments += 1;
            current.inflated = true;
            let (fragments, flags) = (current.fragments, current.flags());
            self.arbiter.smb().set_fragments(&current.chunk, fragments, flags);
        }
    }

    /// Goes on in a new chunk in the middle of a packet, or gives the packet up.
    fn cross(&mut self) {
        if self.body_bytes > MAX_SIZE {
            self.give_up();
            return;
        }
        // A writer that will not wait needs the next chunk first: without it the fragment must say that the packet was
        // given up, not that it continues. One that waits must not keep a chunk meanwhile: when all chunks belong to
        // writers that wait for another one, none would ever be free.
        let next = match self.arbiter.acquire_now(self.policy) {
            None if !self.policy.waits() => {
                self.give_up();
                return;
            }
            next => next,
        };
        self.return_with_continuation();
        match next.or_else(|| self.arbiter.acquire_later(self.policy, false)) {
            Some(next) => {
                self.start_chunk(next, true);
                self.begin_fragment();
            }
            None => {
                self.exhausted = true;
                self.owes_continuation = true;
                self.lose_packet();
            }
        }
    }

    /// Returns the chunk with a last fragment that goes on in the next one.
    fn return_with_continuation(&mut self) {
        let size = self.fragment_body_bytes();
        self.overwrite(self.fragment_start, redundant(size as u32));
        let mut flags = ChunkFlags::LAST_CONTINUES;
        if let Some(current) = &self.current {
            for message in &mut self.open {
                if let SizeField::Here(at) = message.size_field {
                    message.size_field = SizeField::Patch(self.patches.push(current.chunk_id, at as u32));
                    flags = flags.with(ChunkFlags::NEEDS_PATCHING);
                }
            }
        }
        self.sync();
        self.return_current(flags);
    }

    /// Drops the current packet: its fragment gets the size that says so, and its chunk is returned.
    fn give_up(&mut self) {
        self.overwrite(self.fragment_start, DROPPED);
        for message in &mut self.open {
            if let SizeField::Here(_) = message.size_field {
                message.size_field = SizeField::Lost;
            }
        }
        self.sync();
        self.return_current(ChunkFlags::NONE);
        self.exhausted = true;
        self.lose_packet();
    }

    fn lose_packet(&mut self) {
        self.discarding = true;
        self.loss_to_report = true;
        self.packets_dropped += 1;
        self.arbiter.count_dropped_packet();
    }

    // --- chunks

    fn acquire(&mut self) -> Option<WriteChunk> {
        let now = self.arbiter.acquire_now(self.policy);
        let chunk = now.or_else(|| self.arbiter.acquire_later(self.policy, self.exhausted));
        self.exhausted = chunk.is_none();
        chunk
    }

    /// Starts a chunk with a fragment that continues the current packet, or empty.
    fn start_chunk(&mut self, chunk: WriteChunk, continues: bool) {
        let chunk_id = self.next_chunk_id;
        self.next_chunk_id = chunk_id.wrapping_add(1);
        let current = Current {
            chunk,
            chunk_id,
            fragments: continues.into(),
            inflated: false,
            first_continues: continues,
        };
        let header = ChunkHeader {
            chunk_id,
            writer_id: self.writer_id,
            fragments: current.fragments,
            flags: current.flags(),
        };
        self.arbiter.smb().write_header(&current.chunk, header);
        self.capacity = current.chunk.payload_size_bytes();
        if self.image.len() < self.capacity {
            self.image.resize(self.capacity, 0);
        }
        (self.position, self.synced) = (0, 0);
        self.current = Some(current);
    }

    /// Copies what shared memory does not have yet.
    fn sync(&mut self) {
        if let Some(current) = &self.current
            && self.synced < self.position
        {
            self.arbiter.smb().write_payload(
                &current.chunk,
                self.synced,
                &self.image[self.synced..self.position],
            );
        }
        self.synced = self.position;
    }

    /// Copies the current fragment, whose body has `size` bytes, with a size field of one byte. In the image the byte
    /// lies right before the body; there nothing has to move, since the image is not read again behind `synced`.
    fn sync_compact(&mut self, size: u8) {
        debug_assert_eq!(self.fragment_start, self.synced);
        let from = self.fragment_start + SIZE_FIELD_BYTES - 1;
        self.image[from] = size;
        if let Some(current) = &self.current {
            let bytes = &self.image[from..self.position];
            self.arbiter.smb().write_payload(&current.chunk, self.fragment_start, bytes);
        }
        self.position -= SIZE_FIELD_BYTES - 1;
        self.synced = self.position;
    }

    /// Returns the chunk, if there is one. Everything in it must be synced.
    fn return_current(&mut self, last: ChunkFlags) {
        let Some(current) = self.current.take() else { return };
        let smb = self.arbiter.smb();
        if current.inflated {
            // The count promises one more fragment: an empty one. There is room: the count is raised only then.
            smb.write_payload(&current.chunk, self.position, &[0]);
        }
        smb.set_fragments(&current.chunk, current.fragments, current.flags().with(last));
        let returned = Returned {
            chunk: current.chunk,
            writer_id: self.writer_id,
            target_buffer: self.target_buffer,
            chunk_id: current.chunk_id,
            needs_patching: last.contains(ChunkFlags::NEEDS_PATCHING),
        };
        self.arbiter.return_chunk(returned, &mut self.patches);
        (self.capacity, self.position, self.synced) = (0, 0, 0);
    }

    pub(super) fn flush(&mut self, done: Option<Done>) {
        self.finish_packet();
        self.return_current(ChunkFlags::NONE);
        self.arbiter.request_flush(done);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        self.finish_packet();
        self.return_current(ChunkFlags::NONE);
        if self.owes_continuation {
            // If there is no memory for it the reader finds out by itself that the sequence ends within a packet.
            self.policy = ExhaustedPolicy::Drop;
            self.pay_continuation();
        }
        self.arbiter.end_writer(self.writer_id);
    }
}
