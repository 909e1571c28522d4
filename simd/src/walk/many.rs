//! The walk over many chunks in lockstep: one lane of a vector for each chunk, one gather for all their headers.
//!
//! ```text
//!            lane 0   lane 1   lane 2   ...                 chunk of lane 0
//!   step 0   span     span     span          columns ---->  span span span span ...
//!   step 1   span     span     -             of a block
//!   step 2   span     -        -             are spans
//! ```
//!
//! One step is a long chain, some 40 cycles, nearly all of it the gather; but it is one chain for 16 or 32 chunks, and a header
//! costs no branch whatever its length. Lanes end at different steps. A lane that has ended stays where it is; after a block of
//! steps the spans are handed over, and all lanes that have ended are given new chunks at once, since each change between
//! vector and scalar code costs as much as a step.
//!
//! Places are 32-bit offsets, so that sixteen fit a vector: a chunk that is further than half of [`REACH_BYTES`] from the first one is
//! walked by itself.

use super::lanes::Lanes;
use super::{Job, Span, Stop, Walk, WalkOne, naive, one};

/// Offsets end here: with one header's value (below 2^28) added they must not overflow 31 bits.
const REACH_BYTES: usize = 0x6000_0000;

/// The offset of the first chunk, on which lanes without a chunk stand.
const FIRST_BYTES: usize = REACH_BYTES / 2;

/// Bytes that a gather reads at each place, and the longest header that a lane takes.
const WIDE_BYTES: u32 = 4;

/// The most lanes and groups of lanes.
const LANES_MAX: usize = 16;
const GROUPS_MAX: usize = 2;

/// `LANES_MAX` numbers, of which a level uses the first `LANES`.
#[derive(Clone, Copy)]
#[repr(align(64))]
struct Row([u32; LANES_MAX]);

/// The chunks that are under way in one group of lanes. A lane without a chunk has `owner` [`NOBODY`] and no room, and
/// stands on readable bytes.
struct Group {
    owner: [u32; LANES_MAX],
    /// Where the next header is.
    at: Row,
    /// The last place at which four bytes can be read.
    last_wide: Row,
    /// Spans that are still wanted.
    room: Row,
    /// Where the next span goes.
    out: [*mut u32; LANES_MAX],
    /// Lanes that can go on, one bit each.
    alive: u32,
}

const NOBODY: u32 = u32::MAX;

/// What all lanes have in common.
struct Batch<'j, 'a> {
    jobs: &'j mut [Job<'a>],
    next: usize,
    base: *const u8,
    one: WalkOne,
    /// Where lanes without a chunk write nothing. Writable all the same: a masked store to nowhere does not fault, but takes
    /// the processor some hundred cycles to find out.
    nowhere: *mut u32,
}

