//! What can be wrong with a trace file.

use std::fmt;

/// Where a trace stops being one, and why.
///
/// The first `offset_bytes` bytes of the file are whole: cut there it is an undamaged trace with
/// everything that was given out, except for what came from the damaged packet itself when that one
/// is compressed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Damage {
    /// Place in the file of the first packet that cannot be read.
    pub offset_bytes: u64,
    /// When that packet holds compressed ones: offset, in what was decompressed, of the first that
    /// cannot be read.
    pub offset_inflated_bytes: Option<u64>,
    /// What is wrong with it.
    pub kind: DamageKind,
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "byte {}: ", self.offset_bytes)?;
        if let Some(offset) = self.offset_inflated_bytes {
            write!(f, "in a compressed packet, byte {offset} of its contents: ")?;
        }
        write!(f, "{}", self.kind)
    }
}

/// What is wrong with a trace file.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum DamageKind {
    /// The file ends inside of a packet's preamble.
    #[error("the file ends where the size of a packet should follow")]
    PreambleCutShort,
    /// The file ends inside of a packet.
    #[error(
        "a packet of {size_bytes} bytes of which only {size_bytes_present} are there: the file is cut short"
    )]
    PacketCutShort {
        /// What its preamble says.
        size_bytes: u64,
        /// What is there.
        size_bytes_present: u64,
    },
    /// A byte other than the key of a packet (0x0A) where one should begin.
    #[error("expected a packet (0x0a), found 0x{found:02x}")]
    NoPacket {
        /// The byte.
        found: u8,
    },
    /// A packet's size is no varint.
    #[error("the size of a packet is not a number")]
    SizeMalformed,
    /// A packet above the reader's limit.
    #[error("a packet of {size_bytes} bytes, above the limit of {size_bytes_max}")]
    PacketTooLarge {
        /// What its preamble says.
        size_bytes: u64,
        /// The reader's limit.
        size_bytes_max: u64,
    },
    /// The fields of a packet are malformed.
    #[error("a packet with {0}")]
    PacketMalformed(#[from] crate::raw::Malformed),
    /// Compressed packets that cannot be decompressed.
    #[error("cannot decompress: {0}")]
    Compression(String),
    /// A codec that this build does not have.
    #[error("packets compressed with {0}, which this build cannot read")]
    UnsupportedCompression(&'static str),
    /// Compressed packets inside of compressed packets, which the format forbids.
    #[error("compressed packets inside of compressed packets")]
    NestedCompression,
}
