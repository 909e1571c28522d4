//! Slices that a thread has begun and not ended.

use std::cell::RefCell;

use super::site::Site;
use super::spans::Place;

/// One of them.
pub(super) struct Entered {
    pub(super) span_id: u64,
    /// `None`: nobody wanted it.
    pub(super) site: Option<&'static Site>,
    /// It is the span's while that is entered.
    pub(super) place: Option<&'static Place>,
    /// Bytes of fields in the extensions that it has begun with.
    pub(super) recorded_bytes: usize,
}

thread_local! {
    static ENTERED: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

#[inline]
pub(super) fn push(entered: Entered) {
    let _ = ENTERED.try_with(|all| all.try_borrow_mut().map(|mut all| all.push(entered)));
}

/// Takes what this thread has entered last of the span.
#[inline]
pub(super) fn take(span_id: u64) -> Option<Entered> {
    let take = |entered: &RefCell<Vec<Entered>>| {
        let mut entered = entered.try_borrow_mut().ok()?;
        entered.pop_if(|last| last.span_id == span_id).or_else(|| take_below(&mut entered, span_id))
    };
    ENTERED.try_with(take).ok().flatten()
}

/// Guards were dropped in another order.
#[cold]
fn take_below(entered: &mut Vec<Entered>, span_id: u64) -> Option<Entered> {
    let index = entered.iter().rposition(|entered| entered.span_id == span_id)?;
    Some(entered.remove(index))
}
