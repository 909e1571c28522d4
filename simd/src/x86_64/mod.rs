//! x86-64: the levels, and what they have in common.

pub(crate) mod avx2;
pub(crate) mod avx512;
mod copying;
mod fetch;

use std::arch::x86_64::_pext_u64;
use std::sync::OnceLock;

use crate::walk::long;
use crate::walk::one::Cursor;
use crate::word::{self, Header};

pub(crate) use copying::copy_and_walk;
pub(crate) use fetch::fetch_headers;

/// AVX2 and the bit instructions that came with it. Not on AMD before Zen 3 (family 19h), whose
/// `pext` is microcode and slower than shifts and masks.
pub(crate) fn has_avx2() -> bool {
    is_x86_feature_detected!("avx2")
        && is_x86_feature_detected!("bmi1")
        && is_x86_feature_detected!("bmi2")
        && is_x86_feature_detected!("lzcnt")
        && is_x86_feature_detected!("popcnt")
        && !has_slow_pext()
}

fn has_slow_pext() -> bool {
    // Asked once, since `cpuid` leaves a virtual machine.
    static SLOW: OnceLock<bool> = OnceLock::new();
    *SLOW.get_or_init(is_before_zen3)
}

fn is_before_zen3() -> bool {
    use std::arch::x86_64::__cpuid;
    let vendor = __cpuid(0);
    let family_of = |eax: u32| (eax >> 8 & 0xf) + (eax >> 20 & 0xff);
    let amd = (vendor.ebx, vendor.edx, vendor.ecx) == (0x6874_7541, 0x6974_6e65, 0x444d_4163);
    let hygon = (vendor.ebx, vendor.edx, vendor.ecx) == (0x6f67_7948, 0x6e65_476e, 0x656e_6975);
    (amd || hygon) && family_of(__cpuid(1).eax) < 0x19
}

/// The AVX-512 of Ice Lake and Zen 4. Earlier ones lack the byte permute, and lower their clock for
/// wide vectors.
pub(crate) fn has_avx512() -> bool {
    is_x86_feature_detected!("avx512f")
        && is_x86_feature_detected!("avx512bw")
        && is_x86_feature_detected!("avx512vl")
        && is_x86_feature_detected!("avx512vbmi")
        && is_x86_feature_detected!("avx512vpopcntdq")
}

/// `andn`, `tzcnt` and `pext` on eight bytes, of which the first is the one in front of the header.
/// So the position of the stop bit is the header's length without an addition, which makes the
/// chain shorter by one cycle, and the longest header by one byte.
pub(crate) struct Bmi2;

impl Header for Bmi2 {
    const BEFORE_BYTES: usize = 1;
    const WIDE_BYTES: usize = 7;
    const GROUP_HEADERS: usize = 4;
    const SLOW: bool = false;

    #[inline(always)]
    unsafe fn header(at: *const u8) -> (u64, usize) {
        const GROUPS: u64 = word::LOW << 8 & word::LOW;
        // SAFETY: the caller's promise; this type is only used below a `target_feature` that has
        // BMI2.
        unsafe {
            let word = word::load(at.sub(Self::BEFORE_BYTES));
            let stops = !word & (word::HIGH << 8);
            // The highest bit is extracted too: where nothing below it is a stop, it is 1 and the
            // value above 2^49.
            let value = _pext_u64(word, stops.wrapping_sub(1) & (GROUPS | 1 << 63));
            (value, stops.trailing_zeros() as usize >> 3)
        }
    }

    #[inline(always)]
    unsafe fn first_header(at: *const u8) -> (u64, usize) {
        // SAFETY: as above.
        unsafe {
            let word = word::load(at);
            let stops = !word & word::HIGH;
            let value = _pext_u64(word, stops.wrapping_sub(1) & (word::LOW | 1 << 63));
            (value, (stops.trailing_zeros() as usize >> 3) + 1)
        }
    }

    #[inline(always)]
    unsafe fn compact(word: u64, mask: u64) -> u64 {
        // SAFETY: as above.
        unsafe { _pext_u64(word, mask) }
    }

    #[inline(always)]
    unsafe fn walk_long(cursor: Cursor) -> Cursor {
        #[cold]
        #[inline(never)]
        #[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt")]
        unsafe fn outlined(cursor: Cursor) -> Cursor {
            // SAFETY: the caller's promise.
            unsafe { long::walk::<Bmi2>(cursor) }
        }
        // SAFETY: the caller's promise; this type is only used below a `target_feature` that has
        // these.
        unsafe { outlined(cursor) }
    }

    #[inline(always)]
    fn prefetch(at: *const u8) {
        use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: every x86-64 has the instruction, and it never faults.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(at.cast()) };
    }
}

/// Copies as many bytes as two vectors have that overlap: both loaded first.
///
/// # Safety
/// As [`crate::copy::copy_raw`], the length is one of [`crate::copy::IN_TWO_VECTORS`], and the
/// processor has AVX2.
#[inline(always)]
pub(crate) unsafe fn copy_two_vectors(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: one begins where the ranges do, one ends there, and none is longer.
    unsafe {
        std::arch::asm!(
            "vmovdqu ymm0, [{from}]",
            "vmovdqu ymm1, [{from} + {last}]",
            "vmovdqu [{to}], ymm0",
            "vmovdqu [{to} + {last}], ymm1",
            // Without it each SSE instruction that follows would wait for the upper halves. It
            // clears those of all registers.
            "vzeroupper",
            from = in(reg) from,
            to = in(reg) to,
            last = in(reg) len - 32,
            out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
            out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
            out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
            out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
            options(nostack, preserves_flags),
        );
    }
}
