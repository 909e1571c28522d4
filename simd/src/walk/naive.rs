//! The oracle: one byte, one test at a time, in the order of the specification. Also the plain loop
//! of the measurements.

use super::{DROP_MARKER, MAX_BYTES, MAX_HEADER_BYTES, Span, Stop, Walk};

/// Same contract as [`super::walk`].
pub fn walk(bytes: &[u8], limit: usize, spans: &mut [Span]) -> Walk {
    let bytes = &bytes[..bytes.len().min(MAX_BYTES)];
    let limit = limit.min(spans.len());
    let mut at = 0;
    let mut fragments = 0;
    let stop = loop {
        if fragments == limit {
            break Stop::Limit;
        }
        if at == bytes.len() {
            break Stop::End;
        }
        let (value, header_bytes) = match header(&bytes[at..]) {
            Ok(header) => header,
            Err(stop) => break stop,
        };
        if value == DROP_MARKER {
            break Stop::DropMarker;
        }
        if value > (bytes.len() - at - header_bytes) as u64 {
            break Stop::OutOfBounds;
        }
        let total_bytes = header_bytes + value as usize;
        spans[fragments] = Span::pack(header_bytes as u32, total_bytes as u32);
        fragments += 1;
        at += total_bytes;
    };
    Walk { fragments, visible_bytes: at, stop }
}

/// The value and the length of the header at the start of `bytes`.
#[inline(always)]
pub(super) fn header(bytes: &[u8]) -> Result<(u64, usize), Stop> {
    let mut value = 0u64;
    for i in 0..MAX_HEADER_BYTES {
        let Some(&byte) = bytes.get(i) else { return Err(Stop::TruncatedHeader) };
        // The tenth byte is shifted by 63, so only its lowest bit counts.
        value |= u64::from(byte & 0x7f) << (7 * i);
        if byte < 0x80 {
            return Ok((value, i + 1));
        }
    }
    Err(Stop::OverlongHeader)
}
