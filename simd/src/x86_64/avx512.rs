//! AVX-512 with VBMI.
//!
//! - `walk`, one chunk: scalar as on the AVX2 level, and for dense chunks pointer doubling, for which `vpermi2b` looks up 64 bytes in a
//!   table of 128 in one instruction (6 cycles, two of port 5).
//! - `walk`, many chunks: a gather reads 16 headers in 7 cycles; popcount gives the length of all of them, ternary logic pushes the
//!   groups together in four operations, masks freeze lanes without a branch. Two groups, 32 chunks, hide part of the gather's
//!   latency. Dense chunks have a decode of one mask, and their headers stay in registers for sixteen steps; `vpmovzxbd` makes them
//!   spans. Fewer than 14 dense chunks are walked as on the levels below.

use std::arch::x86_64::*;

use super::Bmi2;
use crate::bytes::Bytes;
use crate::copy::copy_in_vectors;
use crate::entries::entry_points;
use crate::walk::blocks::{AnyHeaders, OneByteHeaders};
use crate::walk::lanes::{HeaderLanes, Lanes};
use crate::walk::one::Place;
use crate::walk::pairs::{self, Pairs};
use crate::walk::{self, Job, Span, many, sprint};

entry_points! {
    #[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx2,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vpopcntdq")]
    header: Bmi2, pairs: Vbmi, window: Window
}

copy_in_vectors! {
    "bmi1,bmi2,lzcnt,popcnt,avx2,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vpopcntdq",
    64, "vmovdqu64", "vmovdqa64", "zmm",
    [
        out("zmm0") _, out("zmm1") _, out("zmm2") _, out("zmm3") _,
        out("zmm4") _, out("zmm5") _, out("zmm6") _, out("zmm7") _,
        out("zmm8") _, out("zmm9") _, out("zmm10") _, out("zmm11") _,
        out("zmm12") _, out("zmm13") _, out("zmm14") _, out("zmm15") _,
    ]
}

