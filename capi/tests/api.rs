//! The library as a C program sees it, called through its C functions.

use std::ffi::{CStr, c_void};
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use watershed::api::*;
use watershed::queries::*;
use watershed::sink::ws_buffer_set_overwrite_sink;
use watershed::types::*;
use watershed::ws_buffer;

const ME: ws_identity = ws_identity { uid: 1000, pid: 42, machine_id: 7 };

/// A buffer that lives as long as this value. Every pointer in these tests comes from here, and one
/// thread uses it.
struct Buffer(*mut ws_buffer);

impl Buffer {
    fn new(size_bytes: usize, policy: ws_policy) -> Self {
        let buffer = ws_buffer_create(size_bytes, PolicyArgument(policy as u32));
        assert!(!buffer.is_null());
        Self(buffer)
    }

    fn ring(size_bytes: usize) -> Self {
        Self::new(size_bytes, ws_policy::WS_RING)
    }

    /// One chunk of one packet.
    fn commit(&self, writer: u16, chunk: u32, body: &[u8]) -> bool {
        let mut bytes = vec![u8::try_from(body.len()).expect("a short body")];
        bytes.extend(body);
        self.commit_raw(1, writer, chunk, &bytes)
    }

    fn commit_raw(&self, producer: u16, writer: u16, chunk: u32, bytes: &[u8]) -> bool {
        // SAFETY: a live buffer; the bytes are readable during the call.
        unsafe {
            ws_buffer_copy_chunk(self.0, producer, ME, writer, chunk, 1, 0, true, bytes.as_ptr(), bytes.len())
        }
    }

    fn begin_read(&self) {
        // SAFETY: a live buffer.
        unsafe { ws_buffer_begin_read(self.0) }
    }

    fn next(&self) -> Option<ws_packet> {
        let mut packet = std::mem::MaybeUninit::uninit();
        // SAFETY: a live buffer, and a packet that can be written. It is written whatever the
        // answer.
        unsafe { ws_buffer_read_next(self.0, packet.as_mut_ptr()).then(|| packet.assume_init()) }
    }

    fn stats(&self) -> ws_stats {
        let mut stats = ws_stats::default();
        // SAFETY: a live buffer, and a place for the result.
        unsafe { ws_buffer_stats(self.0, &mut stats) };
        stats
    }

    fn ledger(&self) -> ws_ledger {
        let mut ledger = ws_ledger::default();
        // SAFETY: as above.
        unsafe { ws_buffer_ledger(self.0, &mut ledger) };
        ledger
    }

    fn clone_read_only(&self) -> Buffer {
        // SAFETY: a live buffer.
        let clone = unsafe { ws_buffer_clone_read_only(self.0) };
        assert!(!clone.is_null());
        Self(clone)
    }

    fn bodies(&self) -> Vec<Vec<u8>> {
        self.begin_read();
        std::iter::from_fn(|| self.next()).map(|packet| body(&packet)).collect()
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        // SAFETY: the pointer goes with this value.
        unsafe { ws_buffer_destroy(self.0) }
    }
}

/// The bytes of a packet that was read and has not been written over.
fn body(packet: &ws_packet) -> Vec<u8> {
    // SAFETY: nothing was written since the packet was read, in all these tests.
    let slices = unsafe { std::slice::from_raw_parts(packet.slices, packet.num_slices) };
    // SAFETY: as above.
    slices
        .iter()
        .flat_map(|slice| unsafe { std::slice::from_raw_parts(slice.data, slice.size_bytes) })
        .copied()
        .collect()
}

#[test]
fn sizes_are_rounded_up() {
    for (asked, got) in [(0, 4096), (1, 4096), (4096, 4096), (4097, 8192)] {
        let buffer = Buffer::ring(asked);
        // SAFETY: a live buffer.
        unsafe {
            assert_eq!(ws_buffer_size(buffer.0), got);
            assert!(ws_buffer_memory_usage(buffer.0) >= got);
            assert_eq!((ws_buffer_used_size(buffer.0), ws_buffer_write_offset(buffer.0)), (0, 0));
            assert!(!ws_buffer_has_data(buffer.0));
        }
    }
}

#[test]
fn sizes_that_cannot_be_had_are_null() {
    assert!(ws_buffer_create(usize::MAX, PolicyArgument(0)).is_null());
    assert!(ws_buffer_create(4096, PolicyArgument(2)).is_null(), "no such policy");
}

#[test]
fn packets_stay_valid_until_the_next_write() {
    let buffer = Buffer::ring(1 << 20);
    for chunk in 0..2000 {
        assert!(buffer.commit(1, chunk, &chunk.to_le_bytes()));
    }
    buffer.begin_read();
    let packets: Vec<ws_packet> = std::iter::from_fn(|| buffer.next()).collect();
    // Another pass writes nothing, so it takes nothing away.
    buffer.begin_read();
    assert!(buffer.next().is_none());
    for (packet, chunk) in packets.iter().zip(0_u32..) {
        assert_eq!(body(packet), chunk.to_le_bytes());
        assert_eq!(
            (packet.producer_id, packet.writer_id, packet.identity, packet.loss_reasons),
            (1, 1, ME, 0)
        );
    }
    assert_eq!(packets.len(), 2000);
}

