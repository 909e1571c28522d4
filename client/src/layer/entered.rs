//! Slices that a thread has begun and not ended, the innermost one last.
//!
//! ```text
//!   FIRST   |  0  |  1  | ... |  15  |     DEEPER   |  16  |  17  | ...
//!                                          of threads whose spans nest so deeply
//! ```
//!
//! The first ones need no flag that says who uses them, and nothing to do when their thread ends:
//! each span comes here twice.

use std::cell::{Cell, RefCell};

use super::site::Site;
use super::spans::Place;

/// One of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entered {
    pub(super) span_id: u64,
    /// `None`: nobody wanted it.
    pub(super) site: Option<&'static Site>,
    /// It is the span's while that is entered.
    pub(super) place: Option<&'static Place>,
    /// Bytes of fields in the extensions that it has begun with.
    pub(super) recorded_bytes: usize,
}

const FIRST_LEN: usize = 16;
const NONE: Entered = Entered { span_id: 0, site: None, place: None, recorded_bytes: 0 };

thread_local! {
    /// How many there are of both.
    static DEPTH: Cell<usize> = const { Cell::new(0) };
    static FIRST: [Cell<Entered>; FIRST_LEN] = const { [const { Cell::new(NONE) }; FIRST_LEN] };
    static DEEPER: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

#[inline]
pub(super) fn push(entered: Entered) {
    let depth = DEPTH.get();
    let is_kept = FIRST.with(|first| first.get(depth).map(|place| place.set(entered))).is_some();
    if is_kept || push_deeper(entered) {
        DEPTH.set(depth + 1);
    }
}

/// Not on a thread whose locals are gone.
#[cold]
fn push_deeper(entered: Entered) -> bool {
    DEEPER.try_with(|deeper| deeper.borrow_mut().push(entered)).is_ok()
}

/// Takes what this thread has entered last of the span.
#[inline]
pub(super) fn take(span_id: u64) -> Option<Entered> {
    let above = DEPTH.get().checked_sub(1)?;
    match FIRST.with(|first| first.get(above).map(Cell::get)) {
        Some(last) if last.span_id == span_id => {
            DEPTH.set(above);
            Some(last)
        }
        _ => take_any(span_id),
    }
}

/// There are many, or guards were dropped in another order.
#[cold]
fn take_any(span_id: u64) -> Option<Entered> {
    let take = |deeper: &mut Vec<Entered>| {
        if let Some(index) = deeper.iter().rposition(|entered| entered.span_id == span_id) {
            return Some(deeper.remove(index));
        }
        FIRST.with(|first| {
            let first = &first[..DEPTH.get().min(FIRST_LEN)];
            let index = first.iter().rposition(|entered| entered.get().span_id == span_id)?;
            let found = first[index].get();
            first[index..].windows(2).for_each(|pair| pair[0].set(pair[1].get()));
            if let Some(last) = first.last()
                && !deeper.is_empty()
            {
                last.set(deeper.remove(0));
            }
            Some(found)
        })
    };
    let found = DEEPER.try_with(|deeper| take(&mut deeper.borrow_mut())).ok().flatten()?;
    DEPTH.set(DEPTH.get() - 1);
    Some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(span_id: u64) {
        push(Entered { span_id, recorded_bytes: span_id as usize * 10, ..NONE });
    }

    fn left(span_id: u64) -> Option<usize> {
        take(span_id).map(|entered| entered.recorded_bytes)
    }

    /// As a list would, in any order and at any depth.
    #[test]
    fn each_is_taken_once_and_the_last_one_of_a_span_first() {
        const SPANS: u64 = 12;
        let mut random = 1_u64;
        let mut below = |limit: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (random >> 33) % limit
        };
        let mut expected: Vec<(u64, usize)> = Vec::new();
        for step in 0..20_000 {
            let span_id = 1 + below(SPANS);
            // Up to the double of what the first places hold, and down again.
            if below(100) < if step / 100 % 2 == 0 { 65 } else { 35 } && expected.len() < 2 * FIRST_LEN {
                push(Entered { span_id, recorded_bytes: step, ..NONE });
                expected.push((span_id, step));
            } else {
                let index = expected.iter().rposition(|(id, _)| *id == span_id);
                let recorded_bytes = index.map(|index| expected.remove(index).1);
                assert_eq!(left(span_id), recorded_bytes, "step {step}");
            }
        }
        for (span_id, recorded_bytes) in expected.into_iter().rev() {
            assert_eq!(left(span_id), Some(recorded_bytes));
        }
        assert_eq!((DEPTH.get(), left(1)), (0, None));
        enter(7);
        assert_eq!((left(8), left(7), left(7)), (None, Some(70), None));
    }
}
