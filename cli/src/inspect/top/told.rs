//! What process trees and tracks tell of a number, and when.

use std::collections::HashMap;
use std::ops::Range;

use super::THREADS_MAX;

/// Something that was so from one time to another; what has no date was always so.
#[derive(Debug)]
struct Dated<T> {
    from_ns: u64,
    until_ns: u64,
    what: T,
}

#[derive(Debug)]
pub(super) struct Told<T> {
    of: HashMap<i32, Vec<Dated<T>>>,
    count: usize,
}

impl<T> Default for Told<T> {
    fn default() -> Self {
        Told { of: HashMap::new(), count: 0 }
    }
}

impl<T: PartialEq> Told<T> {
    /// Beyond the limit nothing new is taken, and what is told again was so all the time.
    pub(super) fn take(&mut self, id: i32, at_ns: Option<u64>, what: T) {
        let (from_ns, until_ns) = at_ns.map_or((0, u64::MAX), |at_ns| (at_ns, at_ns));
        if self.count < THREADS_MAX {
            self.count += 1;
            self.of.entry(id).or_default().push(Dated { from_ns, until_ns, what });
        } else if let Some(last) = self.of.get_mut(&id).and_then(|told| told.last_mut())
            && last.what == what
        {
            (last.from_ns, last.until_ns) = (last.from_ns.min(from_ns), last.until_ns.max(until_ns));
        }
    }

    /// The latest that was so at some time of the span, and until when in it.
    pub(super) fn within(&self, id: i32, span: &Range<u64>) -> Option<(&T, u64)> {
        let mut told = self.of.get(&id)?.iter().rev();
        let told = told.find(|told| told.from_ns < span.end && told.until_ns >= span.start)?;
        Some((&told.what, told.until_ns.min(span.end - 1)))
    }
}
