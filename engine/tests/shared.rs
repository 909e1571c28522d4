//! Chunks that others change while they are committed from shared memory.

use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};

use watershed_engine::{
    BufferConfig, ByteSource, ChunkFlags, ChunkId, ChunkInfo, ClientIdentity, ProducerId, SharedBytes,
    TraceBuffer, WriterId,
};

/// A payload in which any byte is a header of one byte, and any 40 fragments end inside.
struct Restless([AtomicU8; 4080]);

impl Restless {
    fn bytes(&self) -> SharedBytes<'_> {
        // SAFETY: atomics are bytes, they live as long as `self`, and shared references to them
        // allow changes by others.
        unsafe { SharedBytes::new(self.0.as_ptr().cast(), self.0.len()) }
    }
}

impl ByteSource for Restless {
    fn size_bytes(&self) -> usize {
        self.0.len()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        for (to, from) in dst.iter_mut().zip(&self.0[offset_bytes..]) {
            *to = from.load(Ordering::Relaxed);
        }
    }

    fn shared_bytes(&self) -> Option<SharedBytes<'_>> {
        Some(self.bytes())
    }
}

/// The sizes of the fragments of all records of a ring that was filled once, by the bytes that are
/// there.
fn sizes_in_ring(ring: &[u8], num_fragments: u16) -> Vec<usize> {
    let (mut at, mut sizes) = (0, Vec::new());
    loop {
        let field = |place: usize| usize::from(u16::from_le_bytes([ring[at + place], ring[at + place + 1]]));
        let (reserved_bytes, visible_bytes) = (field(8), field(10));
        if visible_bytes == 0 {
            return sizes;
        }
        let mut fragments = &ring[at + 16..][..visible_bytes];
        for _ in 0..num_fragments {
            let (size, rest) = fragments.split_first().expect("a header");
            sizes.push(usize::from(*size));
            fragments = &rest[usize::from(*size)..];
        }
        assert!(fragments.is_empty(), "as many bytes are visible as its headers say");
        at += (16 + reserved_bytes).next_multiple_of(16);
    }
}

/// Only headers are fetched before the copy.
#[test]
fn what_was_judged_is_what_is_kept() {
    commit_what_changes(3, 30_000);
}

/// All is copied, and walked meanwhile.
#[test]
fn what_was_judged_of_a_dense_chunk_is_what_is_kept() {
    commit_what_changes(40, 3000);
}

fn commit_what_changes(num_fragments: u16, chunks: u32) {
    let payload = Restless(std::array::from_fn(|_| AtomicU8::new(50)));
    let [has_begun, is_done] = [const { AtomicBool::new(false) }; 2];
    let mut buffer = TraceBuffer::create(&BufferConfig::ring(16 << 20)).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let (mut random, mut changes) = (1u32, 0);
            while !is_done.load(Ordering::Relaxed) {
                changes += 1;
                has_begun.store(changes > 10_000, Ordering::Relaxed);
                random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                let place = (random >> 16) as usize % payload.0.len();
                payload.0[place].store(40 + (random >> 8) as u8 % 60, Ordering::Relaxed);
            }
        });
        // However busy the machine is, every byte has changed when the first chunk is committed.
        while !has_begun.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        for id in 0..chunks {
            let info = ChunkInfo {
                producer_id_trusted: ProducerId(1),
                identity_trusted: ClientIdentity { uid: 1, pid: 1, machine_id: 0 },
                writer_id: WriterId(1),
                chunk_id: ChunkId(id),
                num_fragments,
                flags: ChunkFlags(0),
                complete: true,
            };
            buffer.copy_chunk_untrusted(&info, &payload).unwrap();
        }
        is_done.store(true, Ordering::Relaxed);
    });
    let stats = buffer.stats();
    assert_eq!((stats.chunks_written, stats.write_wrap_count, stats.abi_violations), (chunks.into(), 0, 0));
    let in_ring = sizes_in_ring(buffer.ring(), num_fragments);
    buffer.begin_read();
    let mut sizes = Vec::new();
    while let Some(packet) = buffer.read_next() {
        sizes.push(packet.slices()[0].len());
    }
    assert!(sizes == in_ring, "a packet ends where its header in the ring says");
    assert!(sizes.iter().any(|size| *size != sizes[0]), "the payload did change");
    buffer.check().unwrap();
}
