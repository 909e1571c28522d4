//! Many chunks in lockstep, AVX-512: eight lanes with addresses of 64 bits, a gather of eight words, the spans scattered.

use crate::Piece;
use std::arch::x86_64::*;

const LANES: usize = 8;

pub(crate) fn are_here() -> bool {
    watershed_simd::Level::Avx512.is_available()
}

pub(crate) fn walk(pieces: &mut [Piece<'_>]) {
    let mut chunks = pieces.chunks_mut(2 * LANES);
    for chunk in &mut chunks {
        if chunk.len() == 2 * LANES && chunk.iter().all(|piece| piece.bytes.len() >= 8) {
            // SAFETY: `walk` is given out where the processor has the level; the chunks have eight bytes or more.
            unsafe { sixteen(chunk) }
        } else {
            chunk.iter_mut().for_each(|piece| piece.finish(0, 0));
        }
    }
}

/// Two groups of lanes.
///
/// # Safety
/// The processor has the level, and each of the 16 chunks has at least eight bytes.
#[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx2,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vpopcntdq")]
unsafe fn sixteen(pieces: &mut [Piece<'_>]) {
    let column = |group: usize, of: &dyn Fn(&mut Piece<'_>) -> u64, pieces: &mut [Piece<'_>]| {
        let mut numbers = [0u64; LANES];
        for (number, piece) in numbers.iter_mut().zip(&mut pieces[group * LANES..]) {
            *number = of(piece);
        }
        // SAFETY: an array of as many.
        unsafe { _mm512_loadu_si512(numbers.as_ptr().cast()) }
    };
    let start: [__m512i; 2] = std::array::from_fn(|g| column(g, &|p| p.bytes.as_ptr() as u64, pieces));
    let last: [__m512i; 2] =
        std::array::from_fn(|g| column(g, &|p| p.bytes.as_ptr() as u64 + p.bytes.len() as u64 - 8, pieces));
    let first_out: [__m512i; 2] =
        std::array::from_fn(|g| column(g, &|p| p.spans.as_mut_ptr() as u64, pieces));
    let last_out: [__m512i; 2] =
        std::array::from_fn(|g| column(g, &|p| p.spans.as_mut_ptr() as u64 + 4 * p.limit as u64, pieces));
    let (mut at, mut out) = (start, first_out);
    let mut alive: [__mmask8; 2] = [!0; 2];
    while alive[0] | alive[1] != 0 {
        for g in 0..2 {
            // SAFETY: lanes that are alive stand at most at `last`, where eight bytes are readable, and those that are not where they
            // ended, which is so too; spans are written in front of `last_out` only.
            unsafe { step(&mut at[g], &mut out[g], &mut alive[g], last[g], last_out[g]) }
        }
    }
    for g in 0..2 {
        let (mut bytes, mut spans) = ([0u64; LANES], [0u64; LANES]);
        // SAFETY: arrays of as many.
        unsafe {
            _mm512_storeu_si512(bytes.as_mut_ptr().cast(), _mm512_sub_epi64(at[g], start[g]));
            _mm512_storeu_si512(spans.as_mut_ptr().cast(), _mm512_sub_epi64(out[g], first_out[g]));
        }
        for (i, piece) in pieces[g * LANES..][..LANES].iter_mut().enumerate() {
            piece.finish(spans[i] as usize / 4, bytes[i] as usize);
        }
    }
}

/// One fragment of each lane that is alive.
///
/// # Safety
/// The processor has the level; eight bytes are readable at `at` of each lane, and where `out` is below `last_out` a span is writable.
#[inline]
#[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx2,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vpopcntdq")]
unsafe fn step(at: &mut __m512i, out: &mut __m512i, alive: &mut __mmask8, last: __m512i, last_out: __m512i) {
    // SAFETY: the caller's promise.
    unsafe {
        let word = _mm512_i64gather_epi64::<1>(*at, std::ptr::null());
        let stops = _mm512_andnot_si512(word, _mm512_set1_epi64(0x8080_8080_8080_8080_u64 as i64));
        let below = _mm512_sub_epi64(stops, _mm512_set1_epi64(1));
        let groups = _mm512_and_si512(_mm512_and_si512(word, below), _mm512_set1_epi64(0x7f7f_7f7f));
        let pick = |bits: i64, a, b| _mm512_ternarylogic_epi64::<0xca>(_mm512_set1_epi64(bits), a, b);
        let pairs = pick(0x007f_007f, groups, _mm512_srli_epi64::<1>(groups));
        let body = pick(0x3fff, pairs, _mm512_srli_epi64::<2>(pairs));
        let header = _mm512_srli_epi64::<3>(_mm512_popcnt_epi64(_mm512_xor_si512(stops, below)));
        let total = _mm512_add_epi64(header, body);
        let next = _mm512_add_epi64(*at, total);
        // Headers of up to four bytes; longer ones, and what does not fit, are for the naive walk.
        let short = _mm512_mask_test_epi64_mask(*alive, stops, _mm512_set1_epi64(0x8080_8080));
        let fits = _mm512_mask_cmple_epu64_mask(short, next, last);
        let good = _mm512_mask_cmplt_epu64_mask(fits, *out, last_out);
        let spans = _mm512_or_si512(total, _mm512_slli_epi64::<28>(header));
        _mm512_mask_i64scatter_epi32::<1>(std::ptr::null_mut(), good, *out, _mm512_cvtepi64_epi32(spans));
        *at = _mm512_mask_mov_epi64(*at, good, next);
        *out = _mm512_mask_add_epi64(*out, good, *out, _mm512_set1_epi64(4));
        *alive = good;
    }
}
