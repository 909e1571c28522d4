//! Scenarios as chains of steps: commit, patch, read, expect. After each step every invariant of
//! the buffer is checked.
#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    clippy::allow_attributes,
    reason = "each test program uses another part of it"
)]

use watershed_engine::{
    BufferConfig, ByteSource, ChunkFlags, ChunkId, ChunkInfo, ClientIdentity, LossReasons, Patch, ProducerId,
    SharedBytes, TraceBuffer, WriterId,
};

/// The marker of a packet that its writer gave up.
pub const DROP_MARKER: [u8; 4] = [0xff, 0xff, 0xff, 0x7f];

/// A chunk under construction.
#[derive(Clone)]
pub struct Chunk {
    pub info: ChunkInfo,
    pub bytes: Vec<u8>,
}

/// An empty chunk of writer `writer` of producer 1.
pub fn chunk(writer: u16, id: u32) -> Chunk {
    let info = ChunkInfo {
        producer_id_trusted: ProducerId(1),
        identity_trusted: ClientIdentity { uid: 1000, pid: 7, machine_id: 0 },
        writer_id: WriterId(writer),
        chunk_id: ChunkId(id),
        complete: true,
        ..ChunkInfo::default()
    };
    Chunk { info, bytes: Vec::new() }
}

impl Chunk {
    fn fragment(mut self, body: &[u8], flags: u8) -> Chunk {
        assert!(body.len() < 16384);
        if body.len() >= 128 {
            self.bytes.push(body.len() as u8 | 0x80);
        }
        self.bytes.push((if body.len() >= 128 { body.len() >> 7 } else { body.len() }) as u8);
        self.bytes.extend(body);
        self.info.num_fragments += 1;
        self.info.flags.0 |= flags;
        self
    }

    /// A fragment that is a packet.
    pub fn whole(self, body: &str) -> Chunk {
        self.fragment(body.as_bytes(), 0)
    }

    /// The first fragment, which continues a packet.
    pub fn goes_on(self, body: &str) -> Chunk {
        assert!(self.bytes.is_empty());
        self.fragment(body.as_bytes(), ChunkFlags::FIRST_CONTINUES.0)
    }

    /// The last fragment, which the next chunk continues.
    pub fn begin(self, body: &str) -> Chunk {
        self.fragment(body.as_bytes(), ChunkFlags::LAST_CONTINUES.0)
    }

    /// The only fragment, in the middle of a packet.
    pub fn middle(self, body: &str) -> Chunk {
        self.goes_on(body).flags(ChunkFlags::LAST_CONTINUES)
    }

    /// The mark of a packet that was given up.
    pub fn aborted(mut self) -> Chunk {
        self.bytes.extend(DROP_MARKER);
        self.info.num_fragments += 1;
        self
    }

    pub fn flags(mut self, flags: ChunkFlags) -> Chunk {
        self.info.flags.0 |= flags.0;
        self
    }

    pub fn needs_patching(self) -> Chunk {
        self.flags(ChunkFlags::NEEDS_PATCHING)
    }

    /// Bytes behind the fragments that none of them counts.
    pub fn slack(mut self, bytes: usize) -> Chunk {
        self.bytes.resize(self.bytes.len() + bytes, 0xee);
        self
    }

    /// Declares another number of fragments than there are.
    pub fn declares(mut self, fragments: u16) -> Chunk {
        self.info.num_fragments = fragments;
        self
    }

    pub fn raw(mut self, bytes: &[u8]) -> Chunk {
        self.bytes.extend(bytes);
        self
    }

    pub fn of_producer(mut self, producer: u32, pid: i32) -> Chunk {
        self.info.producer_id_trusted = ProducerId(producer);
        self.info.identity_trusted.pid = pid;
        self
    }

    /// Scraped while its writer is at a further fragment, in a chunk of `size` bytes.
    pub fn scraped(mut self, size: usize) -> Chunk {
        self.info.complete = false;
        self.info.num_fragments += 1;
        self.bytes.resize(size.max(self.bytes.len()), 0);
        self
    }
}

/// Bytes that may change: the engine must copy them.
struct Shared<'a>(&'a [u8]);

impl ByteSource for Shared<'_> {
    fn size_bytes(&self) -> usize {
        self.0.len()
    }

    fn copy_range(&self, offset_bytes: usize, dst: &mut [u8]) {
        dst.copy_from_slice(&self.0[offset_bytes..][..dst.len()]);
    }

    fn shared_bytes(&self) -> Option<SharedBytes<'_>> {
        Some(self.0.into())
    }
}

/// A buffer under test.
pub struct Buffer(pub TraceBuffer);

impl Buffer {
    pub fn ring(size: usize) -> Buffer {
        Buffer(TraceBuffer::create(&BufferConfig::ring(size)).unwrap())
    }

    pub fn discard(size: usize) -> Buffer {
        Buffer(TraceBuffer::create(&BufferConfig::discard(size)).unwrap())
    }

    pub fn commit(&mut self, chunk: Chunk) -> &mut Buffer {
        self.0.copy_chunk_untrusted(&chunk.info, &Shared(&chunk.bytes)).unwrap();
        self.checked()
    }

    /// A chunk of one packet that takes `outer` bytes in the ring.
    pub fn fill(&mut self, writer: u16, id: u32, outer: usize) -> &mut Buffer {
        let header = if outer - 16 > 128 { 2 } else { 1 };
        self.commit(chunk(writer, id).whole(&"#".repeat(outer - 16 - header)))
    }

    pub fn patch(&mut self, writer: u16, id: u32, offset: u32, data: &str, pending: bool) -> bool {
        let data = data.as_bytes().try_into().unwrap();
        let patches = [Patch { offset_untrusted: offset, data }];
        let is_done = self.0.try_patch(ProducerId(1), WriterId(writer), ChunkId(id), &patches, pending);
        self.checked();
        is_done
    }

    /// Reads all there is, and compares: `"text"`, or `"text!bits"` with loss bits; slices are
    /// joined by `+`, and a writer other than 1 is a prefix, as in `"2:text"`. Long packets are
    /// given by their length, as `"<200>"`.
    #[track_caller]
    pub fn reads(&mut self, expected: &[&str]) -> &mut Buffer {
        assert_eq!(self.read(usize::MAX), expected, "{:?}", self.0);
        self
    }

    pub fn read(&mut self, limit: usize) -> Vec<String> {
        self.0.begin_read();
        let mut all = Vec::new();
        while all.len() < limit {
            let Some(packet) = self.0.read_next() else { break };
            let text = |slice: &&[u8]| match slice.len() {
                0..40 => String::from_utf8_lossy(slice).into_owned(),
                long => format!("<{long}>"),
            };
            let mut line = packet.slices().iter().map(text).collect::<Vec<_>>().join("+");
            if packet.writer_id.0 != 1 {
                line = format!("{}:{line}", packet.writer_id.0);
            }
            if packet.loss != LossReasons::NONE {
                line += &format!("!{}", packet.loss.0);
            }
            all.push(line);
            self.0.check().unwrap();
        }
        all
    }

    #[track_caller]
    pub fn checked(&mut self) -> &mut Buffer {
        if let Err(what) = self.0.check() {
            panic!("{what}\n{:?}", self.0);
        }
        self
    }

    pub fn copy(&self) -> Buffer {
        let mut copy = self.0.clone_read_only().unwrap();
        copy.check().unwrap();
        Buffer(copy)
    }
}
