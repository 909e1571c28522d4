//! Headers of chunks in shared memory, each read once.

use std::num::NonZeroU32;

use crate::copy::{self, LEAST_BYTES, LENGTHS};
use crate::prefetch::{self, LINE_BYTES, LinesAhead};
use crate::shared::{self, Headers};
use crate::walk::ENTRY_HEADER_SHIFT;
use crate::word;

/// So many lines are prefetched before a walk over shared bytes begins, at least: of the source, or
/// it would wait for memory at each header of a chunk that is in no cache, and of the ring. Twice
/// as many were slower.
const FIRST_LINES: usize = 8;

/// As many lines at most are prefetched beside a header. Where fragments are so long that there are
/// more, the rest of the ring's are asked for after the last header, and the rest of the source's
/// by the copy.
const MOST_BESIDE: u32 = 7;

/// Of a chunk whose copy asks for the rest of both, as many.
const BESIDE_FEW: usize = 4;

/// The walk of [`crate::walk::ordinary`] over bytes that may change: the word of each header is
/// read once and kept.
///
/// # Safety
/// As [`Kernels::fetch_headers`](crate::Kernels::fetch_headers), and the processor has
/// [`Bmi2`](super::Bmi2)'s instructions.
#[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt")]
pub(crate) unsafe fn fetch_headers(
    start: *const u8,
    len: usize,
    entries: &mut [u16],
    headers: &mut Headers,
    ahead: LinesAhead,
) -> usize {
    let count = entries.len();
    if len >= copy::LONG_BYTES && copy::asks_for_lines(count, len) {
        // SAFETY: the caller's promise.
        return unsafe { fetch_few_headers(start, len, entries, headers, ahead) };
    }
    let Some(count_u32) = NonZeroU32::new(count as u32).filter(|_| LENGTHS.contains(&len)) else { return 0 };
    if headers.kept.len() < count {
        headers.grow(count);
    }
    let first = shared::first_position(len);
    let (mut walk, lines) = Fetching::begin(start, len, first, ahead);
    let (mut beside, mut rest) = (lines as u32 / count_u32, lines as u32 % count_u32);
    // Where the walk comes to, line by line, unless a fragment is not ordinary.
    let mut last_line = walk.next.wrapping_add(lines * LINE_BYTES);
    if beside <= MOST_BESIDE {
        walk.ask(rest);
        rest = 0;
    } else {
        beside = if count == 1 { 0 } else { MOST_BESIDE };
        rest = lines as u32 - beside * count_u32.get();
        last_line = last_line.wrapping_sub(rest as usize * LINE_BYTES);
    }
    // A loop for each number of lines beside a header: one instruction a line.
    let (kept, entries) = (headers.kept.as_mut_ptr(), entries.as_mut_ptr());
    // SAFETY: a word is readable at `first`, and there is room for `count` headers.
    let left = unsafe {
        match beside {
            0 => fetch!(walk, count, kept, entries, 0, []),
            1 => fetch_beside_few!(walk, count, kept, entries, 1, ["0"]),
            2 => fetch_beside_few!(walk, count, kept, entries, 2, ["0", "64"]),
            3 => fetch_beside!(walk, count, kept, entries, 3, ["0", "64", "128"]),
            4 => fetch_beside!(walk, count, kept, entries, 4, ["0", "64", "128", "192"]),
            5 => fetch_beside!(walk, count, kept, entries, 5, ["0", "64", "128", "192", "256"]),
            6 => fetch_beside!(walk, count, kept, entries, 6, ["0", "64", "128", "192", "256", "320"]),
            _ => fetch_beside!(walk, count, kept, entries, 7, ["0", "64", "128", "192", "256", "320", "384"]),
        }
    };
    if rest != 0 {
        LinesAhead::new(walk.next).of_bytes(rest as usize * LINE_BYTES).finish();
    }
    walk.end(len, first, left, last_line)
}

/// The same for a chunk whose copy asks for most of its lines.
///
/// # Safety
/// As [`fetch_headers`].
#[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt")]
#[inline(never)]
unsafe fn fetch_few_headers(
    start: *const u8,
    len: usize,
    entries: &mut [u16],
    headers: &mut Headers,
    ahead: LinesAhead,
) -> usize {
    let count = entries.len();
    if count == 0 || !LENGTHS.contains(&len) {
        return 0;
    }
    if headers.kept.len() < count {
        headers.grow(count);
    }
    let first = shared::first_position(len);
    let (mut walk, lines) = Fetching::begin(start, len, first, ahead);
    let beside = if count == 1 { 0 } else { BESIDE_FEW };
    let last_line = walk.next.wrapping_add(beside * count * LINE_BYTES);
    let (kept, entries) = (headers.kept.as_mut_ptr(), entries.as_mut_ptr());
    // SAFETY: a word is readable at the first byte, and there is room for `count` headers.
    let left = unsafe {
        match beside {
            0 => fetch!(walk, count, kept, entries, 0, []),
            _ => fetch_beside!(walk, count, kept, entries, 4, ["0", "64", "128", "192"]),
        }
    };
    let rest = copy::LINES_BEFORE.saturating_sub(FIRST_LINES + beside * count).min(lines);
    LinesAhead::new(walk.next).of_bytes(rest * LINE_BYTES).finish();
    walk.end(len, first, left, last_line)
}

