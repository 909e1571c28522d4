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
//! What a step does is a [`Block`]'s matter: one for headers of any length, one for dense chunks, which have headers of one byte. The
//! latter end at a longer header; a lane that has not met one for a while steps over it.
//!
//! Places are 32-bit offsets, so that sixteen fit a vector: a chunk that is further than half of [`REACH_BYTES`] from the first one is
//! walked by itself.

use super::blocks::Block;
use super::lanes::Lanes;
use super::one::GRACE;
use super::{Job, Stop, Walk, WalkOne};

/// Offsets end here: with one header's value (below 2^28) added they must not overflow 31 bits.
const REACH_BYTES: usize = 0x6000_0000;

/// The offset of the first chunk, on which lanes without a chunk stand.
const FIRST_BYTES: usize = REACH_BYTES / 2;

/// Bytes that a gather reads at each place, and the longest header that a lane takes.
pub(super) const WIDE_BYTES: u32 = 4;

/// The most lanes and groups of lanes.
pub(super) const LANES_MAX: usize = 16;
const GROUPS_MAX: usize = 2;

/// `LANES_MAX` numbers, of which a level uses the first `LANES`.
#[derive(Clone, Copy)]
#[repr(align(64))]
pub(super) struct Row(pub(super) [u32; LANES_MAX]);

/// The chunks that are under way in one group of lanes. A lane without a chunk has `owner` [`NOBODY`] and no room, and
/// stands on readable bytes.
pub(crate) struct Group {
    owner: [u32; LANES_MAX],
    /// Where the next header is.
    pub(super) at: Row,
    /// The last place at which four bytes can be read.
    pub(super) last_wide: Row,
    /// Spans that are still wanted.
    pub(super) room: Row,
    /// The room when the lane's chunk began, or when it last met a header that the block did not take.
    room_before: [u32; LANES_MAX],
    /// Where the next span goes.
    pub(super) out: [*mut u32; LANES_MAX],
    /// Lanes that can go on, one bit each.
    pub(super) alive: u32,
}

const NOBODY: u32 = u32::MAX;

/// What all lanes have in common.
struct Batch<'j, 'a> {
    jobs: &'j mut [Job<'a>],
    next: usize,
    /// Chunks that this kind of block is not for.
    others: usize,
    base: *const u8,
    one: WalkOne,
    /// Where lanes without a chunk write nothing. Writable all the same: a masked store to nowhere does not fault, but takes
    /// the processor some hundred cycles to find out.
    nowhere: *mut u32,
}