/// # Safety
/// The processor has the level.
#[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx2,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vpopcntdq")]
pub(crate) unsafe fn walk_many(jobs: &mut [Job<'_>]) {
    // SAFETY: the caller's promise. The limits are measured, see docs/simd.md.
    unsafe {
        let dense = match jobs.len() {
            ..10 => walk::walk_others_alone(jobs, walk),
            10..=20 => many::walk::<U32x16, AnyHeaders, 1>(jobs, walk),
            _ => many::walk::<U32x16, AnyHeaders, 2>(jobs, walk),
        };
        if dense >= 14 {
            many::walk::<U32x16, OneByteHeaders, 2>(jobs, walk);
        } else if dense > 0 {
            sprint::walk(jobs, walk);
        }
    }
}

/// A window of 64 bytes in one register.
struct Window;

impl Bytes for Window {
    const WINDOW_BYTES: usize = 64;

    #[inline(always)]
    unsafe fn stops(at: *const u8) -> u64 {
        // SAFETY: the caller's window; the processor has the level.
        unsafe { !_mm512_movepi8_mask(_mm512_loadu_si512(at.cast())) }
    }

    #[inline(always)]
    unsafe fn compact(word: u64, mask: u64) -> u64 {
        // SAFETY: the processor has the level.
        unsafe { _pext_u64(word, mask) }
    }
}

/// Notes by the two-register byte permute.
struct Vbmi;

impl Pairs for Vbmi {
    const EXISTS: bool = true;
    const BLOCK_BYTES: usize = 64;
    const READ_BYTES: usize = 128;

    #[inline(always)]
    unsafe fn note(source: *const u8, notes: *mut u8) {
        const BEHIND_HEADER: [u8; 64] = {
            let mut place = [0; 64];
            let mut i = 0;
            while i < 64 {
                place[i] = i as u8 + 1;
                i += 1;
            }
            place
        };
        // SAFETY: the caller's ranges; the processor has VBMI.
        unsafe {
            let low = _mm512_loadu_si512(source.cast());
            let high = _mm512_loadu_si512(source.add(64).cast());
            // Where a fragment that began at byte i would end: at most 63 + 1 + 63 if its body is below 64.
            let behind = _mm512_add_epi8(low, _mm512_loadu_si512(BEHIND_HEADER.as_ptr().cast()));
            let second = _mm512_permutex2var_epi8(low, behind, high);
            let small = _mm512_testn_epi8_mask(_mm512_or_si512(low, second), _mm512_set1_epi8(0xc0_u8 as i8));
            let both = _mm512_add_epi8(_mm512_add_epi8(low, second), _mm512_set1_epi8(2));
            _mm512_storeu_si512(notes.cast(), _mm512_maskz_mov_epi8(small, both));
        }
    }

    #[inline(always)]
    unsafe fn walk(place: Place) -> Place {
        // Not inlined, so that the registers of the other gaits are their own.
        #[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx2,avx512f,avx512bw,avx512vl,avx512vbmi")]
        #[inline(never)]
        unsafe fn outlined(place: Place) -> Place {
            // SAFETY: the caller's promise.
            unsafe { pairs::walk::<Vbmi, Bmi2>(place) }
        }
        // SAFETY: the caller's promise.
        unsafe { outlined(place) }
    }
}

/// Sixteen lanes.
#[derive(Clone, Copy)]
struct U32x16(__m512i);

impl Lanes for U32x16 {
    const LANES: usize = 16;
    type Mask = __mmask16;

    #[inline(always)]
    unsafe fn splat(value: u32) -> Self {
        // SAFETY: the trait's condition, here and below.
        U32x16(unsafe { _mm512_set1_epi32(value as i32) })
    }
    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: the caller's range.
        U32x16(unsafe { _mm512_loadu_si512(from.cast()) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: the caller's range.
        unsafe { _mm512_storeu_si512(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn gather(base: *const u8, offsets: Self) -> Self {
        // SAFETY: the caller's places.
        U32x16(unsafe { _mm512_i32gather_epi32::<1>(offsets.0, base.cast()) })
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the trait's condition.
        U32x16(unsafe { _mm512_add_epi32(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: the trait's condition.
        U32x16(unsafe { _mm512_sub_epi32(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        // SAFETY: the trait's condition.
        U32x16(unsafe { _mm512_min_epu32(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: the trait's condition.
        U32x16(unsafe { _mm512_and_si512(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn not_and(self, other: Self) -> Self {
        // SAFETY: the trait's condition.
        U32x16(unsafe { _mm512_andnot_si512(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn shift_right<const N: u32>(self) -> Self {
        // SAFETY: the trait's condition.
        U32x16(unsafe { _mm512_srli_epi32::<N>(self.0) })
    }
    #[inline(always)]
    unsafe fn shift_left<const N: u32>(self) -> Self {
        // SAFETY: the trait's condition.
        U32x16(unsafe { _mm512_slli_epi32::<N>(self.0) })
    }
    #[inline(always)]
    unsafe fn pick(bits: Self, this: Self, other: Self) -> Self {
        // SAFETY: the trait's condition. 0xca is "a ? b : c".
        U32x16(unsafe { _mm512_ternarylogic_epi32::<0xca>(bits.0, this.0, other.0) })
    }
    #[inline(always)]
    unsafe fn header_bytes(stops: Self, below: Self) -> Self {
        // SAFETY: the trait's condition. The two differ in the lowest stop and all below it: eight bits a byte.
        U32x16(unsafe { _mm512_srli_epi32::<3>(_mm512_popcnt_epi32(_mm512_xor_si512(stops.0, below.0))) })
    }
    #[inline(always)]
    unsafe fn all() -> __mmask16 {
        !0
    }
    #[inline(always)]
    unsafe fn le(self, other: Self, among: __mmask16) -> __mmask16 {
        // SAFETY: the trait's condition.
        unsafe { _mm512_mask_cmple_epu32_mask(among, self.0, other.0) }
    }
    #[inline(always)]
    unsafe fn nonzero(self, among: __mmask16) -> __mmask16 {
        // SAFETY: the trait's condition.
        unsafe { _mm512_mask_test_epi32_mask(among, self.0, self.0) }
    }
    #[inline(always)]
    unsafe fn blend(mask: __mmask16, yes: Self, no: Self) -> Self {
        // SAFETY: the trait's condition.
        U32x16(unsafe { _mm512_mask_mov_epi32(no.0, mask, yes.0) })
    }
    #[inline(always)]
    unsafe fn bits(mask: __mmask16) -> u32 {
        mask.into()
    }

    #[inline(always)]
    unsafe fn scatter_columns(rows: *const u32, counts: *const u32, to: *const *mut u32) {
        // SAFETY: the caller's rows, counts and places; the stores are masked to the counts.
        unsafe {
            // Blocks of 4 x 4 change places while they are loaded, into the quarters of a register, and are then turned where they are:
            // half the shuffles, for which there is one port.
            let block = |row: usize, four: usize| _mm_loadu_si128(rows.add(row * 16 + 4 * four).cast());
            for four in 0..4 {
                // Row r of each quarter q is columns 4 * four.. of row 4 * q + r.
                let row = |r: usize| {
                    let quarters = _mm512_castsi128_si512(block(r, four));
                    let quarters = _mm512_inserti32x4::<1>(quarters, block(4 + r, four));
                    let quarters = _mm512_inserti32x4::<2>(quarters, block(8 + r, four));
                    _mm512_inserti32x4::<3>(quarters, block(12 + r, four))
                };
                let (row0, row1, row2, row3) = (row(0), row(1), row(2), row(3));
                let (low01, high01) = (_mm512_unpacklo_epi32(row0, row1), _mm512_unpackhi_epi32(row0, row1));
                let (low23, high23) = (_mm512_unpacklo_epi32(row2, row3), _mm512_unpackhi_epi32(row2, row3));
                let columns = [
                    _mm512_unpacklo_epi64(low01, low23),
                    _mm512_unpackhi_epi64(low01, low23),
                    _mm512_unpacklo_epi64(high01, high23),
                    _mm512_unpackhi_epi64(high01, high23),
                ];
                for (j, column) in columns.into_iter().enumerate() {
                    let lane = 4 * four + j;
                    let first = _bzhi_u32(0xffff, *counts.add(lane)) as __mmask16;
                    _mm512_mask_storeu_epi32((*to.add(lane)).cast(), first, column);
                }
            }
        }
    }
}

impl HeaderLanes for U32x16 {
    #[inline(always)]
    unsafe fn scatter_headers(rows: [Self; 4], counts: *const u32, to: *const *mut u32) {
        // SAFETY: the caller's counts and places; the stores are masked to the counts.
        unsafe {
            let [row0, row1, row2, row3] = rows.map(|row| row.0);
            let (low01, high01) = (_mm512_unpacklo_epi32(row0, row1), _mm512_unpackhi_epi32(row0, row1));
            let (low23, high23) = (_mm512_unpacklo_epi32(row2, row3), _mm512_unpackhi_epi32(row2, row3));
            // Quarter q of vector j has the sixteen headers of lane 4 * q + j.
            let turned = [
                _mm512_unpacklo_epi64(low01, low23),
                _mm512_unpackhi_epi64(low01, low23),
                _mm512_unpacklo_epi64(high01, high23),
                _mm512_unpackhi_epi64(high01, high23),
            ];
            let one = _mm512_set1_epi32(Span::ONE_BYTE_HEADER as i32);
            for (j, vector) in turned.into_iter().enumerate() {
                let quarters = [
                    _mm512_castsi512_si128(vector),
                    _mm512_extracti32x4_epi32::<1>(vector),
                    _mm512_extracti32x4_epi32::<2>(vector),
                    _mm512_extracti32x4_epi32::<3>(vector),
                ];
                for (q, quarter) in quarters.into_iter().enumerate() {
                    let lane = 4 * q + j;
                    let spans = _mm512_add_epi32(_mm512_cvtepu8_epi32(quarter), one);
                    let first = _bzhi_u32(0xffff, *counts.add(lane)) as __mmask16;
                    _mm512_mask_storeu_epi32((*to.add(lane)).cast(), first, spans);
                }
            }
        }
    }
}
