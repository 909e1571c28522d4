//! AVX2 with BMI1 and BMI2.
//!
//! - `walk`, one chunk: no vectors. `andn`, `tzcnt` and `pext` decode any header of up to seven bytes in a chain of 12 cycles, load
//!   and next address included. AVX2 has no byte permute over more than 16 bytes, so no pointer doubling.
//! - `walk`, many chunks: a gather reads eight headers in about 5 cycles; two groups, 16 chunks, hide part of its
//!   latency. The length comes out of the exponent of a conversion to float, since there is no vector popcount. Dense
//!   chunks sprint: eight chains in general registers, with no gather, which is slow on many processors of this level.

use std::arch::x86_64::*;

use super::Bmi2;
use crate::bytes::Bytes;
use crate::copy::copy_in_vectors;
use crate::entries::entry_points;
use crate::walk::blocks::AnyHeaders;
use crate::walk::lanes::Lanes;
use crate::walk::pairs::NoPairs;
use crate::walk::{self, Job, many, sprint};

entry_points! {
    #[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx2")]
    header: Bmi2, pairs: NoPairs, window: Window
}

copy_in_vectors! {
    "bmi1,bmi2,lzcnt,popcnt,avx2",
    32, "vmovdqu", "vmovdqa", "ymm",
    [
        out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
        out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
        out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
        out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
    ]
}

