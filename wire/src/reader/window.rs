//! The part of a stream of packets that is in memory.
//!
//! ```text
//!   buffer:  | given out | a packet, perhaps not yet whole | spare |
//!            0         begin                              end     len
//! ```
//!
//! Invariant: `begin <= end <= buffer.len()`.

use std::ops::Range;

use prost::encoding::decode_varint;

use super::{DamageKind, Limits};
use crate::framing::PACKET_KEY;

/// What is lent at least; also what is asked of a decompressor at once.
const SPARE_SIZE_BYTES_MIN: usize = 64 << 10;

/// Key of a packet and a size of up to 10 bytes.
const PREAMBLE_SIZE_BYTES_MAX: usize = 11;

#[derive(Debug, Default)]
pub(super) struct Window {
    buffer: Vec<u8>,
    begin: usize,
    end: usize,
    /// Place of `begin` in the stream.
    offset_bytes: u64,
}

impl Window {
    pub(super) fn spare(&mut self) -> &mut [u8] {
        if self.buffer.len() - self.end < SPARE_SIZE_BYTES_MIN {
            self.buffer.copy_within(self.begin..self.end, 0);
            self.end -= self.begin;
            self.begin = 0;
            let wanted = self.end + SPARE_SIZE_BYTES_MIN;
            if self.buffer.len() < wanted {
                // Doubling keeps the cost of a large packet linear; a size that a preamble only
                // claims is never allocated.
                self.buffer.resize(wanted.max(self.end * 2), 0);
            }
        }
        &mut self.buffer[self.end..]
    }

    pub(super) fn received(&mut self, size_bytes: usize) {
        self.end = self.end.saturating_add(size_bytes).min(self.buffer.len());
    }

    /// Where the next packet begins in the stream.
    pub(super) fn offset_bytes(&self) -> u64 {
        self.offset_bytes
    }

    /// The bytes of a packet; valid until more is lent.
    pub(super) fn bytes(&self, range: Range<usize>) -> &[u8] {
        &self.buffer[range]
    }

    /// Takes the next packet, if it is whole.
    pub(super) fn pop(&mut self, limits: Limits) -> Result<Option<Range<usize>>, DamageKind> {
        let Some((preamble_size_bytes, size_bytes)) = self.preamble()? else {
            return Ok(None);
        };
        if size_bytes > limits.packet_size_bytes_max {
            return Err(DamageKind::PacketTooLarge {
                size_bytes,
                size_bytes_max: limits.packet_size_bytes_max,
            });
        }
        let begin = self.begin + preamble_size_bytes;
        if size_bytes > (self.end - begin) as u64 {
            return Ok(None);
        }
        let end = begin + size_bytes as usize;
        self.offset_bytes += (end - self.begin) as u64;
        self.begin = end;
        Ok(Some(begin..end))
    }

    /// What is wrong if nothing follows; `None` if nothing is.
    pub(super) fn cut_short(&self) -> Option<DamageKind> {
        match self.preamble() {
            Err(kind) => Some(kind),
            Ok(None) if self.begin == self.end => None,
            Ok(None) => Some(DamageKind::PreambleCutShort),
            Ok(Some((preamble_size_bytes, size_bytes))) => Some(DamageKind::PacketCutShort {
                size_bytes,
                size_bytes_present: (self.end - self.begin - preamble_size_bytes) as u64,
            }),
        }
    }

    /// Size of the preamble at `begin`, and the size of the packet behind it; `None` if it is not
    /// all there.
    fn preamble(&self) -> Result<Option<(usize, u64)>, DamageKind> {
        let all = &self.buffer[self.begin..self.end];
        let Some((&key, mut rest)) = all.split_first() else {
            return Ok(None);
        };
        if key != PACKET_KEY {
            return Err(DamageKind::NoPacket { found: key });
        }
        match decode_varint(&mut rest) {
            Ok(size_bytes) => Ok(Some((all.len() - rest.len(), size_bytes))),
            Err(_) if all.len() >= PREAMBLE_SIZE_BYTES_MAX => Err(DamageKind::SizeMalformed),
            Err(_) => Ok(None),
        }
    }
}
