//! Fields in windows of 64 bytes, AVX-512: for every byte the length of the field that would begin there, then a hop from note to note.
//!
//! ```text
//!   bytes   40 07 | 5a 05 a b c d e | 40 ...
//!   notes    2       7                2         1 + what the wire type and the byte behind it say; 0: look at it by itself
//! ```
//!
//! Noted are tags of one byte, varints of up to eight and lengths below 128 (where the rules allow all of these). The notes of the last bytes need bytes behind the window, so
//! the first 48 count.

use crate::fields::short_field;
use std::arch::x86_64::*;
use watershed_simd::bench::{Table, scan_slices, table};
use watershed_simd::fields::{Rules, Scan, Violation};

const WINDOW_BYTES: usize = 64;
const NOTED_BYTES: usize = 48;

pub(crate) fn are_here() -> bool {
    watershed_simd::Level::Avx512.is_available()
}

pub(crate) fn scan(slices: &[&[u8]], rules: &Rules) -> Result<Scan, Violation> {
    let table = table(rules);
    // SAFETY: `scan` is given out where the processor has the level.
    scan_slices(slices, rules, |bytes| unsafe { plain_fields(bytes, &table) })
}

/// How many whole fields without violation there are at the start, and how long they are together.
///
/// # Safety
/// The processor has the level.
#[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx2,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vpopcntdq")]
unsafe fn plain_fields(bytes: &[u8], table: &Table<'_>) -> (usize, usize) {
    let (mut at, mut fields) = (0, 0);
    let mut notes = [0; WINDOW_BYTES];
    while bytes.len() - at >= WINDOW_BYTES {
        // SAFETY: a window is readable and the notes are one.
        unsafe { note(bytes.as_ptr().add(at), table, &mut notes) };
        let window = at;
        while at - window < NOTED_BYTES {
            let noted = usize::from(notes[at - window]);
            let field = if noted == 0 { short_field(&bytes[at..], table) } else { Some(noted) };
            match field {
                Some(len) if len <= bytes.len() - at => at += len,
                _ => return (fields, at),
            }
            fields += 1;
        }
    }
    while let Some(len) =
        bytes.get(at..).filter(|rest| !rest.is_empty()).and_then(|rest| short_field(rest, table))
    {
        at += len;
        fields += 1;
    }
    (fields, at)
}

/// # Safety
/// A window is readable at `from`, and the processor has the level.
#[inline]
#[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx2,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vpopcntdq")]
unsafe fn note(from: *const u8, table: &Table<'_>, notes: &mut [u8; WINDOW_BYTES]) {
    const BIT_OF_WIRE_TYPE: [u8; 16] = [1, 2, 4, 0, 0, 32, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    const FIXED_BYTES: [u8; 16] = [0, 9, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    // SAFETY: the caller's window; 16 bytes of each table; the processor has the level.
    unsafe {
        let quarter = |table: *const u8| _mm512_broadcast_i32x4(_mm_loadu_si128(table.cast()));
        let all = |byte: i8| _mm512_set1_epi8(byte);
        let bytes = _mm512_loadu_si512(from.cast());
        let wire_type = _mm512_and_si512(bytes, all(7));
        let number = _mm512_and_si512(_mm512_srli_epi16::<3>(bytes), all(15));
        let class = _mm512_shuffle_epi8(quarter(table.classes.as_ptr()), number);
        let bit = _mm512_shuffle_epi8(quarter(BIT_OF_WIRE_TYPE.as_ptr()), wire_type);
        let is_allowed = _mm512_test_epi8_mask(class, bit) & !_mm512_movepi8_mask(bytes);
        // The bytes behind each, and how many of them in a row say that more follow.
        let places = _mm512_loadu_si512(PLACES.0.as_ptr().cast());
        let ahead = |v, by: i8| _mm512_permutexvar_epi8(_mm512_add_epi8(places, all(by)), v);
        let second = ahead(bytes, 1);
        let mut run = _mm512_maskz_mov_epi8(_mm512_movepi8_mask(second), all(1));
        for reach in [1, 2, 4] {
            let is_full = _mm512_cmpeq_epi8_mask(run, all(reach));
            run = _mm512_mask_add_epi8(run, is_full, run, ahead(run, reach));
        }
        let ends = _mm512_cmplt_epu8_mask(run, all(8));
        let is_varint = _mm512_cmpeq_epi8_mask(wire_type, all(0));
        let is_length = _mm512_cmpeq_epi8_mask(wire_type, all(2));
        let is_short = if table.max_length_bytes < 127 { 0 } else { !_mm512_movepi8_mask(second) };
        let fixed = _mm512_shuffle_epi8(quarter(FIXED_BYTES.as_ptr()), wire_type);
        let len = _mm512_mask_add_epi8(fixed, is_varint, run, all(2));
        let len = _mm512_mask_add_epi8(len, is_length, second, all(2));
        let is_noted = is_allowed & (!is_varint | ends) & (!is_length | is_short);
        _mm512_storeu_si512(notes.as_mut_ptr().cast(), _mm512_maskz_mov_epi8(is_noted, len));
    }
}

#[repr(align(64))]
struct Places([u8; WINDOW_BYTES]);

static PLACES: Places = {
    let mut places = [0; WINDOW_BYTES];
    let mut i = 0;
    while i < WINDOW_BYTES {
        places[i] = i as u8;
        i += 1;
    }
    Places(places)
};
