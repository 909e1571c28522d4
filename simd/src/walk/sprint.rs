//! The walk over many dense chunks without vectors: one-byte headers, eight chains side by side in general registers.
//!
//! ```text
//!              race: sixteen steps             settle, lane by lane
//!   chunk 0    at --> at --> at --> at         a row of header bytes: all below 0x80?
//!   chunk 1    at --> at --> at --> at         then they become spans, all together
//!   ...
//! ```
//!
//! A chain is a load and an addition, six cycles or more of which the processor only waits; eight of them keep it busy, and what counts
//! is the number of instructions. So the race asks nothing: it takes each byte for a header, whatever it is, and keeps it. Only the
//! place is held within the chunk, by a conditional move. A byte that was no header of one byte shows afterwards, once for sixteen
//! fragments, and costs the lane the steps behind it.
//!
//! A gather has each lane wait for the slowest of all; here a chain waits for its own load alone. There are no intrinsics: the compiler
//! makes vectors of the second part, whose lengths are therefore constants.

use super::one::GRACE;
use super::{Job, Span, Stop, Walk, WalkOne};
use crate::word::opaque;

/// Chains side by side: with more, places do not stay in the general registers of x86-64.
const LANES: usize = 8;

/// Steps of a race. With more of them, lanes that have ended run on for longer; with fewer, the settling weighs more.
const STEPS: usize = 16;

/// Where lanes without a chunk stand.
static NOWHERE: u8 = 0;

const NOBODY: usize = usize::MAX;

/// The header bytes that a race met in one lane.
type Row = [u8; STEPS];

/// A chunk under way, but for its place.
#[derive(Clone, Copy)]
struct Lane {
    owner: usize,
    /// Where the next span goes.
    out: *mut Span,
    /// Spans that are still wanted.
    room: usize,
    /// The room when the chunk began, or when it last met a longer header.
    room_before: usize,
}

/// All lanes. Invariants: `at[i] <= last[i]`, which is the last byte of the lane's chunk or, without one, [`NOWHERE`]; `room` spans are
/// writable at `out`.
struct Track<'j, 'a> {
    jobs: &'j mut [Job<'a>],
    next: usize,
    one: WalkOne,
    at: [*const u8; LANES],
    last: [*const u8; LANES],
    lanes: [Lane; LANES],
    live: usize,
}

/// Walks the [dense](Job::is_dense) chunks.
///
/// # Safety
/// The processor has what `one` needs.
#[inline(always)]
pub(crate) unsafe fn walk(jobs: &mut [Job<'_>], one: WalkOne) {
    let idle = Lane { owner: NOBODY, out: std::ptr::null_mut(), room: 0, room_before: 0 };
    let places = [&raw const NOWHERE; LANES];
    let mut track = Track { jobs, next: 0, one, at: places, last: places, lanes: [idle; LANES], live: 0 };
    (0..LANES).for_each(|lane| track.refill(lane));
    let mut rows = [[0; STEPS]; LANES];
    // A chunk that is left alone has more of the walk over one chunk.
    while track.live > 1 {
        // SAFETY: the invariant of the lanes.
        let reached = unsafe { race(&track.at, &track.last, &mut rows) };
        for (lane, row) in rows.iter().enumerate() {
            // SAFETY: this is what the race met and where it came to; the caller's promise.
            unsafe { track.settle(lane, row, reached[lane]) };
        }
    }
    for lane in 0..LANES {
        if track.lanes[lane].owner != NOBODY {
            // SAFETY: the caller's promise.
            unsafe { track.end(lane) };
        }
    }
}

/// Walks [`STEPS`] fragments of each lane as if all had one-byte headers, and keeps these bytes. A place from `last` on becomes `last`.
/// Returns the places.
///
/// # Safety
/// `at[i] ..= last[i]` is readable, and `at[i] <= last[i]`.
#[inline(always)]
#[expect(
    clippy::needless_range_loop,
    reason = "with an iterator the compiler spills some of the places, and it was slower"
)]
unsafe fn race(
    at: &[*const u8; LANES],
    last: &[*const u8; LANES],
    rows: &mut [Row; LANES],
) -> [*const u8; LANES] {
    let (mut at, last) = (*at, *last);
    for step in 0..STEPS {
        for lane in 0..LANES {
            let behind = at[lane].wrapping_add(1);
            // SAFETY: the place is at most `last`.
            let header = unsafe { *at[lane] };
            rows[lane][step] = header;
            let next = behind.wrapping_add(opaque(header.into()));
            at[lane] = if next >= last[lane] { last[lane] } else { next };
        }
    }
    at
}

/// Whether a header of the row is longer than a byte. In words, which leave the bytes themselves to the vectors of [`spans_of`].
#[inline(always)]
fn any_long(row: &Row) -> bool {
    let words = row.as_chunks().0.iter().map(|&word| u64::from_ne_bytes(word));
    words.fold(0, |all, word| all | word) & crate::word::HIGH != 0
}

/// By value: the compiler need not fear that the spans are written over the row.
#[inline(always)]
fn spans_of(row: Row) -> [Span; STEPS] {
    row.map(|header| Span::pack(1, u32::from(header) + 1))
}

