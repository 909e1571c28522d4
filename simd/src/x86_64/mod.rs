//! x86-64: the levels, and what they have in common.

pub(crate) mod avx2;
pub(crate) mod avx512;

use std::arch::x86_64::_pext_u64;
use std::sync::OnceLock;

use crate::copy::{LEAST_BYTES, LENGTHS};
use crate::prefetch::{self, LINE_BYTES, LinesAhead};
use crate::shared::{self, Headers};
use crate::walk::one::Cursor;
use crate::walk::{ENTRY_HEADER_SHIFT, MAX_ENTRY_BYTES, long};
use crate::word::{self, Header};

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

/// Reads eight bytes that others may change, lowest first, exactly once: the compiler cannot repeat
/// the load.
///
/// # Safety
/// The eight bytes from `origin + at` on are readable.
#[inline(always)]
unsafe fn load_shared(origin: *const u8, at: usize) -> u64 {
    let word: u64;
    // SAFETY: the caller's promise; no alignment is needed.
    unsafe {
        std::arch::asm!(
            "mov {word}, [{origin} + {at}]",
            word = out(reg) word,
            origin = in(reg) origin,
            at = in(reg) at,
            options(nostack, preserves_flags, readonly),
        );
    }
    word
}

/// So far ahead a walk over shared bytes prefetches them. Without it, it would wait for memory at
/// each header of a chunk that is in no cache.
const READ_AHEAD_BYTES: usize = 1024;

/// The walk of [`crate::walk::ordinary`] over bytes that may change: the word of each header is
/// read once and kept.
///
/// # Safety
/// As [`Kernels::fetch_headers`](crate::Kernels::fetch_headers), and the processor has [`Bmi2`]'s
/// instructions.
#[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt")]
pub(crate) unsafe fn fetch_headers(
    start: *const u8,
    len: usize,
    entries: &mut [u16],
    headers: &mut Headers,
    mut ahead: LinesAhead,
) -> usize {
    let count = entries.len();
    if !LENGTHS.contains(&len) || count == 0 {
        return 0;
    }
    if headers.words.len() < count {
        headers.grow(count);
    }
    let (words, positions) = (&mut headers.words[..count], &mut headers.positions[..count]);
    let first = shared::first_position(len);
    let (origin, last_byte) = (start.wrapping_sub(first), start.wrapping_add(len - 1));
    let mut source = start.wrapping_add(LINE_BYTES);
    // None behind the last byte, where another core may be writing.
    let mut read_ahead = || {
        prefetch::for_read(source.min(last_byte));
        source = source.wrapping_add(LINE_BYTES);
    };
    (0..READ_AHEAD_BYTES / LINE_BYTES).for_each(|_| read_ahead());
    ahead = ahead.in_steps(count);
    let (mut at, mut totals) = (first, 0);
    let before_last =
        words[..count - 1].iter_mut().zip(&mut positions[..count - 1]).zip(&mut entries[..count - 1]);
    for ((word, position), entry) in before_last {
        ahead.step(&mut read_ahead);
        // SAFETY: `at` did not overflow, so a word is readable there.
        let header = unsafe { fetch(origin, at) };
        (*word, *position, *entry) = (header.word, at, header.entry);
        totals |= header.total;
        match at.checked_add(header.total) {
            Some(next) => at = next,
            None => return 0,
        }
    }
    ahead.finish();
    // SAFETY: as above.
    let header = unsafe { fetch(origin, at) };
    (words[count - 1], positions[count - 1], entries[count - 1]) = (header.word, at, header.entry);
    totals |= header.total;
    let end = (at - first).wrapping_add(header.total);
    // The word at the last header must not end behind the fragments, and they must be long enough
    // for a copy. One test does both: an end that is too small wraps around.
    let is_taken = end.wrapping_sub(LEAST_BYTES) <= len - LEAST_BYTES && header.total >= size_of::<u64>();
    // A limit with all lower bits set: what is above it has a higher one.
    if is_taken && totals <= MAX_ENTRY_BYTES { end } else { 0 }
}

/// A header and what it says.
struct Fetched {
    word: u64,
    entry: u16,
    total: usize,
}

/// Fetches the header at a position.
///
/// # Safety
/// As [`load_shared`], and the processor has [`Bmi2`]'s instructions.
#[inline]
#[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt")]
unsafe fn fetch(origin: *const u8, at: usize) -> Fetched {
    // SAFETY: the caller's promise.
    let word = unsafe { load_shared(origin, at) };
    let stops = !word & word::HIGH;
    // As `Bmi2::header`: where there is no stop, the highest bit makes it too large.
    let body = _pext_u64(word, stops.wrapping_sub(1) & (word::LOW | 1 << 63));
    let more = stops.trailing_zeros() as usize >> 3;
    let total = body as usize + more + 1;
    Fetched { word, entry: (((more + 1) << ENTRY_HEADER_SHIFT) + total) as u16, total }
}