/// Walks those chunks that `B` is for, `GROUPS` groups of lanes at a time. Returns how many it is not for.
///
/// # Safety
/// The processor has what `L`, `B` and `one` need.
#[inline(always)]
pub(crate) unsafe fn walk<L: Lanes, B: Block<L>, const GROUPS: usize>(
    jobs: &mut [Job<'_>],
    one: WalkOne,
) -> usize {
    const { assert!(GROUPS <= GROUPS_MAX && L::LANES <= LANES_MAX) };
    let first = jobs.iter().find(|job| job.bytes.len() >= WIDE_BYTES as usize);
    // Without a first chunk no lane gets any. Nothing need be at the base. An address rather than a pointer, since all chunks are
    // reached from it.
    let base = first.map_or(0, |job| job.bytes.as_ptr() as usize).wrapping_sub(FIRST_BYTES) as *const u8;
    let mut spans = std::mem::MaybeUninit::<[[Row; LANES_MAX]; GROUPS]>::uninit();
    let spans = spans.as_mut_ptr().cast::<u32>();
    let mut groups = [const { Group::WITHOUT_CHUNKS }; GROUPS];
    groups.iter_mut().for_each(|group| group.out = [spans; LANES_MAX]);
    let mut batch = Batch { jobs, next: 0, others: 0, base, one, nowhere: spans };
    loop {
        let mut live = 0;
        for group in &mut groups {
            // SAFETY: the caller's promise.
            unsafe { group.refill::<L, B>(&mut batch) };
            live += group.alive.count_ones();
        }
        if live == 0 {
            return batch.others;
        }
        // While there are chunks to come, a block ends when most lanes have.
        let few = if batch.next < batch.jobs.len() { live / 4 } else { 0 };
        // SAFETY: the lanes hold their invariants after a refill, `spans` has a row for each step of a block.
        unsafe { B::walk(&mut groups, batch.base, few, spans) };
    }
}

impl Group {
    /// `out` is still to be set.
    const WITHOUT_CHUNKS: Group = Group {
        owner: [NOBODY; LANES_MAX],
        at: Row([FIRST_BYTES as u32; LANES_MAX]),
        last_wide: Row([FIRST_BYTES as u32; LANES_MAX]),
        room: Row([0; LANES_MAX]),
        room_before: [0; LANES_MAX],
        out: [std::ptr::null_mut(); LANES_MAX],
        alive: 0,
    };

    /// Ends the chunks of all lanes that are not alive, and gives those lanes the next chunks.
    ///
    /// # Safety
    /// The processor has what `batch.one` needs.
    #[inline(always)]
    unsafe fn refill<L: Lanes, B: Block<L>>(&mut self, batch: &mut Batch<'_, '_>) {
        let mut ended = !self.alive & ((1 << L::LANES) - 1);
        while ended != 0 {
            let lane = ended.trailing_zeros() as usize;
            ended &= ended - 1;
            // SAFETY: the lane is not alive; the caller's promise.
            unsafe {
                if self.owner[lane] != NOBODY && !(B::DENSE && self.step_over(lane, batch)) {
                    self.end(lane, batch);
                }
                while self.owner[lane] == NOBODY && batch.next < batch.jobs.len() {
                    self.begin::<L, B>(lane, batch);
                }
            }
        }
    }

    /// Gives the next chunk to a lane that has none, or walks it at once if it is too short.
    ///
    /// # Safety
    /// There is a next chunk; the processor has what `batch.one` needs.
    #[inline(always)]
    unsafe fn begin<L: Lanes, B: Block<L>>(&mut self, lane: usize, batch: &mut Batch<'_, '_>) {
        let job = &mut batch.jobs[batch.next];
        batch.next += 1;
        if job.is_dense() != B::DENSE {
            batch.others += 1;
            return;
        }
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
            self.room_before[lane] = self.room.0[lane];
            self.out[lane] = job.spans.as_mut_ptr().cast();
            self.owner[lane] = batch.next as u32 - 1;
            self.alive |= 1 << lane;
        }
    }

    /// Takes one fragment whose header the block did not take. False if there is none, or if the last one was not long ago.
    ///
    /// # Safety
    /// The lane has a chunk.
    #[inline(always)]
    unsafe fn step_over(&mut self, lane: usize, batch: &mut Batch<'_, '_>) -> bool {
        let room = self.room.0[lane];
        if room == 0 || self.room_before[lane] - room < GRACE as u32 {
            return false;
        }
        let job = &mut batch.jobs[self.owner[lane] as usize];
        let offset = (job.bytes.as_ptr() as usize).wrapping_sub(batch.base as usize);
        let fragments = job.limit.min(super::MAX_BYTES) - room as usize;
        let Some(bytes) = job.step(self.at.0[lane] as usize - offset, fragments) else { return false };
        self.at.0[lane] += bytes as u32;
        self.room.0[lane] = room - 1;
        self.room_before[lane] = room - 1;
        self.out[lane] = job.spans.as_mut_ptr().wrapping_add(fragments + 1).cast();
        let goes_on = room > 1 && self.at.0[lane] <= self.last_wide.0[lane];
        self.alive |= u32::from(goes_on) << lane;
        goes_on
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
            unsafe { job.finish(batch.one) };
        }
        self.owner[lane] = NOBODY;
        // Nothing is wanted of the lane any more; it keeps standing on readable bytes.
        self.room.0[lane] = 0;
        self.out[lane] = batch.nowhere;
    }
}
