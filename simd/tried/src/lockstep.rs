//! Many chunks in lockstep without vectors: a step makes one fragment of each of `N` chunks, whose chains overlap.

use crate::Piece;
use crate::word::{Groups, HIGH, Shifts, load};
use watershed_simd::bench::span;

/// A chunk that is under way. Invariant: a word is readable at `at`, which is at most `last`; `fragments <= limit`.
#[derive(Clone, Copy)]
struct Lane {
    piece: usize,
    start: *const u8,
    at: *const u8,
    last: *const u8,
    fragments: usize,
    limit: usize,
    out: *mut watershed_simd::Span,
}

pub(crate) fn walk<const N: usize>(pieces: &mut [Piece<'_>]) {
    #[cfg(target_arch = "x86_64")]
    if crate::word::Pext::is_here() {
        // SAFETY: asked just now.
        return unsafe { crate::word::Pext::enabled(|| lanes::<crate::word::Pext, N>(pieces)) };
    }
    // SAFETY: every processor has these.
    unsafe { lanes::<Shifts, N>(pieces) }
}

/// # Safety
/// The processor has the instructions of `G`.
#[inline(always)]
unsafe fn lanes<G: Groups, const N: usize>(pieces: &mut [Piece<'_>]) {
    let mut waiting = 0;
    let mut begin = |pieces: &mut [Piece<'_>]| loop {
        let piece = pieces.get_mut(waiting)?;
        waiting += 1;
        if piece.bytes.len() >= 8 && piece.limit > 0 {
            let start = piece.bytes.as_ptr();
            // SAFETY: eight bytes are left behind it.
            let last = unsafe { start.add(piece.bytes.len() - 8) };
            let (limit, out) = (piece.limit, piece.spans.as_mut_ptr());
            return Some(Lane { piece: waiting - 1, start, at: start, last, fragments: 0, limit, out });
        }
        piece.finish(0, 0);
    };
    let first: [Option<Lane>; N] = std::array::from_fn(|_| begin(pieces));
    if first.iter().any(Option::is_none) {
        // Too few chunks for a step.
        let begun = first.iter().flatten().map(|lane| lane.piece).collect::<Vec<_>>();
        begun.into_iter().for_each(|piece| pieces[piece].finish(0, 0));
        return;
    }
    let mut lanes = first.map(|lane| lane.expect("looked at just now"));
    loop {
        for lane in &mut lanes {
            // SAFETY: the lane's invariant; the processor has the instructions; fragments < limit, which is at most the spans' number.
            unsafe {
                let word = load(lane.at);
                let stops = !word & HIGH;
                let body = G::together(word, stops.wrapping_sub(1)) | u64::from(stops == 0) << 40;
                let header = (stops.trailing_zeros() as usize >> 3) + 1;
                let next = lane.at.wrapping_add(header).wrapping_add(body as usize);
                if next <= lane.last && next >= lane.at && lane.fragments < lane.limit {
                    *lane.out.add(lane.fragments) = span(header, next as usize - lane.at as usize);
                    lane.fragments += 1;
                    lane.at = next;
                    continue;
                }
            }
            pieces[lane.piece].finish(lane.fragments, lane.at as usize - lane.start as usize);
            if let Some(next) = begin(pieces) {
                *lane = next;
                continue;
            }
            // No more chunks: the others go on by themselves, from where they are.
            let ended = lane.piece;
            for lane in lanes.iter().filter(|lane| lane.piece != ended) {
                pieces[lane.piece].finish(lane.fragments, lane.at as usize - lane.start as usize);
            }
            return;
        }
    }
}