/// # Safety
/// The processor has the level.
#[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx2")]
pub(crate) unsafe fn walk_many(jobs: &mut [Job<'_>]) {
    // SAFETY: the caller's promise.
    unsafe {
        let dense = match jobs.len() {
            ..10 => walk::walk_others_alone(jobs, walk),
            _ => many::walk::<U32x8, AnyHeaders, 2>(jobs, walk),
        };
        if dense > 0 {
            sprint::walk(jobs, walk);
        }
    }
}

/// A window of 64 bytes in two registers.
struct Window;

impl Bytes for Window {
    const WINDOW_BYTES: usize = 64;

    #[inline(always)]
    unsafe fn stops(at: *const u8) -> u64 {
        // SAFETY: the caller's window; the processor has the level.
        unsafe {
            let low = _mm256_movemask_epi8(_mm256_loadu_si256(at.cast())) as u32;
            let high = _mm256_movemask_epi8(_mm256_loadu_si256(at.add(32).cast())) as u32;
            !(u64::from(low) | u64::from(high) << 32)
        }
    }

    #[inline(always)]
    unsafe fn compact(word: u64, mask: u64) -> u64 {
        // SAFETY: the processor has the level.
        unsafe { _pext_u64(word, mask) }
    }
}

/// Eight lanes.
#[derive(Clone, Copy)]
struct U32x8(__m256i);

impl Lanes for U32x8 {
    const LANES: usize = 8;
    /// All ones or all zeros in each lane.
    type Mask = __m256i;

    #[inline(always)]
    unsafe fn splat(value: u32) -> Self {
        // SAFETY: the trait's condition, here and below.
        U32x8(unsafe { _mm256_set1_epi32(value as i32) })
    }
    #[inline(always)]
    unsafe fn load(from: *const u32) -> Self {
        // SAFETY: the caller's range.
        U32x8(unsafe { _mm256_loadu_si256(from.cast()) })
    }
    #[inline(always)]
    unsafe fn store(self, to: *mut u32) {
        // SAFETY: the caller's range.
        unsafe { _mm256_storeu_si256(to.cast(), self.0) }
    }
    #[inline(always)]
    unsafe fn gather(base: *const u8, offsets: Self) -> Self {
        // SAFETY: the caller's places.
        U32x8(unsafe { _mm256_i32gather_epi32::<1>(base.cast(), offsets.0) })
    }
    #[inline(always)]
    unsafe fn add(self, other: Self) -> Self {
        // SAFETY: the trait's condition.
        U32x8(unsafe { _mm256_add_epi32(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn sub(self, other: Self) -> Self {
        // SAFETY: the trait's condition.
        U32x8(unsafe { _mm256_sub_epi32(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn min(self, other: Self) -> Self {
        // SAFETY: the trait's condition.
        U32x8(unsafe { _mm256_min_epu32(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn and(self, other: Self) -> Self {
        // SAFETY: the trait's condition.
        U32x8(unsafe { _mm256_and_si256(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn not_and(self, other: Self) -> Self {
        // SAFETY: the trait's condition.
        U32x8(unsafe { _mm256_andnot_si256(self.0, other.0) })
    }
    #[inline(always)]
    unsafe fn shift_right<const N: u32>(self) -> Self {
        // SAFETY: the trait's condition.
        U32x8(unsafe { _mm256_srl_epi32(self.0, _mm_cvtsi32_si128(N as i32)) })
    }
    #[inline(always)]
    unsafe fn shift_left<const N: u32>(self) -> Self {
        // SAFETY: the trait's condition.
        U32x8(unsafe { _mm256_sll_epi32(self.0, _mm_cvtsi32_si128(N as i32)) })
    }
    #[inline(always)]
    unsafe fn pick(bits: Self, this: Self, other: Self) -> Self {
        // SAFETY: the trait's condition.
        U32x8(unsafe {
            _mm256_or_si256(_mm256_and_si256(bits.0, this.0), _mm256_andnot_si256(bits.0, other.0))
        })
    }
    #[inline(always)]
    unsafe fn header_bytes(stops: Self, below: Self) -> Self {
        // SAFETY: the trait's condition. The lowest stop alone is 2^7, 2^15, 2^23 or -2^31; as a float its exponent is 134, 142, 150 or 158,
        // of which the upper five bits are 16, 17, 18 or 19.
        unsafe {
            let lowest = _mm256_andnot_si256(below.0, stops.0);
            let float = _mm256_castps_si256(_mm256_cvtepi32_ps(lowest));
            let exponent = _mm256_and_si256(_mm256_srli_epi32::<26>(float), _mm256_set1_epi32(0x1f));
            // Saturating, so that no stop gives 0.
            U32x8(_mm256_subs_epu16(exponent, _mm256_set1_epi32(15)))
        }
    }
    #[inline(always)]
    unsafe fn all() -> __m256i {
        // SAFETY: the trait's condition.
        unsafe { _mm256_set1_epi32(-1) }
    }
    #[inline(always)]
    unsafe fn le(self, other: Self, among: __m256i) -> __m256i {
        // SAFETY: the trait's condition. There is no unsigned comparison.
        unsafe { _mm256_and_si256(among, _mm256_cmpeq_epi32(_mm256_min_epu32(self.0, other.0), self.0)) }
    }
    #[inline(always)]
    unsafe fn nonzero(self, among: __m256i) -> __m256i {
        // SAFETY: the trait's condition.
        unsafe { _mm256_andnot_si256(_mm256_cmpeq_epi32(self.0, _mm256_setzero_si256()), among) }
    }
    #[inline(always)]
    unsafe fn blend(mask: __m256i, yes: Self, no: Self) -> Self {
        // SAFETY: the trait's condition.
        U32x8(unsafe { _mm256_blendv_epi8(no.0, yes.0, mask) })
    }
    #[inline(always)]
    unsafe fn bits(mask: __m256i) -> u32 {
        // SAFETY: the trait's condition.
        unsafe { _mm256_movemask_ps(_mm256_castsi256_ps(mask)) as u32 }
    }

    #[inline(always)]
    unsafe fn scatter_columns(rows: *const u32, counts: *const u32, to: *const *mut u32) {
        // SAFETY: the caller's rows, counts and places; the stores are masked to the counts.
        unsafe {
            // 4 x 4 blocks are turned within the 128-bit halves first: fours[4 * h + j] has, in half q, column 4 * q + j of the
            // rows 4 * h to 4 * h + 3.
            let mut fours = [_mm256_setzero_si256(); 8];
            for h in 0..2 {
                let row = |r: usize| _mm256_loadu_si256(rows.add((4 * h + r) * 8).cast());
                let (low01, high01) =
                    (_mm256_unpacklo_epi32(row(0), row(1)), _mm256_unpackhi_epi32(row(0), row(1)));
                let (low23, high23) =
                    (_mm256_unpacklo_epi32(row(2), row(3)), _mm256_unpackhi_epi32(row(2), row(3)));
                fours[4 * h] = _mm256_unpacklo_epi64(low01, low23);
                fours[4 * h + 1] = _mm256_unpackhi_epi64(low01, low23);
                fours[4 * h + 2] = _mm256_unpacklo_epi64(high01, high23);
                fours[4 * h + 3] = _mm256_unpackhi_epi64(high01, high23);
            }
            let steps = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
            for j in 0..4 {
                let columns = [
                    _mm256_permute2x128_si256::<0x20>(fours[j], fours[4 + j]),
                    _mm256_permute2x128_si256::<0x31>(fours[j], fours[4 + j]),
                ];
                for (q, column) in columns.into_iter().enumerate() {
                    let lane = 4 * q + j;
                    let first = _mm256_cmpgt_epi32(_mm256_set1_epi32(*counts.add(lane) as i32), steps);
                    _mm256_maskstore_epi32((*to.add(lane)).cast(), first, column);
                }
            }
        }
    }
}
