//! Compressed parts of a trace: packets that hold packets.
//!
//! ```text
//!   packet packet packet ...  (about 1 MiB, as they lie in a file)
//!   └──────── codec ───────┘
//!   packet { compressed_packets: ... }      field 50: one zlib stream, 133: one zstd frame
//! ```
//!
//! Source of the format: spec, service 6.9. The wrapper has no other fields. Each can be read by
//! itself, so a file that ends early is readable up to its last whole wrapper.

use std::io::{IoSlice, Write as _};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use prost::encoding::{WireType, encode_key, encode_varint, encoded_len_varint, key_len};
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::trace_config::CompressionType;

/// Packets that are compressed together, unless one of them is larger.
const BATCH_BYTES: usize = 1 << 20;
/// Field `Trace.packet`.
const PACKET: u32 = 1;
/// What other services of this format use.
const DEFLATE_LEVEL: u32 = 6;

/// The level of zstd that there is; lower ones are faster ways to nearly the same size.
const ZSTD_LEVEL_MAX: i32 = 1;

/// How a trace is compressed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Codec {
    Deflate,
    /// At one level: the fastest, [`ZSTD_LEVEL_MAX`].
    #[cfg(feature = "zstd")]
    Zstd,
}

impl Codec {
    /// What the config asks for; `None` also for what this service does not have.
    pub(crate) fn of(message: &TraceConfig) -> Option<Codec> {
        match &message.compression {
            #[cfg(feature = "zstd")]
            Some(compression) if compression.zstd.is_some() => Some(Codec::Zstd),
            Some(compression) if compression.zstd.is_none() && compression.deflate.is_some() => {
                Some(Codec::Deflate)
            }
            Some(_) => None,
            None => (message.compression_type() == CompressionType::Deflate).then_some(Codec::Deflate),
        }
    }

    /// Whether the config asks for any.
    pub(crate) fn is_wanted(message: &TraceConfig) -> bool {
        message.compression.is_some() || message.compression_type.unwrap_or(0) != 0
    }

    /// Whether the config asks for a level that there is not.
    pub(crate) fn ignores_level(self, message: &TraceConfig) -> bool {
        let zstd = message.compression.as_ref().and_then(|compression| compression.zstd.as_ref());
        self != Codec::Deflate && zstd.is_some_and(|zstd| zstd.level() > ZSTD_LEVEL_MAX)
    }

    fn field(self) -> u32 {
        match self {
            Codec::Deflate => 50,
            #[cfg(feature = "zstd")]
            Codec::Zstd => 133,
        }
    }

    fn compress(self, input: &[u8]) -> Vec<u8> {
        match self {
            Codec::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::new(DEFLATE_LEVEL));
                let written = encoder.write_all(input).and_then(|()| encoder.finish());
                written.expect("writing into memory does not fail")
            }
            #[cfg(feature = "zstd")]
            Codec::Zstd => {
                ruzstd::encoding::compress_to_vec(input, ruzstd::encoding::CompressionLevel::Fastest)
            }
        }
    }
}

/// Collects packets and compresses them in batches.
#[derive(Debug)]
pub(crate) struct Packer {
    codec: Codec,
    batch: Vec<u8>,
    /// How many bytes have come out.
    pub(crate) packed_bytes: u64,
}

impl Packer {
    pub(crate) fn new(codec: Codec) -> Packer {
        Packer { codec, batch: Vec::new(), packed_bytes: 0 }
    }

    /// How many bytes of packets have room where `room_bytes` are left, however badly they
    /// compress.
    pub(crate) fn input_room_bytes(room_bytes: u64) -> u64 {
        // Wrapper and block headers: less than one byte in a thousand, and a little.
        room_bytes.saturating_sub(room_bytes / 1000 + 64)
    }

    /// Takes slices of whole packets, and hands on what is full.
    pub(crate) fn add(
        &mut self,
        slices: &[IoSlice<'_>],
        out: &mut dyn FnMut(&[IoSlice<'_>]) -> Result<(), String>,
    ) -> Result<(), String> {
        for slice in slices {
            if self.batch.len() + slice.len() > BATCH_BYTES {
                self.finish(out)?;
            }
            self.batch.extend_from_slice(slice);
        }
        Ok(())
    }

    /// Hands on what is left.
    pub(crate) fn finish(
        &mut self,
        out: &mut dyn FnMut(&[IoSlice<'_>]) -> Result<(), String>,
    ) -> Result<(), String> {
        if self.batch.is_empty() {
            return Ok(());
        }
        let content = self.codec.compress(&self.batch);
        self.batch.clear();
        let field = self.codec.field();
        let packet_bytes = key_len(field) + encoded_len_varint(content.len() as u64) + content.len();
        let mut head = Vec::new();
        encode_key(PACKET, WireType::LengthDelimited, &mut head);
        encode_varint(packet_bytes as u64, &mut head);
        encode_key(field, WireType::LengthDelimited, &mut head);
        encode_varint(content.len() as u64, &mut head);
        head.extend_from_slice(&content);
        self.packed_bytes += head.len() as u64;
        out(&[IoSlice::new(&head)])
    }
}
