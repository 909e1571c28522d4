//! How a packet lies in a trace file, and the way there that costs little.
//!
//! ```text
//!   0x0a | size (varint) | the packet's slices, as the producer wrote them | the stamp
//! ```
//!
//! A trace file is a sequence of these: field 1 of a `Trace` message, repeated. A stamp has fields
//! that only the service may set. It comes last, so that it wins over what a producer has written.

use watershed_simd::copy::copy_raw;
use watershed_simd::prefetch;

/// Field 1 of `Trace`, length-delimited.
const PACKET_TAG: u8 = 0x0a;

/// Tag and the longest size.
pub const PREAMBLE_BYTES_MAX: usize = 11;

/// The most room that [`put_packet`] wants beside the slices: where a block has it, it is not made
/// larger.
pub const FRAME_BYTES_MAX: usize = PREAMBLE_BYTES_MAX + 2 * Stamp::BYTES_MAX;

/// A few encoded fields, kept so that appending them to a packet is one copy of fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stamp {
    /// Only the first `size_bytes` mean anything, the others are 0.
    bytes: [u8; Stamp::BYTES_MAX],
    /// `0 <= size_bytes <= BYTES_MAX`
    size_bytes: u8,
}

impl Stamp {
    /// The most bytes that a stamp has.
    pub const BYTES_MAX: usize = 48;
    /// What nearly every stamp fits: uid, sequence id and pid of usual sizes.
    const SHORT_BYTES: usize = 16;

    /// Nothing to append.
    pub const EMPTY: Stamp = Stamp { bytes: [0; Stamp::BYTES_MAX], size_bytes: 0 };

    /// A stamp of encoded fields.
    ///
    /// # Panics
    /// If the fields are longer than [`Stamp::BYTES_MAX`].
    pub fn of(fields: &[u8]) -> Stamp {
        let mut stamp = Stamp::EMPTY;
        stamp.bytes[..fields.len()].copy_from_slice(fields);
        stamp.size_bytes = fields.len() as u8;
        stamp
    }

    /// The encoded fields.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.size_bytes()]
    }

    /// Bytes of the fields.
    #[inline]
    pub fn size_bytes(&self) -> usize {
        usize::from(self.size_bytes)
    }
}

const _: () = assert!(Stamp::BYTES_MAX <= u8::MAX as usize && Stamp::SHORT_BYTES <= Stamp::BYTES_MAX);

/// Appends a packet as it lies in a file: its slices, then the stamp.
#[inline]
pub fn put_packet(block: &mut Vec<u8>, slices: &[&[u8]], stamp: &Stamp) {
    let body_bytes = slices.iter().map(|slice| slice.len()).sum::<usize>() + stamp.size_bytes();
    // More than it takes: the stamp is written at its full size and cut off.
    block.reserve(PREAMBLE_BYTES_MAX + body_bytes + Stamp::BYTES_MAX);
    let begin = block.len();
    // SAFETY: the room for preamble, slices and the longest stamp was just made, in memory that
    // nothing else refers to; slices cannot lie in it. What lies before the new length was written.
    unsafe {
        let start = block.as_mut_ptr().add(begin);
        let mut at = start.add(put_preamble(start, body_bytes));
        for slice in slices {
            ask_ahead(slice, at);
            copy_raw(slice.as_ptr(), at, slice.len());
            at = at.add(slice.len());
        }
        if stamp.size_bytes() <= Stamp::SHORT_BYTES {
            at.cast::<[u8; Stamp::SHORT_BYTES]>().write(*stamp.bytes.first_chunk().expect("it is longer"));
        } else {
            at.cast::<[u8; Stamp::BYTES_MAX]>().write(stamp.bytes);
        }
        debug_assert!(begin + at.offset_from_unsigned(start) + Stamp::BYTES_MAX <= block.capacity());
        block.set_len(begin + at.offset_from_unsigned(start) + stamp.size_bytes());
    }
}

/// Asks for what will be read and written about a thousand bytes later: packets lie in the ring
/// behind each other, as they do in a block, and each is too short for the processor to see that by
/// itself.
#[inline]
fn ask_ahead(slice: &[u8], to: *const u8) {
    /// What the memory delivers while so much is validated and copied.
    const AHEAD_BYTES: usize = 1536;
    for line in (AHEAD_BYTES..AHEAD_BYTES + slice.len()).step_by(prefetch::LINE_BYTES) {
        prefetch::for_read(slice.as_ptr().wrapping_add(line));
        prefetch::for_write(to.wrapping_add(line));
    }
}