/// A walk that has come to a position where a word may be read; or to one that has overflowed,
/// behind the last header or in front of one that would not be inside.
struct Fetching {
    origin: *const u8,
    at: usize,
    /// Bytes of the last fragment.
    last: usize,
    /// The next line of the ring; and from there the way to that of the source.
    next: *const u8,
    to_source: usize,
}

impl Fetching {
    /// At a chunk's first byte, with the first lines asked for. How many others it has.
    #[inline(always)]
    fn begin(start: *const u8, len: usize, first: usize, ahead: LinesAhead) -> (Fetching, usize) {
        let mut walk = Fetching {
            origin: start.wrapping_sub(first),
            at: first,
            last: 0,
            next: ahead.next,
            to_source: start.addr().wrapping_sub(ahead.next.addr()),
        };
        // None behind the last byte, where another core may be writing.
        let mut lines = len / LINE_BYTES;
        if lines >= FIRST_LINES {
            lines -= FIRST_LINES;
            let (ring, source) = (walk.next, start);
            (0..FIRST_LINES).for_each(|line| prefetch::for_read(source.wrapping_add(line * LINE_BYTES)));
            (0..FIRST_LINES).for_each(|line| prefetch::for_write(ring.wrapping_add(line * LINE_BYTES)));
            walk.next = ring.wrapping_add(FIRST_LINES * LINE_BYTES);
        }
        (walk, lines)
    }

    /// The bytes of all fragments, or 0 if they are none for this walk. Twice as many headers were
    /// left as `left` says below 0, and the lines up to `last_line` were to be asked for.
    #[inline(always)]
    fn end(self, len: usize, first: usize, left: isize, last_line: *const u8) -> usize {
        let end = self.at.wrapping_sub(first);
        // The word at the last header must not end behind the fragments, and they must be long
        // enough for a copy. One test does both: an end that is too small wraps around.
        let is_taken = end.wrapping_sub(LEAST_BYTES) <= len - LEAST_BYTES && self.last >= size_of::<u64>();
        // The position may overflow at the last header.
        if left >= -2 && is_taken && self.next == last_line { end } else { 0 }
    }

    /// Asks for so many more lines of both, one by one.
    #[inline(always)]
    fn ask(&mut self, lines: u32) {
        if lines != 0 {
            let bytes = lines as usize * LINE_BYTES;
            self.next = self.next.wrapping_add(bytes);
            // SAFETY: a prefetch does not fault.
            unsafe {
                std::arch::asm!(
                    "2:",
                    "prefetcht0 [{source} + {to_end}]",
                    "prefetcht0 [{ring} + {to_end}]",
                    "add {to_end}, {line}",
                    "jnz 2b",
                    source = in(reg) self.next.wrapping_add(self.to_source),
                    ring = in(reg) self.next,
                    to_end = inout(reg) bytes.wrapping_neg() => _,
                    line = const LINE_BYTES,
                    options(nostack, readonly),
                );
            }
        }
    }
}

/// Fetches headers until there are `$count`, above 0, or the next one's word would not be inside.
/// How many are left, times -2; the last one if its position overflows. `$instruction`s fetch one
/// from `at`, go on to the next at label 2, and leave at label 3.
///
/// It is `asm!` since each word is read exactly once, and since the compiler needs a third more
/// instructions: here one counter serves three addresses.
///
/// # Safety
/// A word is readable at `at`; there is room for as many headers; and the processor has
/// [`Bmi2`](super::Bmi2)'s instructions.
macro_rules! fetch_loop {
    (
        $walk:ident, $count:ident, $kept:ident, $entries:ident, $lines:literal,
        [$($instruction:expr),* $(,)?], [$($scratch:tt)*]
    ) => {{
        let mut left = ($count as isize).wrapping_neg() * 2;
        std::arch::asm!(
            ".p2align 4",
            "2:",
            $($instruction,)*
            "3: /* {to_source} */",
            word = out(reg) _,
            total = out(reg) $walk.last,
            bits = out(reg) _,
            $($scratch)*
            origin = in(reg) $walk.origin,
            at = inout(reg) $walk.at,
            high = in(reg) word::HIGH,
            low = in(reg) word::LOW | 1 << 63,
            kept = in(reg) $kept.wrapping_add($count),
            entries = in(reg) $entries.wrapping_add($count),
            left = inout(reg) left,
            next = inout(reg) $walk.next,
            to_source = in(reg) $walk.to_source,
            shift = in(reg) u64::from(ENTRY_HEADER_SHIFT),
            entry_shift = const ENTRY_HEADER_SHIFT,
            lines = const $lines,
            options(nostack),
        );
        left
    }};
}
use fetch_loop;

