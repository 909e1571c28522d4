//! The types of the buffer's interface. They are the model's own, which shares no type with the
//! engine.

use std::fmt;

/// The identity of a producer, as the transport reports it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    /// User id.
    pub uid: i32,
    /// Process id.
    pub pid: i32,
    /// Machine, 0 for the local one.
    pub machine_id: u32,
}

/// What happens when the buffer is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// The oldest data is overwritten.
    Ring,
    /// The buffer is sealed by the first chunk that does not fit.
    Discard,
}

/// Bits of the chunk header's flags (spec, trace-buffer 1.3).
pub mod flag {
    /// The first fragment continues a packet of the chunk before.
    pub const FIRST_CONTINUES: u8 = 1;
    /// The last fragment goes on in the next chunk.
    pub const LAST_CONTINUES: u8 = 2;
    /// The last fragment waits for patches.
    pub const NEEDS_PATCHING: u8 = 4;
    /// All bits with a meaning.
    pub const KNOWN: u8 = 7;
    /// The six bits of the header field; anything above does not come from a chunk.
    pub const FIELD: u8 = 0x3f;
}

/// Bits of a packet's loss reasons (spec, trace-buffer 2.7).
pub mod loss {
    /// Set with every other bit.
    pub const PRESENT: u32 = 1;
    /// Chunk ids are missing between two chunks.
    pub const READ_GAP: u32 = 2;
    /// Fragments of a chunk could not be told apart.
    pub const CHUNK_CORRUPTED: u32 = 4;
    /// A continuation without its beginning.
    pub const ORPHAN_CONTINUATION: u32 = 8;
    /// Chunk ids are missing inside a packet.
    pub const REASSEMBLY_GAP: u32 = 16;
    /// The next chunk does not continue the packet.
    pub const REASSEMBLY_BROKEN_CHAIN: u32 = 32;
    /// Unread packets were overwritten.
    pub const OVERWRITE: u32 = 64;
    /// The writer itself dropped a packet.
    pub const WRITER_ABORT: u32 = 128;
}

/// One commit, as it arrives.
#[derive(Clone, Debug)]
pub struct Chunk<'a> {
    /// Producer, from the connection.
    pub producer_id: u32,
    /// Writer inside the producer.
    pub writer_id: u16,
    /// Identity, from the connection.
    pub identity: Identity,
    /// Position in the sequence, wraps at 2^32.
    pub chunk_id: u32,
    /// Number of fragments started, as declared.
    pub num_fragments: u16,
    /// Flags of the chunk header.
    pub flags: u8,
    /// False for a chunk scraped while it was being written.
    pub complete: bool,
    /// Payload, chunk header excluded.
    pub bytes: &'a [u8],
}

/// Four bytes for a place in a chunk's payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Patch {
    /// Counted from the first payload byte.
    pub offset: u32,
    /// The bytes.
    pub data: [u8; 4],
}

/// A packet as it is read, or as it is handed to the overwrite sink.
#[derive(Clone, PartialEq, Eq)]
pub struct Packet {
    /// Producer of the sequence.
    pub producer_id: u32,
    /// Writer of the sequence.
    pub writer_id: u16,
    /// Identity of the sequence.
    pub identity: Identity,
    /// Loss bits since the sequence's packet before.
    pub loss: u32,
    /// One byte string for each fragment that is not empty; at least one.
    pub slices: Vec<Vec<u8>>,
}

impl fmt::Debug for Packet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Identity { uid, pid, machine_id } = self.identity;
        write!(
            f,
            "{}/{} of {uid}:{pid}@{machine_id}, loss {}:",
            self.producer_id, self.writer_id, self.loss
        )?;
        for slice in &self.slices {
            let begin: String = slice.iter().take(8).map(|byte| format!("{byte:02x}")).collect();
            write!(f, " [{} bytes {begin}..]", slice.len())?;
        }
        Ok(())
    }
}

/// `producer << 16 | writer`; 0 is not a sequence.
#[must_use]
pub fn key_of(producer_id: u32, writer_id: u16) -> u64 {
    u64::from(producer_id) << 16 | u64::from(writer_id)
}

/// Order of chunk ids: the sign of the wrapping difference (spec, trace-buffer 2.4).
#[must_use]
pub fn is_newer(id: u32, than: u32) -> bool {
    id.wrapping_sub(than).cast_signed() > 0
}