/// Writes tag and size of a packet and returns how many bytes these are. Nearly all sizes take one
/// byte or two: one store.
///
/// # Safety
/// `to` must be writable for [`PREAMBLE_BYTES_MAX`] bytes.
#[inline]
unsafe fn put_preamble(to: *mut u8, body_bytes: usize) -> usize {
    let (bytes, len) = if body_bytes < 1 << 7 {
        ([PACKET_TAG, body_bytes as u8, 0, 0], 2)
    } else if body_bytes < 1 << 14 {
        ([PACKET_TAG, body_bytes as u8 | 0x80, (body_bytes >> 7) as u8, 0], 3)
    } else {
        // SAFETY: the caller's promise.
        return unsafe { put_long_preamble(to, body_bytes) };
    };
    // SAFETY: the caller's promise.
    unsafe { to.cast::<[u8; 4]>().write(bytes) }
    len
}

/// As [`put_preamble`].
///
/// # Safety
/// As there.
#[cold]
unsafe fn put_long_preamble(to: *mut u8, mut body_bytes: usize) -> usize {
    let mut bytes = [PACKET_TAG; PREAMBLE_BYTES_MAX];
    let mut len = 1;
    while body_bytes >= 0x80 {
        bytes[len] = body_bytes as u8 | 0x80;
        body_bytes >>= 7;
        len += 1;
    }
    bytes[len] = body_bytes as u8;
    // SAFETY: the caller's promise.
    unsafe { to.cast::<[u8; PREAMBLE_BYTES_MAX]>().write(bytes) }
    len + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same, byte by byte.
    fn framed(slices: &[&[u8]], stamp: &[u8]) -> Vec<u8> {
        let body = [slices.concat(), stamp.to_vec()].concat();
        let (mut framed, mut size) = (vec![0x0a], body.len());
        while size >= 0x80 {
            framed.push(size as u8 | 0x80);
            size >>= 7;
        }
        framed.push(size as u8);
        [framed, body].concat()
    }

    #[test]
    fn packets_lie_behind_each_other_as_a_file_has_them() {
        let bytes: Vec<u8> = (0..3_000_000_u32).map(|at| (at % 253) as u8).collect();
        let (mut block, mut expected) = (vec![0xee; 3], vec![0xee; 3]);
        for size in (0..300).chain([4000, 16_383 - 20, 16_384, 2_097_152 + 5]) {
            for stamp_bytes in [0, 1, 15, 16, 17, 33, Stamp::BYTES_MAX] {
                let (one, two) = bytes[..size].split_at(size / 3);
                let slices: [&[u8]; 3] = [one, &[], two];
                let fields = &bytes[7..7 + stamp_bytes];
                put_packet(&mut block, &slices, &Stamp::of(fields));
                expected.extend(framed(&slices, fields));
                assert!(block == expected, "{size} bytes, a stamp of {stamp_bytes}");
                block.truncate(3);
                expected.truncate(3);
            }
        }
        put_packet(&mut block, &[b"ab"], &Stamp::EMPTY);
        put_packet(&mut block, &[], &Stamp::of(b"c"));
        assert_eq!(block[3..], *b"\x0a\x02ab\x0a\x01c");
    }

    #[test]
    fn every_size_has_its_preamble() {
        for (size, preamble) in [
            (0, &[10, 0][..]),
            (127, &[10, 127]),
            (128, &[10, 0x80, 1]),
            (16_383, &[10, 0xff, 0x7f]),
            (16_384, &[10, 0x80, 0x80, 1]),
            (300_000_000, &[10, 0x80, 0xc6, 0x86, 0x8f, 1]),
            #[cfg(target_pointer_width = "64")]
            (usize::MAX, &[10, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]),
        ] {
            let mut bytes = [0xee; PREAMBLE_BYTES_MAX];
            // SAFETY: there is room for the longest.
            let len = unsafe { put_preamble(bytes.as_mut_ptr(), size) };
            assert_eq!(bytes[..len], *preamble, "{size}");
        }
    }

    #[test]
    #[should_panic(expected = "range end index 49")]
    fn a_longer_stamp_is_refused() {
        Stamp::of(&[0; Stamp::BYTES_MAX + 1]);
    }
}