/// Walks all chunks, `GROUPS` groups of lanes at a time.
///
/// # Safety
/// The processor has what `L` and `one` need.
#[inline(always)]
pub(crate) unsafe fn walk<L: Lanes, const GROUPS: usize>(jobs: &mut [Job<'_>], one: WalkOne) {
    const { assert!(GROUPS <= GROUPS_MAX && L::LANES <= LANES_MAX) };
    let Some(first) = jobs.iter().find(|job| job.bytes.len() >= WIDE_BYTES as usize) else {
        // SAFETY: the caller's promise.
        return jobs.iter_mut().for_each(|job| unsafe { job.walk_alone(one) });
    };
    // Nothing need be at the base. An address rather than a pointer, since all chunks are reached from it.
    let base = (first.bytes.as_ptr() as usize).wrapping_sub(FIRST_BYTES) as *const u8;
    let mut spans = std::mem::MaybeUninit::<[[Row; LANES_MAX]; GROUPS]>::uninit();
    let spans = spans.as_mut_ptr().cast::<u32>();
    let mut groups = [const { Group::WITHOUT_CHUNKS }; GROUPS];
    groups.iter_mut().for_each(|group| group.out = [spans; LANES_MAX]);
    let mut batch = Batch { jobs, next: 0, base, one, nowhere: spans };
    loop {
        let mut live = 0;
        for group in &mut groups {
            // SAFETY: the caller's promise.
            unsafe { group.refill::<L>(&mut batch) };
            live += group.alive.count_ones();
        }
        if live == 0 {
            return;
        }
        // While there are chunks to come, a block ends when most lanes have.
        let few = if batch.next < batch.jobs.len() { live / 4 } else { 0 };
        // SAFETY: the lanes hold their invariants after a refill, `spans` has a row for each step of a block.
        unsafe { block::<L, GROUPS>(&mut groups, batch.base, few, spans) };
    }
}

/// Whether the chunks may be so dense that pointer doubling beats half-empty lanes.
pub(crate) fn are_dense(jobs: &[Job<'_>]) -> bool {
    let sums = |(bytes, limits): (usize, usize), job: &Job<'_>| {
        (bytes + job.bytes.len(), limits.saturating_add(job.limit))
    };
    let (bytes, limits) = jobs.iter().fold((0, 0), sums);
    bytes / one::DENSE_MEAN_BYTES < limits
}

/// Makes up to `LANES` steps, until no more than `few` lanes are alive, and hands the spans over.
///
/// # Safety
/// The groups hold their invariants, `spans` is writable for `LANES` rows of `LANES` numbers for each group.
#[inline(always)]
unsafe fn block<L: Lanes, const GROUPS: usize>(
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
        let mut at = groups.each_ref().map(|group| L::load(group.at.0.as_ptr()));
        let last_wide = groups.each_ref().map(|group| L::load(group.last_wide.0.as_ptr()));
        let mut room = groups.each_ref().map(|group| L::load(group.room.0.as_ptr()));
        // Where the gather reads: at the place, or for a lane that has ended somewhere harmless. Kept apart from `at`, so that the
        // chain from gather to gather does not wait for the tests.
        let mut from = at;
        let mut alive = [L::all(); GROUPS];
        for g in 0..GROUPS {
            from[g] = at[g].min(last_wide[g]);
            alive[g] = room[g].nonzero(at[g].le(last_wide[g], L::all()));
        }
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
            let mut found = Row([0; LANES_MAX]);
            L::load(group.room.0.as_ptr()).sub(room[g]).store(found.0.as_mut_ptr());
            L::scatter_columns(spans.add(g * L::LANES * L::LANES), found.0.as_ptr(), group.out.as_ptr());
            for (out, &found) in group.out.iter_mut().zip(&found.0) {
                *out = out.add(found as usize);
            }
            at[g].store(group.at.0.as_mut_ptr());
            room[g].store(group.room.0.as_mut_ptr());
            group.alive = L::bits(alive[g]);
        }
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

impl Group {
    /// `out` is still to be set.
    const WITHOUT_CHUNKS: Group = Group {
        owner: [NOBODY; LANES_MAX],
        at: Row([FIRST_BYTES as u32; LANES_MAX]),
        last_wide: Row([FIRST_BYTES as u32; LANES_MAX]),
        room: Row([0; LANES_MAX]),
        out: [std::ptr::null_mut(); LANES_MAX],
        alive: 0,
    };

    /// Ends the chunks of all lanes that are not alive, and gives those lanes the next chunks.
    ///
    /// # Safety
    /// The processor has what `batch.one` needs.
    #[inline(always)]
    unsafe fn refill<L: Lanes>(&mut self, batch: &mut Batch<'_, '_>) {
        let mut ended = !self.alive & ((1 << L::LANES) - 1);
        while ended != 0 {
            let lane = ended.trailing_zeros() as usize;
            ended &= ended - 1;
            // SAFETY: the lane is not alive; the caller's promise.
            unsafe {
                if self.owner[lane] != NOBODY {
                    self.end(lane, batch);
                }
                while self.owner[lane] == NOBODY && batch.next < batch.jobs.len() {
                    self.begin(lane, batch);
                }
            }
        }
    }

    /// Gives the next chunk to a lane that has none, or walks it at once if it is too short.
    ///
    /// # Safety
    /// There is a next chunk; the processor has what `batch.one` needs.
    #[inline(always)]
    unsafe fn begin(&mut self, lane: usize, batch: &mut Batch<'_, '_>) {
        let job = &mut batch.jobs[batch.next];
        let offset = (job.bytes.as_ptr() as usize).wrapping_sub(batch.base as usize);
        let in_reach = offset <= REACH_BYTES - super::MAX_BYTES;
        if job.bytes.len() < WIDE_BYTES as usize || job.limit == 0 || !in_reach {
            // SAFETY: the caller's promise.
            unsafe { job.walk_alone(batch.one) };
        } else {
            // A chunk has fewer fragments than bytes, so its limit may be cut to 32 bits.
            let at = offset as u32;
            self.at.0[lane] = at;
            self.last_wide.0[lane] = at + job.bytes.len() as u32 - WIDE_BYTES;
            self.room.0[lane] = job.limit.min(super::MAX_BYTES) as u32;
            self.out[lane] = job.spans.as_mut_ptr().cast();
            self.owner[lane] = batch.next as u32;
            self.alive |= 1 << lane;
        }
        batch.next += 1;
    }

    /// Ends the chunk of a lane: its answer is known, or what is left is walked by itself.
    ///
    /// # Safety
    /// The lane has a chunk; the processor has what `batch.one` needs.
    #[inline(always)]
    unsafe fn end(&mut self, lane: usize, batch: &mut Batch<'_, '_>) {
        let job = &mut batch.jobs[self.owner[lane] as usize];
        let room = self.room.0[lane] as usize;
        let offset = (job.bytes.as_ptr() as usize).wrapping_sub(batch.base as usize);
        let visible_bytes = self.at.0[lane] as usize - offset;
        let fragments = job.limit.min(super::MAX_BYTES) - room;
        job.found = Walk { fragments, visible_bytes, stop: Stop::Limit };
        if room > 0 {
            // SAFETY: the caller's promise.
            unsafe { finish(job, batch.one) };
        }
        self.owner[lane] = NOBODY;
        // Nothing is wanted of the lane any more; it keeps standing on readable bytes.
        self.room.0[lane] = 0;
        self.out[lane] = batch.nowhere;
    }
}

/// Walks what is left of a chunk by itself.
///
/// # Safety
/// The processor has what `one` needs.
#[cold]
#[inline(never)]
unsafe fn finish(job: &mut Job<'_>, one: WalkOne) {
    let Walk { fragments, visible_bytes, .. } = job.found;
    let bytes = &job.bytes[visible_bytes..];
    let spans = &mut job.spans[fragments..job.limit];
    let rest = if bytes.len() < 2 * super::MAX_HEADER_BYTES {
        naive::walk(bytes, spans.len(), spans)
    } else {
        // SAFETY: the rest of the job's own slices.
        unsafe { one(bytes.as_ptr(), bytes.len(), spans.len(), spans.as_mut_ptr()) }
    };
    job.found = Walk {
        fragments: fragments + rest.fragments,
        visible_bytes: visible_bytes + rest.visible_bytes,
        stop: rest.stop,
    };
}