#[test]
fn wrong_calls_are_refused_and_change_nothing() {
    let buffer = Buffer::ring(1 << 20);
    assert!(!buffer.commit_raw(0, 0, 0, &[1, b'x']), "both ids are 0");
    assert!(buffer.commit_raw(1, 0, 0, &[1, b'x']), "one of them may be");
    let large = vec![0; 65_536];
    assert!(!buffer.commit_raw(1, 1, 0, &large));
    assert!(buffer.commit_raw(1, 1, 0, &large[..65_535]));
    let before = buffer.stats();
    // SAFETY: a live buffer.
    unsafe { ws_buffer_set_read_only(buffer.0) };
    assert!(!buffer.commit(1, 1, b"late"));
    assert_eq!(buffer.stats(), before);
}

#[test]
fn patches_reach_their_chunk() {
    let buffer = Buffer::ring(4096);
    buffer.commit(1, 0, b"....tail");
    let patch = |offset, data: &[u8; 4]| ws_patch { offset, data: *data };
    let apply = |chunk, patches: &[ws_patch]| {
        // SAFETY: a live buffer; the patches are readable during the call.
        unsafe { ws_buffer_try_patch(buffer.0, 1, 1, chunk, patches.as_ptr(), patches.len(), false) }
    };
    assert!(!apply(1, &[patch(1, b"none")]), "no such chunk");
    assert!(!apply(0, &[patch(1, b"part"), patch(7, b"over")]), "one that does not fit keeps the others out");
    assert!(apply(0, &[patch(1, b"head"), patch(5, b"TAIL")]));
    assert_eq!(buffer.bodies(), [b"headTAIL"]);
    assert_eq!((buffer.stats().patches_succeeded, buffer.stats().patches_failed), (2, 2));
}

#[test]
fn a_clone_is_read_on_its_own() {
    let buffer = Buffer::ring(4096);
    buffer.commit(1, 0, b"first");
    buffer.commit(1, 1, b"second");
    buffer.begin_read();
    assert_eq!(buffer.next().map(|packet| body(&packet)), Some(b"first".to_vec()));
    let clone = buffer.clone_read_only();
    assert!(!clone.commit(1, 2, b"never"), "a clone is read-only");
    assert_eq!(clone.bodies(), [b"second"]);
    assert_eq!(buffer.bodies(), [b"second"], "reading the clone consumed nothing here");
}

#[test]
fn ended_writers_may_start_again() {
    let buffer = Buffer::ring(4096);
    buffer.commit(1, 5, b"old");
    assert_eq!(buffer.bodies(), [b"old"]);
    assert!(buffer.commit(1, 0, b"ignored"));
    assert_eq!(buffer.bodies().len(), 0, "an id that is older than what was read");
    // SAFETY: a live buffer.
    unsafe { ws_buffer_end_writer(buffer.0, 1, 1) };
    buffer.commit(1, 0, b"new");
    assert_eq!(buffer.bodies(), [b"new"]);
    // SAFETY: a live buffer.
    unsafe { ws_buffer_end_producer(buffer.0, 1) };
    buffer.commit(1, 0, b"newer");
    assert_eq!(buffer.bodies(), [b"newer"]);
}

#[test]
fn writers_are_counted_beyond_the_room_for_them() {
    let buffer = Buffer::ring(4096);
    for writer in 1..=3 {
        buffer.commit(writer, 0, b"1234567");
    }
    let mut writers = [ws_writer_stats::default(); 3];
    // SAFETY: a live buffer, and room for two.
    let count = unsafe { ws_buffer_writer_stats(buffer.0, writers.as_mut_ptr(), 2) };
    assert_eq!(count, 3);
    assert_eq!((writers[0].producer_id, writers[0].bucket_count[0], writers[0].bucket_sum[0]), (1, 1, 8));
    assert_eq!(writers[2], ws_writer_stats::default(), "beyond the room");
}

#[test]
fn writers_are_listed_in_the_order_of_their_first_chunks() {
    let buffer = Buffer::ring(4096);
    for (writer, chunk) in [(3, 0), (1, 0), (2, 0), (1, 1), (3, 1)] {
        buffer.commit(writer, chunk, b"1234567");
    }
    let mut writers = [ws_writer_stats::default(); 3];
    // SAFETY: a live buffer, and room for three.
    assert_eq!(unsafe { ws_buffer_writer_stats(buffer.0, writers.as_mut_ptr(), 3) }, 3);
    assert_eq!(writers.map(|writer| writer.writer_id), [3, 1, 2]);
}