impl Track<'_, '_> {
    /// Gives a lane that has no chunk the next one, if there is one.
    #[inline(always)]
    fn refill(&mut self, lane: usize) {
        while let Some(job) = self.jobs.get_mut(self.next) {
            self.next += 1;
            if job.is_dense() {
                let bytes = job.bytes.as_ptr_range();
                self.at[lane] = bytes.start;
                self.last[lane] = bytes.end.wrapping_sub(1);
                let (owner, out, room) = (self.next - 1, job.spans.as_mut_ptr(), job.limit);
                self.lanes[lane] = Lane { owner, out, room, room_before: room };
                self.live += 1;
                return;
            }
        }
    }

    /// Makes spans of what a lane met.
    ///
    /// # Safety
    /// `row` is what the lane met in a race, `reached` where it came to, and the processor has what `one` needs.
    #[inline(always)]
    unsafe fn settle(&mut self, lane: usize, row: &Row, reached: *const u8) {
        let place = &mut self.lanes[lane];
        if place.room > STEPS && reached < self.last[lane] && !any_long(row) {
            // SAFETY: there is room for more than these spans.
            unsafe { place.out.cast::<[Span; STEPS]>().write(spans_of(*row)) };
            place.out = place.out.wrapping_add(STEPS);
            place.room -= STEPS;
            self.at[lane] = reached;
        } else if place.owner != NOBODY {
            // SAFETY: the caller's promise.
            unsafe { self.settle_last(lane, row) };
        }
    }

    /// As [`Self::settle`] for a row of which not all counts: the chunk ends, fewer are wanted, or a header is longer.
    ///
    /// # Safety
    /// As there, and the lane has a chunk.
    #[inline(always)]
    unsafe fn settle_last(&mut self, lane: usize, row: &Row) {
        let Lane { out, room, .. } = self.lanes[lane];
        let wanted = STEPS.min(room);
        let mut headers = *row;
        for (i, header) in headers.iter_mut().enumerate() {
            *header = if i < wanted { *header } else { 0 };
        }
        let bodies = headers.iter().map(|&header| usize::from(header)).sum::<usize>();
        let left = self.last[lane] as usize + 1 - self.at[lane] as usize;
        if any_long(&headers) || wanted + bodies > left {
            // SAFETY: the caller's promise.
            return unsafe { self.stumble(lane, &row[..wanted]) };
        }
        // SAFETY: there is room for as many spans as are wanted.
        unsafe { out.copy_from_nonoverlapping(spans_of(headers).as_ptr(), wanted) };
        self.at[lane] = self.at[lane].wrapping_add(wanted + bodies);
        self.lanes[lane].out = out.wrapping_add(wanted);
        self.lanes[lane].room -= wanted;
        if wanted == room || wanted + bodies == left {
            // SAFETY: the caller's promise.
            unsafe { self.end(lane) };
            self.refill(lane);
        }
    }

    /// Takes the fragments in front of the first that has a longer header or does not fit, and then that one by itself. A lane that
    /// has stumbled not long ago is walked to its end.
    ///
    /// # Safety
    /// The lane has a chunk and room for a row of this length, which it met in a race, and the processor has what `one` needs.
    #[cold]
    #[inline(never)]
    unsafe fn stumble(&mut self, lane: usize, row: &[u8]) {
        let Lane { owner, room, room_before, .. } = self.lanes[lane];
        let job = &mut self.jobs[owner];
        let mut offset = self.at[lane] as usize - job.bytes.as_ptr() as usize;
        let mut fragments = job.limit - room;
        for &header in row {
            let total_bytes = usize::from(header) + 1;
            if header >= 0x80 || total_bytes > job.bytes.len() - offset {
                break;
            }
            job.spans[fragments] = Span::pack(1, total_bytes as u32);
            fragments += 1;
            offset += total_bytes;
        }
        let is_used_to = fragments - (job.limit - room_before) >= GRACE;
        let stepped = is_used_to.then(|| job.step(offset, fragments)).flatten();
        if let Some(bytes) = stepped {
            fragments += 1;
            offset += bytes;
        }
        let room = job.limit - fragments;
        let goes_on = stepped.is_some() && room > 0 && offset < job.bytes.len();
        // SAFETY: the offset is at most the length, the spans are at most the limit.
        unsafe {
            self.at[lane] = job.bytes.as_ptr().add(offset);
            self.lanes[lane] =
                Lane { owner, out: job.spans.as_mut_ptr().add(fragments), room, room_before: room };
        }
        if !goes_on {
            // SAFETY: the caller's promise.
            unsafe { self.end(lane) };
            self.refill(lane);
        }
    }

    /// Ends the chunk of a lane: its answer is known, or what is left is walked by itself.
    ///
    /// # Safety
    /// The lane has a chunk, and the processor has what `one` needs.
    #[inline(always)]
    unsafe fn end(&mut self, lane: usize) {
        let Lane { owner, room, .. } = self.lanes[lane];
        let job = &mut self.jobs[owner];
        let visible_bytes = self.at[lane] as usize - job.bytes.as_ptr() as usize;
        job.found = Walk { fragments: job.limit - room, visible_bytes, stop: Stop::Limit };
        if room > 0 {
            // SAFETY: the caller's promise.
            unsafe { job.finish(self.one) };
        }
        self.lanes[lane] = Lane { owner: NOBODY, room: 0, ..self.lanes[lane] };
        self.at[lane] = &NOWHERE;
        self.last[lane] = &NOWHERE;
        self.live -= 1;
    }
}
