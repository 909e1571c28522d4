//! The steps of the lockstep walk: a block of them, between two looks at which lanes have ended.

use super::Span;
use super::lanes::{HeaderLanes, Lanes};
use super::many::{Group, LANES_MAX, Row, WIDE_BYTES};

/// What the fragments' headers may be.
pub(crate) trait Block<L: Lanes> {
    /// Whether it is for [dense](super::Job::is_dense) chunks, or for all others.
    const DENSE: bool;

    /// Makes up to 16 steps, until no more than `few` lanes are alive, and hands the spans over.
    ///
    /// # Safety
    /// The groups hold their invariants, `spans` is writable for `LANES` rows of `LANES` numbers for each group, and the processor
    /// has the instructions.
    unsafe fn walk<const GROUPS: usize>(
        groups: &mut [Group; GROUPS],
        base: *const u8,
        few: u32,
        spans: *mut u32,
    );
}

/// Where the lanes of all groups stand when a block begins.
struct Stand<L: Lanes, const GROUPS: usize> {
    at: [L; GROUPS],
    last_wide: [L; GROUPS],
    room: [L; GROUPS],
    /// Where the gather reads: at the place, or for a lane that has ended somewhere harmless. Kept apart from `at`, so that the chain
    /// from gather to gather does not wait for the tests.
    from: [L; GROUPS],
    alive: [L::Mask; GROUPS],
}

impl<L: Lanes, const GROUPS: usize> Stand<L, GROUPS> {
    /// # Safety
    /// The processor has the instructions.
    #[inline(always)]
    unsafe fn of(groups: &[Group; GROUPS]) -> Self {
        // SAFETY: rows are readable for LANES numbers; the caller's promise.
        unsafe {
            let at = groups.each_ref().map(|group| L::load(group.at.0.as_ptr()));
            let last_wide = groups.each_ref().map(|group| L::load(group.last_wide.0.as_ptr()));
            let room = groups.each_ref().map(|group| L::load(group.room.0.as_ptr()));
            let (mut from, mut alive) = (at, [L::all(); GROUPS]);
            for g in 0..GROUPS {
                from[g] = at[g].min(last_wide[g]);
                alive[g] = room[g].nonzero(at[g].le(last_wide[g], L::all()));
            }
            Stand { at, last_wide, room, from, alive }
        }
    }
}

/// Headers of one to four bytes.
pub(crate) struct AnyHeaders;

impl<L: Lanes> Block<L> for AnyHeaders {
    const DENSE: bool = false;

    #[inline(always)]
    unsafe fn walk<const GROUPS: usize>(
        groups: &mut [Group; GROUPS],
        base: *const u8,
        few: u32,
        spans: *mut u32,
    ) {
        // SAFETY: rows are readable and writable for LANES numbers. Offsets that are gathered are at most `last_wide`, so
        // four bytes are there. The processor has the instructions.
        unsafe {
            let one = L::splat(1);
            let wide = L::splat(WIDE_BYTES);
            let Stand { mut at, last_wide, mut room, mut from, mut alive } = Stand::<L, GROUPS>::of(groups);
            for step in 0..L::LANES {
                let mut live = 0;
                for g in 0..GROUPS {
                    let word = L::gather(base, from[g]);
                    let (stops, value, header) = decode(word);
                    let next = from[g].add(header).add(value);
                    from[g] = next.min(last_wide[g]);
                    let good = next.le(last_wide[g].add(wide), stops.nonzero(alive[g]));
                    value
                        .add(header)
                        .add(header.shift_left::<{ Span::HEADER_SHIFT }>())
                        .store(spans.add((g * L::LANES + step) * L::LANES));
                    at[g] = L::blend(good, next, at[g]);
                    room[g] = L::blend(good, room[g].sub(one), room[g]);
                    alive[g] = room[g].nonzero(next.le(last_wide[g], good));
                    live += L::bits(alive[g]).count_ones();
                }
                if live <= few {
                    break;
                }
            }
            for (g, group) in groups.iter_mut().enumerate() {
                let rows = spans.add(g * L::LANES * L::LANES);
                keep(group, at[g], room[g], alive[g], |found, group| {
                    L::scatter_columns(rows, found.0.as_ptr(), group.out.as_ptr());
                });
            }
        }
    }
}

