//! The types of `watershed.h`: plain data, laid out as C lays it out.
#![expect(non_camel_case_types, reason = "these are the names that C programs use")]

use std::ffi::c_void;

/// What happens when the buffer is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub enum ws_policy {
    /// The oldest chunks are overwritten.
    WS_RING = 0,
    /// The first chunk that does not fit, and everything after it, is discarded.
    WS_DISCARD = 1,
}

/// A policy as a C program passes it: any number.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct PolicyArgument(pub std::ffi::c_uint);

/// Who a producer is, as its connection proved it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ws_identity {
    /// User id, -1 when it is not known.
    pub uid: i32,
    /// Process id, -1 when it is not known.
    pub pid: i32,
    /// The machine, 0 for this one.
    pub machine_id: u32,
}

/// Four bytes that replace four bytes of a chunk that was copied before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct ws_patch {
    /// Where, in bytes from the start of the chunk's payload.
    pub offset: u32,
    /// The new bytes.
    pub data: [u8; 4],
}

/// A piece of a packet, inside the buffer's ring.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ws_slice {
    /// Its first byte.
    pub data: *const u8,
    /// Its size in bytes, never 0.
    pub size_bytes: usize,
}

/// One packet, whole: the bytes of its slices, one after the other.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct ws_packet {
    /// The pieces, in order. They and their bytes stay valid until the next call that writes:
    /// copy_chunk, try_patch, destroy. In an overwrite function: until it returns.
    pub slices: *const ws_slice,
    /// How many pieces, at least 1.
    pub num_slices: usize,
    /// The producer that wrote the packet.
    pub producer_id: u16,
    /// The writer of that producer.
    pub writer_id: u16,
    /// The identity that came with the first chunk of this writer.
    pub identity: ws_identity,
    /// What this writer lost since its previous packet: a set of WS_LOSS_ bits, 0 for nothing.
    pub loss_reasons: u32,
}

/// Statistics of a buffer since it was created, with the names and meanings of Perfetto's
/// BufferStats. Sizes count the 16-byte record headers and the rounding up to 16.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ws_stats {
    /// The buffer's size in bytes.
    pub buffer_size: u64,
    /// Bytes of records that were written, re-admitted and relocated ones included.
    pub bytes_written: u64,
    /// Bytes of records that were overwritten before they were read whole.
    pub bytes_overwritten: u64,
    /// Bytes of records that were read whole.
    pub bytes_read: u64,
    /// Bytes of padding that was written behind a cleared range.
    pub padding_bytes_written: u64,
    /// Bytes of padding in cleared ranges, records that were read before included.
    pub padding_bytes_cleared: u64,
    /// Chunks that were written.
    pub chunks_written: u64,
    /// Commits of a chunk that made it longer in place.
    pub chunks_rewritten: u64,
    /// Chunks that were overwritten before they were read whole.
    pub chunks_overwritten: u64,
    /// Chunks that were refused because the buffer was full, or because newer ones had been read.
    pub chunks_discarded: u64,
    /// Chunks that were read whole.
    pub chunks_read: u64,
    /// Chunks that arrived after a later one of the same writer.
    pub chunks_committed_out_of_order: u64,
    /// Incomplete copies that had been read and whose complete chunk was written anew.
    pub chunks_relocated: u64,
    /// How often the writing position went back to the start.
    pub write_wrap_count: u64,
    /// Patches that were applied.
    pub patches_succeeded: u64,
    /// Calls of try_patch that found no place for theirs.
    pub patches_failed: u64,
    /// Packets over several chunks that could be put together.
    pub readaheads_succeeded: u64,
    /// Attempts at it that failed, the packet's rest not being there yet included.
    pub readaheads_failed: u64,
    /// Commits that broke the rules of the format.
    pub abi_violations: u64,
    /// Packets that a writer reported as dropped.
    pub trace_writer_packet_loss: u64,
}

/// How large the chunks of one writer were.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ws_writer_stats {
    /// The producer.
    pub producer_id: u16,
    /// Its writer.
    pub writer_id: u16,
    /// Chunks by size in bytes: at most 8, 32, 128, 512, 1024, 2048, 4096, 8192, 12288, 16384, and
    /// above.
    pub bucket_count: [u64; 11],
    /// Bytes of the chunks in each bucket.
    pub bucket_sum: [u64; 11],
}

/// What became of every record: written = read + overwritten + empty + damaged + listed, at any
/// time. In each pair the first number counts chunks, the second bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(C)]
pub struct ws_ledger {
    /// Records that were made.
    pub written: [u64; 2],
    /// Erased after they were read whole.
    pub read: [u64; 2],
    /// Erased with something in them that nobody had read.
    pub overwritten: [u64; 2],
    /// Erased without ever having had a packet.
    pub empty: [u64; 2],
    /// Erased because their bytes made no sense any more.
    pub damaged: [u64; 2],
    /// In the buffer now.
    pub listed: [u64; 2],
    /// Commits that repeated a chunk that had been read already: nothing was lost by them.
    pub duplicate_commits: u64,
    /// Empty sequences whose memory was given up, the oldest first; a gap after that cannot be
    /// noticed.
    pub forgotten_sequences: u64,
}

/// Is handed each whole packet that is about to be overwritten unread, in order. `packet` and its
/// slices are valid until it returns. It must not call into the buffer and must return normally (no
/// exception, no longjmp).
///
/// Returns true when it absorbed the packet: then no loss is reported for it.
pub type ws_overwrite_fn = Option<unsafe extern "C" fn(user: *mut c_void, packet: *const ws_packet) -> bool>;

/// Flag of a chunk: its first packet began in an earlier chunk.
pub const WS_CHUNK_FIRST_CONTINUES: u8 = 1;
/// Flag of a chunk: its last packet goes on in the next chunk.
pub const WS_CHUNK_LAST_CONTINUES: u8 = 2;
/// Flag of a chunk: its last packet cannot be read before its patches came.
pub const WS_CHUNK_NEEDS_PATCHING: u8 = 4;

/// Loss: is set with each of the others.
pub const WS_LOSS_PRESENT: u32 = 1;
/// Loss: chunks between the previous packet and this one are missing.
pub const WS_LOSS_READ_GAP: u32 = 2;
/// Loss: a chunk's bytes made no sense.
pub const WS_LOSS_CHUNK_CORRUPTED: u32 = 4;
/// Loss: the end of a packet whose beginning is gone.
pub const WS_LOSS_ORPHAN_CONTINUATION: u32 = 8;
/// Loss: a chunk in the middle of a packet is missing.
pub const WS_LOSS_REASSEMBLY_GAP: u32 = 16;
/// Loss: a packet that goes on in the next chunk, and a next chunk that does not continue one.
pub const WS_LOSS_REASSEMBLY_BROKEN_CHAIN: u32 = 32;
/// Loss: packets were overwritten before anybody read them.
pub const WS_LOSS_OVERWRITE: u32 = 64;
/// Loss: the writer dropped a packet and said so.
pub const WS_LOSS_WRITER_ABORT: u32 = 128;
/// Loss: the shared memory was full. Only producers set it, inside packets.
pub const WS_LOSS_SMB_FULL: u32 = 256;
