//! The functions of `watershed.h` that make a buffer, write, read and give account. Those that ask
//! it about itself are in [`crate::queries`], the overwrite function in [`crate::sink`].
//!
//! Every pointer to a buffer is null or came from [`ws_buffer_create`] or
//! [`ws_buffer_clone_read_only`], was not destroyed, and is used by one thread at a time: that is
//! what each `# Safety` section asks for first.

use crate::guard::{self, Inner, enter, shielded, ws_buffer};
use crate::sink::{to_packet, to_slice};
use crate::source::UntrustedBytes;
use crate::types::*;
use watershed_engine::{
    BufferConfig, ChunkFlags, ChunkId, ChunkInfo, ClientIdentity, FillPolicy, Patch, ProducerId, TraceBuffer,
    WriterId,
};

/// The largest chunk that a buffer takes.
const MAX_CHUNK_BYTES: usize = 65_535;

/// Makes a buffer. Its memory is mapped, not touched: this takes microseconds whatever the size.
///
/// @param size_bytes Rounded up to a multiple of 4096; 0 is 4096.
/// @return NULL when there is no memory for it or the policy is none of ws_policy.
#[unsafe(no_mangle)]
pub extern "C" fn ws_buffer_create(size_bytes: usize, policy: PolicyArgument) -> *mut ws_buffer {
    let policy = match policy.0 {
        value if value == ws_policy::WS_RING as u32 => FillPolicy::RingBuffer,
        value if value == ws_policy::WS_DISCARD as u32 => FillPolicy::Discard,
        _ => return std::ptr::null_mut(),
    };
    shielded(std::ptr::null_mut(), || {
        let config = BufferConfig { size_bytes, policy, ..BufferConfig::default() };
        TraceBuffer::create(&config).map_or(std::ptr::null_mut(), ws_buffer::into_raw)
    })
}

/// Frees a buffer. NULL is allowed. The memory of the last four buffers of at most 1 MiB is kept
/// for the next ones.
///
/// # Safety
/// The pointer is not used again, nor is anything that the buffer handed out.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_destroy(buffer: *mut ws_buffer) {
    // SAFETY: the caller's promise.
    unsafe { guard::destroy(buffer) }
}

/// Copies one chunk into the buffer: its payload, without the shared memory's chunk header. Only
/// `producer_id` and the identity are trusted; everything else may be hostile, and `src` may change
/// during the call.
///
/// @param num_fragments How many fragments the chunk's header says it has.
/// @param flags         A set of WS_CHUNK_ bits.
/// @param complete      False for a copy of a chunk that is still being written; its complete copy
///                      follows.
/// @return False when the call was refused: the buffer is read-only, a pointer is NULL, both ids
///         are 0, or there are more than 65535 bytes. True does not mean that the chunk was kept:
///         what became of it is in the statistics.
///
/// # Safety
/// `src` can be read for `src_size_bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_copy_chunk(
    buffer: *mut ws_buffer,
    producer_id: u16,
    identity: ws_identity,
    writer_id: u16,
    chunk_id: u32,
    num_fragments: u16,
    flags: u8,
    complete: bool,
    src: *const u8,
    src_size_bytes: usize,
) -> bool {
    if src.is_null() || src_size_bytes > MAX_CHUNK_BYTES {
        return false;
    }
    let chunk = ChunkInfo {
        producer_id_trusted: ProducerId(producer_id.into()),
        identity_trusted: ClientIdentity {
            uid: identity.uid,
            pid: identity.pid,
            machine_id: identity.machine_id,
        },
        writer_id: WriterId(writer_id),
        chunk_id: ChunkId(chunk_id),
        num_fragments,
        flags: ChunkFlags(flags),
        complete,
    };
    // SAFETY: the caller's promise about `src`; the value does not outlive this call.
    let source = unsafe { UntrustedBytes::new(src, src_size_bytes) };
    // SAFETY: the caller's promise about `buffer`.
    unsafe {
        enter(buffer, false, |inner| {
            inner.slices.reset();
            inner.engine.copy_chunk_untrusted(&chunk, &source).is_ok()
        })
    }
}

/// Applies patches to a chunk that was copied before: all of them, or none.
///
/// @param other_patches_pending False when the chunk can be read after these.
/// @return False when the chunk is gone, or a patch does not lie in it.
///
/// # Safety
/// `patches` can be read for `num_patches` elements; NULL is allowed when there are none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_try_patch(
    buffer: *mut ws_buffer,
    producer_id: u16,
    writer_id: u16,
    chunk_id: u32,
    patches: *const ws_patch,
    num_patches: usize,
    other_patches_pending: bool,
) -> bool {
    // More than any chunk has room for: a length that is not one.
    if (patches.is_null() && num_patches > 0) || num_patches > MAX_CHUNK_BYTES {
        return false;
    }
    // SAFETY: `index < num_patches`, the caller's promise about `patches`.
    let patch = |index: usize| to_patch(unsafe { patches.add(index).read() });
    let (one, many);
    let patches = if num_patches == 1 {
        // Most calls bring one: no allocation for it.
        one = [patch(0)];
        one.as_slice()
    } else {
        many = (0..num_patches).map(patch).collect::<Vec<Patch>>();
        many.as_slice()
    };
    let (producer, writer, chunk) = (ProducerId(producer_id.into()), WriterId(writer_id), ChunkId(chunk_id));
    // SAFETY: the caller's promise about `buffer`.
    unsafe {
        enter(buffer, false, |inner| {
            inner.slices.reset();
            inner.engine.try_patch(producer, writer, chunk, patches, other_patches_pending)
        })
    }
}

