//! The portable walk, without intrinsics.
//!
//! One-byte headers, the commonest and the only ones whose walk is bound by the latency of a load, are taken on a path of
//! their own; everything else is one wide decode or, in the last bytes of the chunk, the naive one.

use super::{DROP_MARKER, MAX_BYTES, Span, Stop, Walk, naive};

/// Same contract as [`super::walk`].
pub fn walk(bytes: &[u8], limit: usize, spans: &mut [Span]) -> Walk {
    let bytes = &bytes[..bytes.len().min(MAX_BYTES)];
    let mut at = 0;
    let mut fragments = 0;
    let stop = 'chunk: {
        for span in spans.iter_mut().take(limit) {
            let Some(&first) = bytes.get(at) else { break 'chunk Stop::End };
            let (value, header_bytes) = if first < 0x80 {
                (u64::from(first), 1)
            } else {
                match naive::header(&bytes[at..]) {
                    Ok(header) => header,
                    Err(stop) => break 'chunk stop,
                }
            };
            if value > (bytes.len() - at - header_bytes) as u64 {
                break 'chunk if value == DROP_MARKER { Stop::DropMarker } else { Stop::OutOfBounds };
            }
            let total_bytes = header_bytes + value as usize;
            *span = Span::pack(header_bytes as u32, total_bytes as u32);
            fragments += 1;
            at += total_bytes;
        }
        Stop::Limit
    };
    Walk { fragments, visible_bytes: at, stop }
}
