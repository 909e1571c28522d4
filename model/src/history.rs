//! Histories: what happens to a buffer, in terms that stay meaningful when steps are taken away.
//!
//! A step names chunks relative to what its writer did before ("the next id", "the second newest
//! commit again"), so that a shrunk history is still a history. [`crate::drive`] turns steps into
//! calls.

pub use crate::stretch::{Oddity, Stretch};

/// A buffer and what happens to it.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct History {
    /// What is made first.
    pub setup: Setup,
    /// What is done then.
    pub steps: Vec<Step>,
}

/// How a buffer is made.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Setup {
    /// Size in pages of 4096 bytes: one of [`Setup::PAGES`].
    pub pages: u8,
    /// DISCARD in place of RING_BUFFER.
    pub discard: bool,
    /// An overwrite sink is attached, which absorbs every other packet.
    pub sink: bool,
    /// First chunk id of each writer.
    pub start: Start,
}

impl Setup {
    /// The sizes that a buffer may have.
    pub const PAGES: [usize; 5] = [1, 2, 3, 8, 32];

    /// The size in bytes.
    #[must_use]
    pub fn size_bytes(&self) -> usize {
        Self::PAGES[usize::from(self.pages) % Self::PAGES.len()] * 4096
    }
}

/// Where chunk ids start.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Start {
    /// At 0, as writers do.
    Zero,
    /// A few before the wrap at 2^32.
    BeforeWrap,
    /// A few before 2^31.
    BeforeSign,
}

/// One thing that happens. Writers are counted modulo the number there is.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Step {
    /// A new chunk.
    Commit {
        /// Who commits.
        writer: u8,
        /// Its chunk id.
        id: IdPick,
        /// Its contents.
        contents: Contents,
    },
    /// Many new chunks.
    Stretch(Stretch),
    /// A new chunk whose committer is stopped after it took its ticket: until it continues, reads
    /// end before that ticket. Where chunks have no tickets it is not stopped.
    Hold {
        /// Who commits.
        writer: u8,
        /// Its contents.
        contents: Contents,
    },
    /// One of the committers that were stopped goes on.
    Release(u8),
    /// A chunk that was committed before.
    Recommit {
        /// Who commits.
        writer: u8,
        /// 0 is the writer's newest commit, 1 the one before.
        nth_newest: u8,
        /// What is different now.
        change: Change,
        /// The writer is done with it.
        complete: bool,
    },
    /// Patches for a chunk.
    Patch {
        /// Whose chunk.
        writer: u8,
        /// 0 is the writer's newest commit; above the number of commits: a chunk that does not
        /// exist.
        nth_newest: u8,
        /// Where to.
        places: Vec<Place>,
        /// More will follow.
        pending: bool,
    },
    /// The writer is gone. Its next chunk id is 0 again, if `restart`.
    EndWriter {
        /// Who.
        writer: u8,
        /// Whether the id has a new owner afterwards.
        restart: bool,
    },
    /// The producer of the writer is gone, and another process gets its id.
    EndProducer {
        /// A writer of the producer.
        writer: u8,
    },
    /// A read pass of at most so many packets, all if 255.
    Read {
        /// Packets.
        limit: u8,
    },
    /// The last pass goes on, for at most so many packets, all if 255. Where chunks have tickets it
    /// goes on behind what was written since.
    ReadOn {
        /// Packets.
        limit: u8,
    },
    /// Loss bits are given back, `bits & 0x1ff` of them.
    ReturnLoss {
        /// Whose packet was thrown away.
        writer: u8,
        /// What it carried.
        bits: u16,
    },
    /// A clone is taken, compared and read; the buffer goes on.
    Clone,
}

/// Which id a new chunk gets.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum IdPick {
    /// The highest so far and one.
    Next,
    /// `1 + n % 3` ids are left out.
    Skip(u8),
    /// The highest so far less `n % 8`.
    Back(u8),
    /// Any.
    Any(u32),
}

/// A chunk's contents.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Contents {
    /// In this order.
    pub fragments: Vec<Fragment>,
    /// The count in the header.
    pub declared: Declared,
    /// FP: as the chunk before it says, or flipped.
    pub flip_first_continues: bool,
    /// LN.
    pub last_continues: bool,
    /// NP.
    pub needs_patching: bool,
    /// Other bits of the flags.
    pub other_flags: u8,
    /// False: scraped while it was being written.
    pub complete: bool,
    /// Bytes behind the fragments.
    pub slack: Slack,
}

