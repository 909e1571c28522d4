//! Values of a record's bytes. Callers have checked that the record is as long as its format says.

/// A number of 1, 2, 4 or 8 bytes; 0 of any other size.
#[inline]
pub(super) fn unsigned(bytes: &[u8], size: usize) -> u64 {
    match (size, bytes) {
        (1, [a, ..]) => u64::from(*a),
        (2, [a, b, ..]) => u64::from(u16::from_le_bytes([*a, *b])),
        (4, [a, b, c, d, ..]) => u64::from(u32::from_le_bytes([*a, *b, *c, *d])),
        (8, [a, b, c, d, e, f, g, h, ..]) => u64::from_le_bytes([*a, *b, *c, *d, *e, *f, *g, *h]),
        _ => 0,
    }
}

/// The same, with the highest bit as sign.
#[inline]
pub(super) fn signed(bytes: &[u8], size: usize) -> i64 {
    let value = unsigned(bytes, size);
    match size {
        1 => i64::from(value as i8),
        2 => i64::from(value as i16),
        4 => i64::from(value as i32),
        _ => value as i64,
    }
}

/// The bytes at `offset`, zeros where the record does not have them.
#[inline]
pub(super) fn array<const N: usize>(record: &[u8], offset: usize) -> [u8; N] {
    record.get(offset..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or([0; N])
}

/// A number of 4 bytes at `offset`, such as a thread id.
#[inline]
pub(super) fn int(record: &[u8], offset: usize) -> i32 {
    i32::from_le_bytes(array(record, offset))
}

/// Up to the first NUL.
#[inline]
pub(super) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.iter().position(|&b| b == 0).map_or(bytes, |end| &bytes[..end])
}

/// A kernel's device number in the layout that programs have.
pub(super) fn user_device(device: u64) -> u64 {
    let (major, minor) = (device >> 20, device & 0xF_FFFF);
    (major & 0xFFFF_F000) << 32 | (major & 0xFFF) << 8 | (minor & 0xFFFF_FF00) << 12 | minor & 0xFF
}

/// What a field of variable size points to: at `offset` lies a u32, its low half an offset from
/// `base`, its high half a length. `None` if that is outside of the record.
pub(super) fn located(record: &[u8], offset: usize, base: usize) -> Option<&[u8]> {
    let loc = unsigned(record.get(offset..)?, 4) as usize;
    let (start, size) = (base + (loc & 0xFFFF), loc >> 16);
    if size == 0 {
        return Some(&[]);
    }
    record.get(start..start + size)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_each_size() {
        let bytes = [0xFF, 0xFE, 0xFD, 0xFC, 0xFB, 0xFA, 0xF9, 0xF8];
        assert_eq!(
            [1, 2, 4, 8].map(|size| signed(&bytes, size)),
            [-1, -257, -0x0302_0101, -0x0706_0504_0302_0101]
        );
        assert_eq!(unsigned(&bytes, 4), 0xFCFD_FEFF);
        assert_eq!(unsigned(&bytes[..3], 4), 0, "too short");
        assert_eq!(unsigned(&bytes, 3), 0, "no such size");
    }

    #[test]
    fn devices_and_places() {
        assert_eq!(user_device(8 << 20 | 1), 0x801);
        assert_eq!(user_device(0x1234 << 20 | 0x12345), (0x1000 << 32) | 0x2_3400 | (0x1_2300 << 12) | 0x45);
        let mut record = vec![0; 16];
        record[4..8].copy_from_slice(&(3_u32 << 16 | 12).to_le_bytes());
        record[12..15].copy_from_slice(b"abc");
        assert_eq!(located(&record, 4, 0), Some(&b"abc"[..]));
        record[4..8].copy_from_slice(&(3_u32 << 16 | 4).to_le_bytes());
        assert_eq!(located(&record, 4, 8), Some(&b"abc"[..]), "relative");
        assert_eq!(located(&record, 4, 12), None, "outside");
        record[4..8].copy_from_slice(&0xFFFF_u32.to_le_bytes());
        assert_eq!(located(&record, 4, 0), Some(&[][..]), "empty is nowhere");
    }
}
