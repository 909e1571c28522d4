//! The scan in words: a field in a slice costs a load for its tag and one for its value's header.
//!
//! Bytes behind a slice's end read as 0 here, which looks like the end of a varint. Such a field is
//! longer than the rest of the slice and goes to the naive scan, as everything that is not plainly
//! valid does. So this scan only ever accepts, and needs no case for fields that are cut.

use super::naive::{self, Cursor};
use super::{Rules, Scan, Violation};
use crate::word::{HIGH, Header, LOW, load};

/// Same contract as [`super::scan`].
///
/// # Safety
/// The processor has the instructions of `H`.
#[inline(always)]
pub(crate) unsafe fn scan<H: Header>(slices: &[&[u8]], rules: &Rules) -> Result<Scan, Violation> {
    let mut cursor = Cursor::new(slices);
    let mut fields = 0;
    while !cursor.at_end() {
        // SAFETY: the caller's promise.
        let (plain, bytes) = unsafe { slice::<H>(cursor.current(), rules) };
        fields += plain;
        let whole_slice = bytes == cursor.current().len();
        cursor.skip_here(bytes);
        if !whole_slice {
            naive::field(&mut cursor, rules)?;
            fields += 1;
        }
    }
    Ok(Scan { fields, bytes: cursor.offset_bytes })
}

/// How many whole fields without violation there are at the start of `bytes`, and how long they are
/// together.
///
/// # Safety
/// The processor has the instructions of `H`.
#[inline(always)]
unsafe fn slice<H: Header>(bytes: &[u8], rules: &Rules) -> (usize, usize) {
    if bytes.len() < 8 {
        return (0, 0);
    }
    let (start, len) = (bytes.as_ptr(), bytes.len());
    let last_word = len - 8;
    // The eight bytes at an offset below `len`, 0 behind the end.
    let word_at = |offset: usize| {
        if offset <= last_word {
            // SAFETY: eight bytes are there.
            unsafe { load(start.add(offset)) }
        } else {
            // SAFETY: the last eight bytes.
            unsafe { load(start.add(last_word)) >> (8 * (offset - last_word)) }
        }
    };
    let (mut at, mut fields) = (0, 0);
    while at < len {
        let word = word_at(at);
        let mut number = (word & 0x7f) as usize >> 3;
        let mut header = 1;
        if word & 0x80 != 0 {
            if word & 0x8000 != 0 {
                break;
            }
            number |= ((word >> 8 & 0x7f) as usize) << 4;
            header = 2;
        }
        let wire_type = word as u8 & 7;
        if rules.classes[number] >> wire_type & 1 == 0 || header >= len - at {
            break;
        }
        let behind = word_at(at + header);
        let left = len - at - header;
        let stops = !behind & HIGH;
        let value = match wire_type {
            0 => {
                if stops == 0 {
                    // Nine bytes or ten: the last two are outside of the word.
                    let Some(&[ninth, tenth]) =
                        bytes[at + header..].get(8..10).and_then(|two| two.first_chunk())
                    else {
                        break;
                    };
                    if ninth >= 0x80 && tenth >= 0x80 {
                        break;
                    }
                    9 + usize::from(ninth >= 0x80)
                } else {
                    (stops.trailing_zeros() as usize >> 3) + 1
                }
            }
            1 => 8,
            2 => {
                if behind & 0x80 == 0 {
                    1 + (behind & 0x7f) as usize
                } else {
                    // SAFETY: the caller's promise.
                    let length = unsafe { H::compact(behind, stops.wrapping_sub(1) & LOW) };
                    if stops == 0 || length > rules.max_length_bytes || length > left as u64 {
                        break;
                    }
                    (stops.trailing_zeros() as usize >> 3) + 1 + length as usize
                }
            }
            _ => 4,
        };
        if value > left {
            break;
        }
        fields += 1;
        at += header + value;
    }
    (fields, at)
}