/// Unused bytes of a chunk.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub struct Slack {
    /// So many.
    pub len: u16,
    /// What they are.
    pub byte: u8,
}

/// The count in a chunk's header.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Declared {
    /// As many as there are.
    Exact,
    /// Fewer, by `1 + n % 2`.
    Fewer(u8),
    /// More, by `1 + n % 2`.
    More(u8),
    /// This many.
    Count(u16),
}

/// A fragment, or what a hostile writer puts in its place.
#[derive(Clone, Debug)]
pub enum Fragment {
    /// `len` bytes that occur nowhere else, behind a header of at least `header_len` bytes.
    Body {
        /// Body bytes.
        len: u16,
        /// 1 to 10; fewer than needed means as many as needed.
        header_len: u8,
    },
    /// The mark of a dropped packet.
    Sentinel,
    /// Any bytes.
    Raw(Vec<u8>),
}

/// What a recommit changes.
#[derive(Clone, Debug)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Change {
    /// Nothing.
    Same,
    /// More fragments, in the slack as far as it goes.
    Grow(Vec<Fragment>),
    /// So many fragments less.
    Shrink(u8),
    /// Other fragments, and a count for them.
    Replace(Vec<Fragment>, Declared),
    /// Other flags.
    Flags(u8),
    /// LN, and NP as given, as a writer sets them when it is done.
    Continue(bool),
}

/// The target of a patch.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(feature = "arbitrary", derive(arbitrary::Arbitrary))]
pub enum Place {
    /// Into the body of the last fragment, `n` bytes from its begin, as far as four bytes fit.
    LastBody(u8),
    /// At a byte of the payload.
    Offset(u16),
    /// Near the end of the payload: `n - 6` bytes behind it.
    NearEnd(u8),
    /// Anywhere.
    Far(u32),
}

#[cfg(feature = "arbitrary")]
impl<'a> arbitrary::Arbitrary<'a> for Fragment {
    fn arbitrary(u: &mut arbitrary::Unstructured<'a>) -> arbitrary::Result<Self> {
        let body = |max: u16, u: &mut arbitrary::Unstructured<'a>| -> arbitrary::Result<Self> {
            Ok(Self::Body { len: u.int_in_range(0..=max)?, header_len: u.int_in_range(1..=10)? })
        };
        match u8::arbitrary(u)? {
            0..128 => body(20, u),
            128..192 => body(300, u),
            192..220 => body(4200, u),
            220..224 => body(u16::MAX, u),
            224..236 => Ok(Self::Sentinel),
            236.. => {
                let len = u.int_in_range(0..=13)?;
                Ok(Self::Raw(u.bytes(len.min(u.len()))?.to_vec()))
            }
        }
    }
}

impl Declared {
    /// The count for `len` fragments.
    #[must_use]
    pub fn of(self, len: usize) -> u16 {
        let exact = len as u16;
        match self {
            Self::Exact => exact,
            Self::Fewer(n) => exact.saturating_sub(1 + u16::from(n % 2)),
            Self::More(n) => exact.saturating_add(1 + u16::from(n % 2)),
            Self::Count(n) => n,
        }
    }
}

impl Fragment {
    /// Its bytes; `serial` makes a body that occurs once.
    #[must_use]
    pub fn bytes(&self, serial: &mut u32) -> Vec<u8> {
        match self {
            Self::Sentinel => vec![0xff, 0xff, 0xff, 0x7f],
            Self::Raw(bytes) => bytes.clone(),
            Self::Body { len, header_len } => {
                *serial += 1;
                let mut bytes = Vec::new();
                let mut rest = u32::from(*len);
                while rest >= 0x80 || bytes.len() + 1 < usize::from((*header_len).min(10)) {
                    bytes.push(rest as u8 | 0x80);
                    rest >>= 7;
                }
                bytes.push(rest as u8);
                let pattern = serial.to_le_bytes();
                bytes.extend((0..usize::from(*len)).map(|i| pattern[i % 4] ^ (i / 4) as u8));
                bytes
            }
        }
    }
}
