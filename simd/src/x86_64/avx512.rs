//! AVX-512 with VBMI: headers as on the level AVX2, and dense chunks in pairs, for which `vpermi2b`
//! looks up 64 bytes in a table of 128 at once.

use std::arch::x86_64::*;

use super::Bmi2;
use crate::copy::copy_in_vectors;
use crate::entries::entry_points;
use crate::walk::one::Cursor;
use crate::walk::pairs::{self, Pairs};

entry_points! {
    #[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx2,avx512f,avx512bw,avx512vl,avx512vbmi,avx512vpopcntdq")]
    header: Bmi2, pairs: Vbmi
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

/// Sums by the two-register byte permute.
struct Vbmi;

impl Pairs for Vbmi {
    const EXISTS: bool = true;
    const BLOCK_BYTES: usize = 64;
    const READ_BYTES: usize = 128;

    #[inline(always)]
    unsafe fn sum_pairs(source: *const u8, sums: *mut u8) {
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
            // Where a fragment that began at byte i would end: at most 63 + 1 + 63 if its body is
            // below 64.
            let behind = _mm512_add_epi8(low, _mm512_loadu_si512(BEHIND_HEADER.as_ptr().cast()));
            let second = _mm512_permutex2var_epi8(low, behind, high);
            let small = _mm512_testn_epi8_mask(_mm512_or_si512(low, second), _mm512_set1_epi8(0xc0_u8 as i8));
            let both = _mm512_add_epi8(_mm512_add_epi8(low, second), _mm512_set1_epi8(2));
            _mm512_storeu_si512(sums.cast(), _mm512_maskz_mov_epi8(small, both));
        }
    }

    #[inline(always)]
    unsafe fn walk(cursor: Cursor) -> Cursor {
        // Not inlined, so that it takes no registers from the other loops.
        #[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx2,avx512f,avx512bw,avx512vl,avx512vbmi")]
        #[inline(never)]
        unsafe fn outlined(cursor: Cursor) -> Cursor {
            // SAFETY: the caller's promise.
            unsafe { pairs::walk::<Vbmi, Bmi2>(cursor) }
        }
        // SAFETY: the caller's promise.
        unsafe { outlined(cursor) }
    }
}
