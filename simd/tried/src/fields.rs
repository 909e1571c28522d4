//! Fields without a branch on the tag's length and the wire type: both varints by their stops, the value's length by tables.

use crate::word::{Groups, HIGH, load};
use watershed_simd::bench::{Table, scan_slices, table};
use watershed_simd::decode::varint;
use watershed_simd::fields::{Rules, Scan, Violation};

/// By wire type: whether the value begins with a varint, whether that is a length, and bytes besides.
const HAS_VARINT: [u64; 8] = [!0, 0, !0, 0, 0, 0, 0, 0];
const HAS_LENGTH: [u64; 8] = [0, 0, !0, 0, 0, 0, 0, 0];
const FIXED_BYTES: [u64; 8] = [0, 8, 0, 0, 0, 4, 0, 0];

/// Tag, varint and what is read behind them.
const ROOM_BYTES: usize = 16;

pub(crate) fn scan<G: Groups>(slices: &[&[u8]], rules: &Rules) -> Result<Scan, Violation> {
    let table = table(rules);
    // SAFETY: `scan` is given out where the processor has the instructions.
    scan_slices(slices, rules, |bytes| unsafe { G::enabled(|| plain_fields::<G>(bytes, &table)) })
}

/// How many whole fields without violation there are at the start, and how long they are together.
///
/// # Safety
/// The processor has the instructions of `G`.
#[inline(always)]
unsafe fn plain_fields<G: Groups>(bytes: &[u8], table: &Table<'_>) -> (usize, usize) {
    let (mut at, mut fields) = (0, 0);
    while at < bytes.len() {
        let left = bytes.len() - at;
        let field = if left < ROOM_BYTES {
            short_field(&bytes[at..], table)
        } else {
            // SAFETY: 16 bytes are readable; the processor has the instructions.
            unsafe { field::<G>(bytes.as_ptr().add(at), left, table) }
        };
        let Some(len) = field else { break };
        at += len;
        fields += 1;
    }
    (fields, at)
}

/// The length of a plain field, `None` if it is not plain.
///
/// # Safety
/// `ROOM_BYTES` are readable at `at`, and the processor has the instructions of `G`.
#[inline(always)]
unsafe fn field<G: Groups>(at: *const u8, left: usize, table: &Table<'_>) -> Option<usize> {
    // SAFETY: the caller's promise: a tag has at most 8 bytes here, so both words are within the 16.
    let (tag, tag_bytes, tag_stops, value, value_bytes, value_stops) = unsafe {
        let word = load(at);
        let stops = !word & HIGH;
        let tag = G::together(word, stops.wrapping_sub(1));
        let tag_bytes = (stops.trailing_zeros() as usize >> 3) + 1;
        let behind = load(at.add(tag_bytes.min(8)));
        let value_stops = !behind & HIGH;
        let value = G::together(behind, value_stops.wrapping_sub(1));
        (tag, tag_bytes, stops, value, (value_stops.trailing_zeros() as u64 >> 3) + 1, value_stops)
    };
    let wire_type = tag as usize & 7;
    let class = table.classes.get((tag >> 3) as usize).copied().unwrap_or(0);
    let length = value & HAS_LENGTH[wire_type];
    let is_plain = tag_stops != 0
        && (value_stops | !HAS_VARINT[wire_type]) != 0
        && class >> wire_type & 1 != 0
        && length <= table.max_length_bytes;
    let len = tag_bytes as u64 + (value_bytes & HAS_VARINT[wire_type]) + FIXED_BYTES[wire_type];
    let len = len.saturating_add(length);
    (is_plain && len <= left as u64).then_some(len as usize)
}

/// The same near the end of a slice, or for what a word does not hold.
pub(crate) fn short_field(bytes: &[u8], table: &Table<'_>) -> Option<usize> {
    let (tag, tag_bytes) = varint(bytes).ok()?;
    let wire_type = tag as usize & 7;
    let class = *table.classes.get(usize::try_from(tag >> 3).ok()?)?;
    if class >> wire_type & 1 == 0 {
        return None;
    }
    let mut len = tag_bytes as u64 + FIXED_BYTES[wire_type];
    if HAS_VARINT[wire_type] != 0 {
        let (value, value_bytes) = varint(&bytes[tag_bytes..]).ok()?;
        let length = value & HAS_LENGTH[wire_type];
        if length > table.max_length_bytes {
            return None;
        }
        len = (len + value_bytes as u64).saturating_add(length);
    }
    (len <= bytes.len() as u64).then_some(len as usize)
}