/// Says that a writer has ended: its id may come back and start again at chunk 0.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_end_writer(buffer: *mut ws_buffer, producer_id: u16, writer_id: u16) {
    // SAFETY: the caller's promise about `buffer`.
    unsafe {
        enter(buffer, (), |inner| {
            inner.engine.end_writer(ProducerId(producer_id.into()), WriterId(writer_id));
        })
    }
}

/// Says that a producer and all its writers have ended: its id may come back.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_end_producer(buffer: *mut ws_buffer, producer_id: u16) {
    // SAFETY: the caller's promise about `buffer`.
    unsafe { enter(buffer, (), |inner| inner.engine.end_producer(ProducerId(producer_id.into()))) }
}

/// Writes what became of every record to `out`.
///
/// # Safety
/// `out` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_ledger(buffer: *const ws_buffer, out: *mut ws_ledger) {
    // SAFETY: the caller's promises about `buffer` and `out`.
    unsafe {
        write_out(out, enter(buffer, ws_ledger::default(), |inner| ws_ledger::from(inner.engine.ledger())))
    }
}

/// Starts a read pass at the oldest data. Call it before the first ws_buffer_read_next, and again
/// whenever writes or patches came since.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_begin_read(buffer: *mut ws_buffer) {
    // SAFETY: the caller's promise about `buffer`.
    unsafe { enter(buffer, (), |inner| inner.engine.begin_read()) }
}

/// Reads, and consumes, the next packet.
///
/// @return False when there is none now; `out` is then all zero.
///
/// # Safety
/// `out` is NULL or can be written. The slices are used only until the next write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_read_next(buffer: *mut ws_buffer, out: *mut ws_packet) -> bool {
    if out.is_null() {
        return false;
    }
    // SAFETY: the caller's promise about `buffer`.
    let packet = unsafe {
        enter(buffer, None, |inner| {
            let Inner { engine, slices } = inner;
            let packet = engine.read_next()?;
            Some(to_packet(
                &packet,
                slices.alloc_slice_fill_iter(packet.slices().iter().map(|s| to_slice(s))),
            ))
        })
    };
    // SAFETY: the caller's promise about `out`.
    unsafe { write_out(out, packet.unwrap_or(EMPTY_PACKET)) };
    packet.is_some()
}

/// Makes a copy to read from, with everything unread, the losses to report and the statistics. The
/// original is not changed.
///
/// @return NULL when there is no memory for it.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_clone_read_only(buffer: *const ws_buffer) -> *mut ws_buffer {
    // SAFETY: the caller's promise about `buffer`.
    unsafe {
        enter(buffer, std::ptr::null_mut(), |inner| {
            inner.engine.clone_read_only().map_or(std::ptr::null_mut(), ws_buffer::into_raw)
        })
    }
}

/// Makes the buffer refuse everything that writes, for good.
///
/// # Safety
/// See the module.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_set_read_only(buffer: *mut ws_buffer) {
    // SAFETY: the caller's promise about `buffer`.
    unsafe { enter(buffer, (), |inner| inner.engine.set_read_only()) }
}

/// Writes the statistics to `out`.
///
/// # Safety
/// `out` is NULL or can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_stats(buffer: *const ws_buffer, out: *mut ws_stats) {
    // SAFETY: the caller's promises about `buffer` and `out`.
    unsafe {
        write_out(out, enter(buffer, ws_stats::default(), |inner| ws_stats::from(&inner.engine.stats())))
    }
}

/// Writes the chunk sizes by writer to `out`, at most `capacity` of them, in the order of the
/// writers' first chunks.
///
/// @return The number of writers, which may be larger than `capacity`.
///
/// # Safety
/// `out` can be written for `capacity` elements; NULL is allowed when that is 0.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ws_buffer_writer_stats(
    buffer: *const ws_buffer,
    out: *mut ws_writer_stats,
    capacity: usize,
) -> usize {
    let capacity = if out.is_null() { 0 } else { capacity };
    // SAFETY: the caller's promise about `buffer`.
    unsafe {
        enter(buffer, 0, |inner| {
            let mut writers = 0;
            for writer in inner.engine.writer_stats() {
                if writers < capacity {
                    // SAFETY: `writers < capacity`, the caller's promise about `out`.
                    out.add(writers).write(ws_writer_stats::from(writer));
                }
                writers += 1;
            }
            writers
        })
    }
}

const EMPTY_PACKET: ws_packet = ws_packet {
    slices: std::ptr::null(),
    num_slices: 0,
    producer_id: 0,
    writer_id: 0,
    identity: ws_identity { uid: 0, pid: 0, machine_id: 0 },
    loss_reasons: 0,
};

fn to_patch(patch: ws_patch) -> Patch {
    Patch { offset_untrusted: patch.offset, data: patch.data }
}

/// # Safety
/// `out` is null or can be written.
unsafe fn write_out<T>(out: *mut T, value: T) {
    if !out.is_null() {
        // SAFETY: not null, so it can be written. It may be uninitialised: `write` drops nothing.
        unsafe { out.write(value) };
    }
}
