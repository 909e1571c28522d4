//! Chains of steps against the model.

use watershed_model::{Chunk, Identity, Model, Patch, Policy, flag};

pub(crate) const FP: u8 = flag::FIRST_CONTINUES;
pub(crate) const LN: u8 = flag::LAST_CONTINUES;
pub(crate) const NP: u8 = flag::NEEDS_PATCHING;
pub(crate) const SENTINEL: [u8; 4] = [0xff, 0xff, 0xff, 0x7f];
/// A header of 100 with nothing behind it.
pub(crate) const BAD: [u8; 1] = [100];

/// A fragment of text.
pub(crate) fn frag(text: &str) -> Vec<u8> {
    [&[text.len() as u8][..], text.as_bytes()].concat()
}

/// A fragment that takes `total` bytes, its four-byte header included.
pub(crate) fn block(total: usize) -> Vec<u8> {
    let size = total - 4;
    let header = [size as u8 | 0x80, (size >> 7) as u8 | 0x80, (size >> 14) as u8 | 0x80, 0];
    [&header[..], &vec![b'#'; size]].concat()
}

pub(crate) struct Chain {
    pub(crate) model: Model,
}

/// A chunk of producer 1, to be changed by its methods.
pub(crate) struct Commit {
    pub(crate) writer: u16,
    pub(crate) id: u32,
    pub(crate) count: u16,
    pub(crate) flags: u8,
    pub(crate) complete: bool,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) fn chunk(writer: u16, id: u32, fragments: &[Vec<u8>]) -> Commit {
    Commit { writer, id, count: fragments.len() as u16, flags: 0, complete: true, bytes: fragments.concat() }
}

impl Commit {
    pub(crate) fn flags(mut self, flags: u8) -> Self {
        self.flags = flags;
        self
    }

    /// Still being written: `size_bytes` of payload in all.
    pub(crate) fn scraped(mut self, size_bytes: usize) -> Self {
        self.complete = false;
        self.bytes.resize(size_bytes, 0);
        self
    }
}

impl Chain {
    pub(crate) fn new(size_bytes: usize, policy: Policy) -> Self {
        Self { model: Model::new(size_bytes, policy) }
    }

    pub(crate) fn ring() -> Self {
        Self::new(4096, Policy::Ring)
    }

    pub(crate) fn commit(mut self, c: Commit) -> Self {
        let accepted = self.model.commit(&Chunk {
            producer_id: 1,
            writer_id: c.writer,
            identity: Identity { uid: 10, pid: 11, machine_id: 0 },
            chunk_id: c.id,
            num_fragments: c.count,
            flags: c.flags,
            complete: c.complete,
            bytes: &c.bytes,
        });
        assert!(accepted);
        self.model.check();
        self
    }

    pub(crate) fn patch(mut self, writer: u16, id: u32, at: &[u32], pending: bool, expected: bool) -> Self {
        let patches: Vec<_> = at.iter().map(|&offset| Patch { offset, data: *b"PTCH" }).collect();
        assert_eq!(self.model.patch(1, writer, id, &patches, pending), expected);
        self
    }

    pub(crate) fn end_writer(mut self, writer: u16) -> Self {
        self.model.end_writer(1, writer);
        self
    }

    pub(crate) fn end_producer(mut self) -> Self {
        self.model.end_producer(1);
        self
    }

    /// A whole pass; each packet as text, with its loss bits behind a `!` where there are any.
    pub(crate) fn read(mut self, expected: &str) -> Self {
        self.model.begin_read();
        let mut seen = Vec::new();
        while let Some(packet) = self.model.read_next() {
            let mut text: String = packet.slices.iter().flatten().map(|&b| b as char).collect();
            text.truncate(8);
            if packet.loss != 0 {
                text += &format!("!{}", packet.loss);
            }
            seen.push(text);
            self.model.check();
        }
        assert_eq!(seen.join(" "), expected);
        self
    }

    /// `name=value` pairs of statistics.
    pub(crate) fn stats(self, expected: &[(&str, u64)]) -> Self {
        let text = format!("{:?}{:?}", self.model.stats(), self.model.ledger());
        for (name, value) in expected {
            assert!(
                text.contains(&format!(" {name}: {value},"))
                    || text.contains(&format!(" {name}: {value} }}")),
                "{name} is not {value} in {text}"
            );
        }
        self
    }
}
