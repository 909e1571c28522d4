//! Packets that hold compressed packets: decompressed a piece at a time.

use std::fmt;
use std::io::{Cursor, ErrorKind, Read};

use super::{DamageKind, ZSTD_COMPRESSED_PACKETS};
use crate::raw::Field;

/// Decompresses what one packet holds.
pub(super) struct Inflater {
    stream: Box<dyn Read + Send + Sync>,
}

impl fmt::Debug for Inflater {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inflater").finish_non_exhaustive()
    }
}

impl Inflater {
    /// Takes a copy of the compressed bytes: the window that they lie in moves on.
    pub(super) fn new(field: Field<'_>) -> Result<Self, DamageKind> {
        let compressed = Cursor::new(field.value.bytes().unwrap_or_default().to_vec());
        let stream = match field.number == ZSTD_COMPRESSED_PACKETS {
            true => zstd(compressed)?,
            false => Box::new(flate2::read::ZlibDecoder::new(compressed)) as _,
        };
        Ok(Inflater { stream })
    }

    /// Fills the beginning of `out` and says how much; 0 at the end.
    pub(super) fn inflate(&mut self, out: &mut [u8]) -> Result<usize, DamageKind> {
        loop {
            match self.stream.read(out) {
                Ok(size_bytes) => return Ok(size_bytes),
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => return Err(DamageKind::Compression(error.to_string())),
            }
        }
    }
}

#[cfg(feature = "zstd")]
fn zstd(compressed: Cursor<Vec<u8>>) -> Result<Box<dyn Read + Send + Sync>, DamageKind> {
    ruzstd::decoding::StreamingDecoder::new(compressed)
        .map(|stream| Box::new(stream) as _)
        .map_err(|error| DamageKind::Compression(error.to_string()))
}

#[cfg(not(feature = "zstd"))]
fn zstd(_compressed: Cursor<Vec<u8>>) -> Result<Box<dyn Read + Send + Sync>, DamageKind> {
    Err(DamageKind::UnsupportedCompression("zstd"))
}
