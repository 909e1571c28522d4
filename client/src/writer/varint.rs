//! The format's varints.

/// Longest encoding of a 64-bit number.
pub(crate) const MAX_VARINT_BYTES: usize = 10;
/// Largest size that four bytes of redundant varint hold, and the size that means "the writer gave
/// up here".
pub(crate) const MAX_SIZE: u64 = (1 << 28) - 1;
/// The size field of a fragment whose packet was dropped: [`MAX_SIZE`] in four bytes.
pub(crate) const DROPPED: [u8; 4] = redundant(MAX_SIZE as u32);

/// Writes `value` to the start of `bytes` and returns how many bytes it took. `bytes` must hold
/// ten.
pub(crate) fn put(bytes: &mut [u8], mut value: u64) -> usize {
    let mut len = 0;
    while value >= 0x80 {
        bytes[len] = value as u8 | 0x80;
        value >>= 7;
        len += 1;
    }
    bytes[len] = value as u8;
    len + 1
}

/// A size in exactly four bytes. `size` must be at most [`MAX_SIZE`].
pub(crate) const fn redundant(size: u32) -> [u8; 4] {
    [
        size as u8 & 0x7F | 0x80,
        (size >> 7) as u8 & 0x7F | 0x80,
        (size >> 14) as u8 & 0x7F | 0x80,
        (size >> 21) as u8 & 0x7F,
    ]
}

const _: () = assert!(matches!(DROPPED, [0xFF, 0xFF, 0xFF, 0x7F]));
