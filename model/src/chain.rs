//! Scenarios as chains of steps: commit, commit, patch, read, expect.
//!
//! A chain drives any [`Subject`], so one scenario tests the model and the engine. The producer is
//! always 1; packets are short texts.

use crate::subject::Subject;
use crate::{Chunk, Identity, Packet, Patch, Policy, flag};

/// FIRST_CONTINUES.
pub const FP: u8 = flag::FIRST_CONTINUES;
/// LAST_CONTINUES.
pub const LN: u8 = flag::LAST_CONTINUES;
/// NEEDS_PATCHING.
pub const NP: u8 = flag::NEEDS_PATCHING;

/// A fragment with a one-byte header.
///
/// # Panics
///
/// If the text is longer than 127 bytes.
#[must_use]
pub fn frag(text: &str) -> Vec<u8> {
    assert!(text.len() < 128);
    [&[text.len() as u8][..], text.as_bytes()].concat()
}

/// A fragment of `#` that takes `total` bytes, its four-byte header included.
#[must_use]
pub fn block(total: usize) -> Vec<u8> {
    let size = total - 4;
    let header = [size as u8 | 0x80, (size >> 7) as u8 | 0x80, (size >> 14) as u8 | 0x80, 0];
    [&header[..], &vec![b'#'; size]].concat()
}

/// The mark of a dropped packet.
#[must_use]
pub fn sentinel() -> Vec<u8> {
    vec![0xff, 0xff, 0xff, 0x7f]
}

/// A header of 100 with nothing behind it.
#[must_use]
pub fn malformed() -> Vec<u8> {
    vec![100]
}

/// A chunk to commit, complete and without flags until a method says otherwise.
#[derive(Clone, Debug)]
pub struct Commit {
    writer: u16,
    id: u32,
    count: u16,
    flags: u8,
    complete: bool,
    bytes: Vec<u8>,
}

/// A chunk of a writer.
#[must_use]
pub fn chunk(writer: u16, id: u32, fragments: &[Vec<u8>]) -> Commit {
    Commit { writer, id, count: fragments.len() as u16, flags: 0, complete: true, bytes: fragments.concat() }
}

impl Commit {
    /// Sets the flags.
    #[must_use]
    pub fn flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self
    }

    /// Declares another number of fragments.
    #[must_use]
    pub fn count(mut self, count: u16) -> Self {
        self.count = count;
        self
    }

    /// Still being written: `size_bytes` of payload in all, the last fragment not to be trusted.
    #[must_use]
    pub fn scraped(mut self, size_bytes: usize) -> Self {
        self.complete = false;
        self.bytes.resize(size_bytes, 0);
        self
    }
}

/// A buffer in the middle of a scenario.
#[derive(Debug)]
pub struct Chain<S> {
    /// The buffer.
    pub subject: S,
}

#[expect(clippy::return_self_not_must_use, reason = "a chain ends with any of its steps")]
impl<S: Subject> Chain<S> {
    /// A new buffer.
    pub fn new(size_bytes: usize, policy: Policy) -> Self {
        Self { subject: S::create(size_bytes, policy, None) }
    }

    /// A ring of 4096 bytes.
    pub fn ring() -> Self {
        Self::new(4096, Policy::Ring)
    }

    /// A ring of 4096 bytes with an overwrite sink.
    pub fn with_sink(absorb: crate::Absorb) -> Self {
        Self { subject: S::create(4096, Policy::Ring, Some(absorb)) }
    }

    /// Commits a chunk of producer 1, which must not be refused.
    pub fn commit(self, commit: Commit) -> Self {
        self.commit_of(Identity { uid: 10, pid: 11, machine_id: 0 }, commit)
    }

    /// Commits for a process.
    pub fn commit_of(mut self, identity: Identity, c: Commit) -> Self {
        let accepted = self.subject.commit(&Chunk {
            producer_id: 1,
            writer_id: c.writer,
            identity,
            chunk_id: c.id,
            num_fragments: c.count,
            flags: c.flags,
            complete: c.complete,
            bytes: &c.bytes,
        });
        assert!(accepted);
        self
    }

    /// Writes `PTCH` at each offset, and expects success or failure.
    pub fn patch(mut self, writer: u16, id: u32, at: &[u32], pending: bool, expected: bool) -> Self {
        let patches: Vec<_> = at.iter().map(|&offset| Patch { offset, data: *b"PTCH" }).collect();
        assert_eq!(self.subject.patch(1, writer, id, &patches, pending), expected);
        self
    }

    /// The writer is gone.
    pub fn end_writer(mut self, writer: u16) -> Self {
        self.subject.end_writer(1, writer);
        self
    }

    /// Producer 1 is gone.
    pub fn end_producer(mut self) -> Self {
        self.subject.end_producer(1);
        self
    }

    /// Gives loss bits of a writer back.
    pub fn return_loss(mut self, writer: u16, bits: u32) -> Self {
        self.subject.return_loss(1, writer, bits);
        self
    }

    /// Goes on with a clone.
    pub fn cloned(self) -> Self {
        Self { subject: self.subject.clone_read_only() }
    }

    /// A whole pass: packets as text (no more than 8 bytes), loss bits behind a `!` where there are
    /// any.
    pub fn read(mut self, expected: &str) -> Self {
        self.subject.begin_read();
        let seen: Vec<_> =
            std::iter::from_fn(|| self.subject.read_next()).map(|packet| text_of(&packet)).collect();
        assert_eq!(seen.join(" "), expected);
        self
    }

    /// A pass that is left after the packets that are expected.
    pub fn read_some(mut self, expected: &str) -> Self {
        self.subject.begin_read();
        for expected in expected.split(' ') {
            let packet = self.subject.read_next().expect("another packet");
            assert_eq!(text_of(&packet), expected);
        }
        self
    }

    /// Expects values of counters, by their names in BufferStats and in the ledger.
    pub fn expect(self, expected: &[(&str, u64)]) -> Self {
        let text = format!("{:?}{:?}", self.subject.stats(), self.subject.ledger());
        for (name, value) in expected {
            let found = [',', ' '].iter().any(|end| text.contains(&format!(" {name}: {value}{end}")));
            assert!(found, "{name} is not {value} in {text}");
        }
        self
    }
}

fn text_of(packet: &Packet) -> String {
    let mut text: String = packet.slices.iter().flatten().map(|&byte| char::from(byte)).collect();
    text.truncate(8);
    if packet.loss != 0 {
        text += &format!("!{}", packet.loss);
    }
    text
}
