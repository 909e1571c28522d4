//! The writer of one sequence of packets.
//!
//! ```text
//!   private image of the chunk's payload (ordinary memory)
//!   +------+--------+------+--------+---------+----------------------------+
//!   | size | packet | size | packet | 4 bytes | packet being written ...   |
//!   +------+--------+------+--------+---------+----------------------------+
//!   0                               ^ fragment ^ synced up to here         ^ position
//!                    at the end of a packet, or when the chunk is full:
//!                    sizes are filled in, then one opaque copy
//!   +------+--------+------+--------+
//!   | size | packet | size | packet |         the chunk in shared memory
//!   +------+--------+------+--------+
//! ```
//!
//! A packet is composed in private memory and copied into the chunk when it is finished or when the
//! chunk is full. So sizes are filled in and shortened where nobody else looks, and the compiler
//! may optimise the composing as it likes. A scrape loses nothing by it: it ignores unfinished
//! packets anyway.
//!
//! Small packets of track events are composed in their place in the chunk, word by word, where
//! there is room for any of them ([`Slot`]): nobody looks there before the count of fragments says
//! so.
//!
//! A packet that does not fit is cut: the fragment in the full chunk gets its size, and the chunk
//! the flag that says that its last fragment continues. The sizes of messages that are open across
//! the cut are not known yet: their four bytes stay zero, the chunk gets the flag that it needs
//! patching, and the sizes go to the service as patches once the messages end.

mod fragment;
mod message;
mod patches;
mod varint;

use watershed_service::DirectCommitter;
use watershed_smb::Slot;

use crate::arbiter::{ExhaustedPolicy, Shared, Target, WriterCounts};
use crate::endpoint::Done;
use crate::sync::Arc;
pub use message::MessageWriter;
pub(crate) use patches::{PatchGroup, PatchList};

use fragment::Core;
pub(crate) use varint::put as put_varint;

/// Writes packets of one sequence into one buffer.
///
/// A writer belongs to one thread at a time; it can be moved to another one between packets. What
/// it writes appears in the trace in the order of writing. Finished packets reach the service when
/// their chunk is full, when [`TraceWriter::flush`] is called, when the writer is dropped, or when
/// the service scrapes. In a child that was forked it discards what it is given, if the service is
/// in another process; with an in-process service only the parent may use it.
///
/// With the policy [`ExhaustedPolicy::Drop`] no call ever waits for the service. The only lock
/// taken is the arbiter's, once a chunk. With an in-process service not even that: the thread that
/// writes copies each chunk into the buffer itself, and makes no system call once all memory is
/// touched, unless other threads want the same shard of the buffer for long.
#[derive(Debug)]
pub struct TraceWriter {
    /// `None`: discards everything.
    core: Option<Box<Core>>,
    scratch: Vec<u8>,
}

impl TraceWriter {
    pub(crate) fn new(
        arbiter: Arc<Shared>,
        counts: Arc<WriterCounts>,
        writer_id: u16,
        target: Target,
        policy: ExhaustedPolicy,
        direct: Option<DirectCommitter>,
    ) -> Self {
        let core = Core::new(arbiter, counts, writer_id, target, policy, direct);
        Self { core: Some(Box::new(core)), scratch: Vec::new() }
    }

    /// A writer that discards what it is given.
    #[must_use]
    pub fn discarding() -> Self {
        Self { core: None, scratch: Vec::new() }
    }

    /// The writer's id, 1..=32767, or 0 if it discards.
    #[must_use]
    pub fn writer_id(&self) -> u16 {
        self.core.as_ref().map_or(0, |core| core.writer_id())
    }

    /// Packets that this writer had to drop so far.
    #[must_use]
    pub fn packets_dropped(&self) -> u64 {
        self.core.as_ref().map_or(0, |core| core.packets_dropped())
    }

    /// Pages of the shared memory in which this writer looked for a free chunk and found none.
    #[must_use]
    pub fn full_pages(&self) -> u64 {
        self.core.as_ref().map_or(0, |core| core.full_pages())
    }

    /// Writes one packet. `packet` is a serialized `TracePacket`; fields that the writer itself
    /// adds (about the start of the sequence, about losses) come before it.
    pub fn write_packet(&mut self, packet: &[u8]) {
        if let Some(core) = &mut self.core {
            core.write_packet(packet);
        }
    }

    /// Writes one packet as [`TraceWriter::write_packet`] does, and says whether it got through. It
    /// is `sized[1..]`; the byte in front is for its size.
    #[inline]
    pub(crate) fn try_write_sized(&mut self, sized: &mut [u8]) -> bool {
        self.core.as_mut().is_some_and(|core| core.write_sized(sized))
    }

    /// Makes `slot` the place of the next packet if it can be composed there; then
    /// [`TraceWriter::end_slot`] writes it. Else the slot is left.
    #[inline(always)]
    pub(crate) fn place_slot(&mut self, slot: &mut Slot) {
        match &self.core {
            Some(core) => core.place_slot(slot),
            None => slot.leave(),
        }
    }

    /// Writes the packet in `slot`, behind a byte for its size: so many bytes with that. False, and
    /// nothing done, if it is too long.
    #[inline]
    pub(crate) fn end_slot(&mut self, slot: &mut Slot, sized_bytes: usize) -> bool {
        self.core.as_mut().is_some_and(|core| core.end_slot(slot, sized_bytes))
    }

    /// Whether a packet can be written now. If not, one is counted as dropped: the caller was about
    /// to write it.
    #[inline]
    pub(crate) fn has_room(&mut self) -> bool {
        self.core.as_mut().is_some_and(|core| core.has_room())
    }

    /// Writes one packet from a message of the schema: a `TracePacket`.
    pub fn write_message(&mut self, packet: &impl watershed_wire::Encode) {
        if self.core.is_none() {
            return;
        }
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        packet.append_to(&mut scratch);
        self.write_packet(&scratch);
        self.scratch = scratch;
    }

    /// Starts a packet that is written field by field. It ends when the returned message is
    /// dropped.
    pub fn new_packet(&mut self) -> MessageWriter<'_> {
        if let Some(core) = &mut self.core {
            core.begin_packet();
        }
        MessageWriter::packet(self.core.as_deref_mut())
    }

    /// Hands everything written so far to the service, without waiting for it.
    pub fn flush(&mut self) {
        self.flush_inner(None);
    }

    /// As [`TraceWriter::flush`]; `done` is called when the service has processed it. It is called
    /// or dropped on another thread, and dropped without a call when the service goes away first. A
    /// writer that discards calls it at once.
    pub fn flush_with(&mut self, done: Done) {
        self.flush_inner(Some(done));
    }

    fn flush_inner(&mut self, done: Option<Done>) {
        match &mut self.core {
            Some(core) => core.flush(done),
            None => {
                if let Some(done) = done {
                    done();
                }
            }
        }
    }
}