/// As [`fetch_loop`]. Beside each header, `$hint` instructions ask for `$lines` lines.
macro_rules! fetch {
    ($walk:ident, $count:ident, $kept:ident, $entries:ident, $lines:literal, [$($hint:expr),*]) => {
        fetch_loop!($walk, $count, $kept, $entries, $lines, [
            $($hint,)*
            "mov {word}, [{origin} + {at}]",
            // The high bits of the bytes that end a header; then ones up to the first of them,
            // eight for each byte of the header.
            "andn {total}, {word}, {high}",
            "blsmsk {total}, {total}",
            "popcnt {bits}, {total}",
            // As `Bmi2::header`: where nothing ends it, the highest bit makes it too large.
            "and {total}, {low}",
            "pext {total}, {word}, {total}",
            "mov [{kept} + 8 * {left}], {word}",
            "mov [{kept} + 8 * {left} + 8], {at}",
            "rorx {word:e}, {bits:e}, 3",
            "add {total}, {word}",
            "shl {bits:e}, {entry_shift} - 3",
            "add {bits:e}, {total:e}",
            "mov [{entries} + {left}], {bits:x}",
            // It adds no more than the lines, unless a fragment is too long to be ordinary: so that
            // is found. And so the next lines are asked for when the walk has come there, not all
            // at once as soon as they are decoded: in a burst many are not fetched.
            "shrx {bits}, {total}, {shift}",
            "lea {next}, [{next} + {bits} + 64 * {lines}]",
            "add {at}, {total}",
            "jc 3f",
            "add {left}, 2",
            "jnz 2b",
        ], [])
    };
}
use fetch;

/// As [`fetch`], with lines of both beside each header.
macro_rules! fetch_beside {
    ($walk:ident, $count:ident, $kept:ident, $entries:ident, $lines:literal, [$($line:literal),*]) => {
        fetch!($walk, $count, $kept, $entries, $lines, [
            $(
                concat!("prefetcht0 [{next} + ", $line, "]"),
                concat!("prefetcht0 [{next} + {to_source} + ", $line, "]")
            ),*
        ])
    };
}
use fetch_beside;

/// As [`fetch_beside`], in eight more instructions, but with 8 cycles from one header to the next,
/// not 12, where they have one or two bytes (4 of them for the load). With so few lines beside each
/// header nothing else takes as long as this chain; with more of them the lines do.
///
/// ```text
///   word   b8 01 .. ..    two bytes: bit 7 is set, bit 15 is not
///   sign   b8 ff ff ff    of the first byte; & 0x3f80 is 0 if that is the only one
///   body   (word & 0x7f) + (word >> 1 & sign & 0x3f80)
/// ```
///
/// # Safety
/// As [`fetch_loop`].
macro_rules! fetch_beside_few {
    ($walk:ident, $count:ident, $kept:ident, $entries:ident, $lines:literal, [$($line:literal),*]) => {
        fetch_loop!($walk, $count, $kept, $entries, $lines, [
            $(
                concat!("prefetcht0 [{next} + ", $line, "]"),
                concat!("prefetcht0 [{next} + {to_source} + ", $line, "]"),
            )*
            "mov {word}, [{origin} + {at}]",
            "mov [{kept} + 8 * {left}], {word}",
            "mov [{kept} + 8 * {left} + 8], {at}",
            "mov {bits:e}, {word:e}",
            "and {bits:e}, 0x8080",
            "cmp {bits:e}, 0x8080",
            "je 4f",
            "mov {total:e}, {word:e}",
            "and {total:e}, 0x7f",
            "bt {word:e}, 7",
            "adc {total:e}, 1",
            "movsx {sign:e}, {word:l}",
            "shr {word:e}, 1",
            "and {sign:e}, 0x3f80",
            "and {bits:e}, 0x80",
            "and {word:e}, {sign:e}",
            "shl {bits:e}, {entry_shift} - 7",
            "5:",
            // What arrives last is added last, and tells whether a word may be read at the sum.
            "add {at}, {total}",
            "add {total}, {word}",
            "lea {bits:e}, [{bits} + {total} + (1 << {entry_shift})]",
            "mov [{entries} + {left}], {bits:x}",
            "shrx {bits}, {total}, {shift}",
            "lea {next}, [{next} + {bits} + 64 * {lines}]",
            "add {at}, {word}",
            "jns 3f",
            "add {left}, 2",
            "jnz 2b",
            "jmp 3f",
            "4:",
            "andn {total}, {word}, {high}",
            "blsmsk {total}, {total}",
            "popcnt {bits}, {total}",
            "and {total}, {low}",
            "pext {word}, {word}, {total}",
            "rorx {total:e}, {bits:e}, 3",
            "lea {bits:e}, [{total} - 1]",
            "shl {bits:e}, {entry_shift}",
            "jmp 5b",
        ], [sign = out(reg) _,])
    };
}
use fetch_beside_few;
