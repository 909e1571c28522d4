//! Packets into fragments, fragments into chunks: the state of it, and packets as wholes.
//!
//! `bytes` appends to the packet, `message` keeps the sizes of what is open in it, `cut` ends
//! fragments and goes on in the next chunk, `chunk` gets chunks, copies into them and returns them;
//! `whole` writes packets of which nothing of that is asked.

mod bytes;
mod chunk;
mod cut;
mod message;
mod whole;

use watershed_service::DirectCommitter;
use watershed_smb::{ChunkFlags, WriteChunk};

use crate::arbiter::{ExhaustedPolicy, Returns, Search, Shared, Target, WriterCounts, commit_patches};
use crate::endpoint::Done;
use crate::sync::Arc;
use crate::writer::patches::PatchList;
use crate::writer::varint::DROPPED;

/// Bytes of a size field whose size is not known yet.
const SIZE_FIELD_BYTES: usize = 4;
/// A packet starts only where a size field and this much more fits.
const MIN_PACKET_ROOM_BYTES: usize = SIZE_FIELD_BYTES + 8;
/// Sizes below this get a size field of one byte.
const COMPACT_BELOW: usize = 127;

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
    /// The count was raised past the last finished packet so that a scrape sees it; the next packet
    /// takes the slot.
    inflated: bool,
    /// Of its header, until it is returned.
    flags: ChunkFlags,
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

/// Invariants: `synced <= position <= capacity`; `image[synced..position]` is what shared memory
/// does not have yet, and lies behind every byte that was written directly. `current` is `None`
/// when `position` and `capacity` are 0.
///
/// Writers of other threads are not in its cache lines, which processors fetch in pairs.
#[derive(Debug)]
#[repr(align(128))]
pub(in crate::writer) struct Core {
    arbiter: Arc<Shared>,
    counts: Arc<WriterCounts>,
    writer_id: u16,
    target: Target,
    policy: ExhaustedPolicy,
    /// By which the thread that writes commits itself; else the arbiter collects what is returned.
    direct: Option<DirectCommitter>,

    search: Search,
    returns: Returns,
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
    /// The current packet is discarded.
    discarding: bool,
    /// The last chunk promised a continuation that never came: the next chunk must say so.
    owes_continuation: bool,
    /// The last attempt to get a chunk failed.
    exhausted: bool,
    /// Packets were dropped and no packet that says so has got through yet.
    loss_to_report: bool,
    /// The first packet of the sequence has got through.
    begun: bool,
}

impl Core {
    pub(in crate::writer) fn new(
        arbiter: Arc<Shared>,
        counts: Arc<WriterCounts>,
        writer_id: u16,
        target: Target,
        policy: ExhaustedPolicy,
        direct: Option<DirectCommitter>,
    ) -> Self {
        Self {
            arbiter,
            counts,
            writer_id,
            target,
            policy,
            direct,
            search: Search::new(),
            returns: Returns::default(),
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
        }
    }

    pub(in crate::writer) fn writer_id(&self) -> u16 {
        self.writer_id
    }

    pub(in crate::writer) fn packets_dropped(&self) -> u64 {
        self.counts.packets_dropped()
    }

    pub(in crate::writer) fn full_pages(&self) -> u64 {
        self.search.full_pages()
    }

    /// In a child of the process that traces, everything is discarded from here on: without a
    /// chunk nothing of the arbiter is used, neither its memory nor its locks.
    #[inline]
    pub(super) fn leave_if_forked(&mut self) -> bool {
        let is_forked = self.arbiter.is_forked();
        if is_forked {
            self.current = None;
            (self.capacity, self.position, self.synced) = (0, 0, 0);
            self.open.clear();
            self.patches = PatchList::default();
            (self.in_packet, self.discarding, self.owes_continuation) = (false, true, false);
        }
        is_forked
    }

    /// Drops a packet if the one before was dropped and nothing has come free since: most that are
    /// dropped are like that, and cost no more than this.
    #[inline]
    fn drop_at_once(&mut self) -> bool {
        let is_dropping = self.exhausted && self.policy == ExhaustedPolicy::Drop && !self.in_packet;
        if !is_dropping || self.current.is_some() || self.arbiter.is_forked() {
            return false;
        }
        let is_skipped = self.search.try_skip(self.arbiter.smb());
        if is_skipped {
            self.counts.refuse_chunk();
            self.counts.drop_packet();
            self.loss_to_report = true;
        }
        is_skipped
    }

    /// Whether a packet can begin now. If not, it is counted as dropped.
    #[inline]
    pub(in crate::writer) fn has_room(&mut self) -> bool {
        if self.drop_at_once() {
            return false;
        }
        if self.leave_if_forked() {
            return false;
        }
        self.finish_packet();
        let has_room = self.room_for_packet();
        if !has_room {
            self.lose_packet();
            self.discarding = false;
        }
        has_room
    }

    pub(in crate::writer) fn begin_packet(&mut self) {
        if self.leave_if_forked() {
            return;
        }
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
            let (fragments, flags) = (current.fragments, current.flags);
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

    pub(in crate::writer) fn finish_packet(&mut self) {
        if !self.in_packet || self.leave_if_forked() {
            return;
        }
        self.close_messages(0);
        self.in_packet = false;
        if !self.discarding {
            self.end_last_fragment();
            (self.begun, self.loss_to_report) = (true, false);
        }
        if self.patches.has_group() {
            match &mut self.direct {
                Some(direct) => commit_patches(&mut self.patches, direct),
                None => self.arbiter.return_patches(self.writer_id, self.target, &mut self.patches),
            }
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

    /// A chunk that continues the abandoned packet with the mark of a drop. Nothing can follow the
    /// mark in its chunk.
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

    pub(in crate::writer) fn flush(&mut self, done: Option<Done>) {
        if self.leave_if_forked() {
            return done.into_iter().for_each(|done| done());
        }
        self.finish_packet();
        self.return_current(ChunkFlags::NONE);
        self.arbiter.request_flush(self.target, done);
    }
}

impl Drop for Core {
    fn drop(&mut self) {
        if self.leave_if_forked() {
            return;
        }
        self.finish_packet();
        self.return_current(ChunkFlags::NONE);
        if self.owes_continuation {
            // If there is no memory for it the reader finds out by itself that the sequence ends
            // within a packet.
            self.policy = ExhaustedPolicy::Drop;
            self.pay_continuation();
        }
        self.arbiter.end_writer(self.writer_id, self.target);
    }
}