#[test]
fn a_discarding_buffer_keeps_what_came_first() {
    let buffer = Buffer::new(4096, ws_policy::WS_DISCARD);
    for chunk in 0..200 {
        assert!(buffer.commit(1, chunk, &[b'x'; 100]), "discarded is not refused");
    }
    // SAFETY: a live buffer.
    assert_eq!(unsafe { ws_buffer_policy(buffer.0) }, ws_policy::WS_DISCARD);
    let kept = 4096 / 128;
    assert_eq!(buffer.bodies().len(), kept);
    assert_eq!(buffer.stats().chunks_discarded, 200 - kept as u64);
}

#[test]
fn the_layout_of_the_ring_can_be_looked_at() {
    let buffer = Buffer::ring(4096);
    buffer.commit(2, 0x0102_0304, b"payload");
    // SAFETY: a live buffer; the ring has at least 32 bytes and is not written meanwhile.
    let ring = unsafe { std::slice::from_raw_parts(ws_buffer_ring(buffer.0), 32) };
    assert_eq!(ring[..4], [4, 3, 2, 1], "the chunk id");
    assert_eq!(ring[4..8], [2, 0, 1, 0], "producer << 16 | writer");
    assert_eq!(ring[8..12], [8, 0, 8, 0], "reserved and visible bytes");
    assert_eq!(ring[16..24], *b"\x07payload");
    // SAFETY: a live buffer.
    assert_eq!(unsafe { ws_buffer_write_offset(buffer.0) }, 32);
}

/// What the overwrite function of the next test is given.
struct Seen {
    bodies: Vec<Vec<u8>>,
    absorb: bool,
    buffer: *mut ws_buffer,
}

unsafe extern "C" fn see(user: *mut c_void, packet: *const ws_packet) -> bool {
    // SAFETY: `user` is the `Seen` that was given with this function; the packet is valid during
    // the call.
    let (seen, packet) = unsafe { (&mut *user.cast::<Seen>(), &*packet) };
    seen.bodies.push(body(packet));
    // A call into the buffer from here is refused, whatever it is.
    // SAFETY: a live buffer.
    assert_eq!(unsafe { ws_buffer_size(seen.buffer) }, 0);
    seen.absorb
}

#[test]
fn the_overwrite_function_sees_what_goes_and_may_keep_it() {
    for absorb in [false, true] {
        let buffer = Buffer::ring(4096);
        let mut seen = Seen { bodies: Vec::new(), absorb, buffer: buffer.0 };
        // SAFETY: a live buffer; `seen` outlives every call that may overwrite.
        unsafe { ws_buffer_set_overwrite_sink(buffer.0, Some(see), (&raw mut seen).cast()) };
        for chunk in 0..150_u32 {
            buffer.commit(1, chunk, &chunk.to_le_bytes());
        }
        buffer.begin_read();
        let first = buffer.next().expect("the ring is full");
        assert_eq!(first.loss_reasons, if absorb { 0 } else { WS_LOSS_PRESENT | WS_LOSS_OVERWRITE });
        // 128 records of 32 bytes fit.
        assert_eq!(body(&first), 22_u32.to_le_bytes());
        assert_eq!(seen.bodies, (0..22_u32).map(|chunk| chunk.to_le_bytes().to_vec()).collect::<Vec<_>>());
        // SAFETY: a live buffer.
        unsafe { ws_buffer_set_overwrite_sink(buffer.0, None, std::ptr::null_mut()) };
        let before = seen.bodies.len();
        buffer.commit(1, 150, b"more");
        assert_eq!(seen.bodies.len(), before, "taken away");
    }
}

#[test]
fn the_source_may_change_during_the_call() {
    let source: Vec<AtomicU8> = (0..4000).map(|_| AtomicU8::new(0x20)).collect();
    let done = AtomicBool::new(false);
    let buffer = Buffer::ring(64 << 10);
    std::thread::scope(|scope| {
        // Relaxed throughout: nothing is published, the two threads race on purpose.
        scope.spawn(|| {
            let mut value = 0_u8;
            while !done.load(Ordering::Relaxed) {
                value = value.wrapping_mul(5).wrapping_add(113);
                source.iter().step_by(7).for_each(|byte| byte.store(value, Ordering::Relaxed));
            }
        });
        let start = source.as_ptr().cast::<u8>();
        for chunk in 0..2000 {
            // SAFETY: a live buffer; the source is readable, and may change.
            assert!(unsafe {
                ws_buffer_copy_chunk(buffer.0, 1, ME, 1, chunk, 100, 0, true, start, source.len())
            });
            if chunk % 64 == 0 {
                buffer.bodies();
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    let ledger = buffer.ledger();
    let parts = [ledger.read, ledger.overwritten, ledger.empty, ledger.damaged, ledger.listed];
    assert_eq!(ledger.written[0], 2000);
    assert_eq!(ledger.written, parts.iter().fold([0, 0], |sum, part| [sum[0] + part[0], sum[1] + part[1]]));
    assert_eq!(ledger.damaged, [0, 0], "what was looked at is what is kept");
}

#[test]
fn the_version_is_the_crates() {
    // SAFETY: a string with an end, for ever.
    let version = unsafe { CStr::from_ptr(ws_version()) };
    assert_eq!(version.to_str(), Ok(env!("CARGO_PKG_VERSION")));
}