/// Headers of one byte; a longer one ends the lane. The decode is a mask, and four headers of a lane are kept in one number of a
/// register: sixteen steps write nothing to memory. (A store delays a load from the same place of another page, and the sixteen
/// loads of a gather seldom miss all rows that are being stored.)
pub(crate) struct OneByteHeaders;

/// Steps of a block of one-byte headers, and those whose headers share a number.
const STEPS: usize = 16;
const KEPT_STEPS: usize = 4;

impl<L: HeaderLanes> Block<L> for OneByteHeaders {
    const DENSE: bool = true;

    #[inline(always)]
    unsafe fn walk<const GROUPS: usize>(
        groups: &mut [Group; GROUPS],
        base: *const u8,
        _few: u32,
        _spans: *mut u32,
    ) {
        // SAFETY: as above.
        unsafe {
            let one = L::splat(1);
            let low = L::splat(0xff);
            let high = L::splat(0x80);
            let wide = L::splat(WIDE_BYTES);
            let Stand { mut at, last_wide, mut room, mut from, mut alive } = Stand::<L, GROUPS>::of(groups);
            let mut kept = [[L::splat(0); GROUPS]; STEPS / KEPT_STEPS];
            for kept in &mut kept {
                for _ in 0..KEPT_STEPS {
                    for g in 0..GROUPS {
                        let word = L::gather(base, from[g]);
                        let next = from[g].add(one).add(word.and(low));
                        from[g] = next.min(last_wide[g]);
                        kept[g] = kept[g].shift_right::<8>().add(word.shift_left::<24>());
                        let short = word.not_and(high).nonzero(alive[g]);
                        let good = next.le(last_wide[g].add(wide), short);
                        at[g] = L::blend(good, next, at[g]);
                        room[g] = L::blend(good, room[g].sub(one), room[g]);
                        alive[g] = room[g].nonzero(next.le(last_wide[g], good));
                    }
                }
            }
            for (g, group) in groups.iter_mut().enumerate() {
                keep(group, at[g], room[g], alive[g], |found, group| {
                    L::scatter_headers(kept.map(|row| row[g]), found.0.as_ptr(), group.out.as_ptr());
                });
            }
        }
    }
}

/// Hands over what the lanes of a group found, and says which can go on.
///
/// # Safety
/// `at`, `room` and `alive` are of the group's lanes after a block, and the processor has the instructions.
#[inline(always)]
unsafe fn keep<L: Lanes>(
    group: &mut Group,
    at: L,
    room: L,
    alive: L::Mask,
    write: impl FnOnce(&Row, &Group),
) {
    // SAFETY: rows are readable and writable for LANES numbers; as many spans were found as the outs are moved.
    unsafe {
        let mut found = Row([0; LANES_MAX]);
        L::load(group.room.0.as_ptr()).sub(room).store(found.0.as_mut_ptr());
        write(&found, group);
        for (out, &found) in group.out.iter_mut().zip(&found.0) {
            *out = out.add(found as usize);
        }
        at.store(group.at.0.as_mut_ptr());
        room.store(group.room.0.as_mut_ptr());
        group.alive = L::bits(alive);
    }
}

/// The stops, the value and the length of the varint at the start of each word; see `word`, here with 32 bits. Where there is no
/// stop the other two mean nothing, but their sum stays below 2^29.
///
/// # Safety
/// The processor has the instructions.
#[inline(always)]
unsafe fn decode<L: Lanes>(word: L) -> (L, L, L) {
    // SAFETY: the caller's promise.
    unsafe {
        let stops = word.not_and(L::splat(0x8080_8080));
        let below = stops.sub(L::splat(1));
        let groups = word.and(below).and(L::splat(0x7f7f_7f7f));
        let pairs = L::pick(L::splat(0x007f_007f), groups, groups.shift_right::<1>());
        let value = L::pick(L::splat(0x0000_3fff), pairs, pairs.shift_right::<2>());
        (stops, value, L::header_bytes(stops, below))
    }
}
