//! x86-64: the levels, and what they have in common.

pub(crate) mod avx2;
pub(crate) mod avx512;

use std::arch::x86_64::_pext_u64;
use std::sync::OnceLock;

use crate::copy::{LEAST_BYTES, LENGTHS};
use crate::prefetch::{self, LINE_BYTES, LinesAhead};
use crate::shared::{self, Headers, Kept};
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

/// So many lines ahead a walk over shared bytes prefetches them. Without it, it would wait for
/// memory at each header of a chunk that is in no cache. Twice as many were slower.
const READ_AHEAD_LINES: usize = 8;

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
    ahead: LinesAhead,
) -> usize {
    let Some(last) = entries.len().checked_sub(1) else { return 0 };
    if !LENGTHS.contains(&len) {
        return 0;
    }
    if headers.kept.len() <= last {
        headers.grow(last + 1);
    }
    // None behind the last byte, where another core may be writing.
    let mut source = LinesAhead::new(start.wrapping_add(LINE_BYTES), start.wrapping_add(len));
    if source.whole_lines() as usize >= READ_AHEAD_LINES {
        source.take::<READ_AHEAD_LINES>(prefetch::for_read);
    }
    let (first, lines) = (shared::first_position(len), ahead.whole_lines() / (last as u32).max(1));
    let mut walk = Fetching { origin: start.wrapping_sub(first), at: first, totals: 0, ahead, source };
    let (before_last, before_last_entries) = (&mut headers.kept[..last], &mut entries[..last]);
    // A loop for each number of lines beside a header: one instruction a line.
    // SAFETY: a word is readable at `first`.
    let is_inside = unsafe {
        match lines {
            0 | 1 => walk.fetch(before_last, before_last_entries, |_| ()),
            2 => walk.fetch_beside::<2>(before_last, before_last_entries),
            3 => walk.fetch_beside::<3>(before_last, before_last_entries),
            4 => walk.fetch_beside::<4>(before_last, before_last_entries),
            5 => walk.fetch_beside::<5>(before_last, before_last_entries),
            6 => walk.fetch_beside::<6>(before_last, before_last_entries),
            7 => walk.fetch_beside::<7>(before_last, before_last_entries),
            _ => walk.fetch_beside::<8>(before_last, before_last_entries),
        }
    };
    if !is_inside {
        return 0;
    }
    walk.ahead.finish();
    // SAFETY: the walk has come to a position where a word is readable.
    let header = unsafe { fetch(walk.origin, walk.at) };
    headers.kept[last] = Kept { word: header.word, position: walk.at };
    entries[last] = header.entry as u16;
    let end = (walk.at - first).wrapping_add(header.total);
    // The word at the last header must not end behind the fragments, and they must be long enough
    // for a copy. One test does both: an end that is too small wraps around.
    let is_taken = end.wrapping_sub(LEAST_BYTES) <= len - LEAST_BYTES && header.total >= size_of::<u64>();
    // A limit with all lower bits set: what is above it has a higher one.
    if is_taken && walk.totals | header.total <= MAX_ENTRY_BYTES { end } else { 0 }
}

/// A walk that has come to a position where a word may be read.
struct Fetching {
    origin: *const u8,
    at: usize,
    /// Bits that any fragment's length has.
    totals: usize,
    ahead: LinesAhead,
    source: LinesAhead,
}

impl Fetching {
    /// As [`fetch`](Self::fetch), with so many lines ahead beside each header, and as many of the
    /// source as long as there are any.
    ///
    /// # Safety
    /// As there.
    #[inline(always)]
    unsafe fn fetch_beside<const LINES: usize>(&mut self, kept: &mut [Kept], entries: &mut [u16]) -> bool {
        let with_source = self.source.whole_lines() as usize / LINES;
        let (kept, more_kept) = kept.split_at_mut(with_source.min(kept.len()));
        let (entries, more_entries) = entries.split_at_mut(kept.len());
        let to_source = (self.source.next as usize).wrapping_sub(self.ahead.next as usize);
        // SAFETY: the caller's promise; the second walk goes on where the first has come to.
        unsafe {
            let is_inside = self.fetch(kept, entries, |walk| {
                walk.ahead.take::<LINES>(|line| {
                    prefetch::for_write(line);
                    prefetch::for_read(line.wrapping_add(to_source));
                });
            });
            self.source.next = self.ahead.next.wrapping_add(to_source);
            is_inside
                && self.fetch(more_kept, more_entries, |walk| {
                    walk.ahead.take::<LINES>(prefetch::for_write);
                })
        }
    }

    /// Fetches as many headers as there are entries, with something `beside` each. False if the
    /// next one's word would not be inside.
    ///
    /// # Safety
    /// A word is readable at `at`, and the processor has [`Bmi2`]'s instructions.
    #[inline(always)]
    unsafe fn fetch(
        &mut self,
        kept: &mut [Kept],
        entries: &mut [u16],
        mut beside: impl FnMut(&mut Fetching),
    ) -> bool {
        for (kept, entry) in kept.iter_mut().zip(entries) {
            beside(self);
            // SAFETY: `at` did not overflow, so a word is readable there.
            let header = unsafe { fetch(self.origin, self.at) };
            *kept = Kept { word: header.word, position: self.at };
            *entry = header.entry as u16;
            self.totals |= header.total;
            // Adds nothing, as an ordinary entry has 16 bits. But so the next lines are asked for
            // when the walk has come there, not all at once as soon as they are decoded: in a burst
            // many are not fetched.
            self.ahead.next = self.ahead.next.wrapping_add(header.entry as usize >> 16);
            match self.at.checked_add(header.total) {
                Some(next) => self.at = next,
                None => return false,
            }
        }
        true
    }
}

/// A header and what it says.
struct Fetched {
    word: u64,
    /// 16 bits, if the header is ordinary.
    entry: u32,
    total: usize,
}

/// Fetches the header at a position.
///
/// # Safety
/// As [`load_shared`], and the processor has [`Bmi2`]'s instructions.
#[inline(always)]
unsafe fn fetch(origin: *const u8, at: usize) -> Fetched {
    // SAFETY: the caller's promise.
    let word = unsafe { load_shared(origin, at) };
    let stops = !word & word::HIGH;
    // As `Bmi2::header`: where there is no stop, the highest bit makes it too large.
    // SAFETY: the caller's promise.
    let body = unsafe { _pext_u64(word, stops.wrapping_sub(1) & (word::LOW | 1 << 63)) };
    let more = stops.trailing_zeros() >> 3;
    let total = body as usize + more as usize + 1;
    Fetched { word, entry: ((more + 1) << ENTRY_HEADER_SHIFT).wrapping_add(total as u32), total }
}
