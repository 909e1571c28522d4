//! Events of all CPUs, or of all writers, in the order of time, with a bounded number of them held
//! back.
//!
//! A recorder reads each CPU once in a drain period, so an event is at most that late, and behind
//! it are the other CPUs' events of that period. When the buffer is full the earlier half of it
//! goes. Events that come later than one that has gone are taken as of its time, and counted.

/// Events held back: with 200,000 a second some seconds, and about 40 MiB.
const HELD_MAX: usize = 1 << 20;

/// Something that has a time.
pub(in crate::inspect) trait Timed {
    fn at_ns(&self) -> u64;
    fn put_at(&mut self, at_ns: u64);
}

#[derive(Debug)]
pub(in crate::inspect) struct Order<E> {
    held: Vec<E>,
    held_max: usize,
    /// Up to where events have gone.
    gone_ns: u64,
    late: u64,
}

impl<E: Timed> Default for Order<E> {
    fn default() -> Self {
        Self::with_limit(HELD_MAX)
    }
}

impl<E: Timed> Order<E> {
    /// At least 2.
    pub(super) fn with_limit(held_max: usize) -> Self {
        Order { held: Vec::new(), held_max, gone_ns: 0, late: 0 }
    }

    /// Takes an event; `emit` gets those whose turn it is.
    pub(in crate::inspect) fn push(&mut self, mut event: E, emit: &mut dyn FnMut(E)) {
        if event.at_ns() < self.gone_ns {
            self.late += 1;
            event.put_at(self.gone_ns);
        }
        self.held.push(event);
        if self.held.len() >= self.held_max {
            self.release(self.held_max / 2, emit);
        }
    }

    pub(in crate::inspect) fn finish(&mut self, emit: &mut dyn FnMut(E)) {
        self.release(self.held.len(), emit);
    }

    fn release(&mut self, count: usize, emit: &mut dyn FnMut(E)) {
        // Stable: events of one moment stay in the order of the trace.
        self.held.sort_by_key(Timed::at_ns);
        for event in self.held.drain(..count) {
            self.gone_ns = event.at_ns();
            emit(event);
        }
    }

    /// Events that came too late for their place.
    pub(in crate::inspect) fn late(&self) -> u64 {
        self.late
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inspect::top::{Event, What};

    fn ordered(times: &[u64]) -> (Vec<u64>, u64) {
        let mut order = Order::with_limit(4);
        let mut gone = Vec::new();
        let mut emit = |event: Event| gone.push(event.at_ns);
        for &at_ns in times {
            order.push(Event { at_ns, cpu: 0, what: What::LostFrom }, &mut emit);
        }
        order.finish(&mut emit);
        (gone, order.late())
    }

    #[test]
    fn events_go_in_the_order_of_time() {
        assert_eq!(ordered(&[3, 4, 1, 2, 6, 5, 8, 7]), (vec![1, 2, 3, 4, 5, 6, 7, 8], 0));
        assert_eq!(ordered(&[]), (vec![], 0));
    }

    #[test]
    fn one_that_is_too_late_is_taken_as_of_now() {
        assert_eq!(ordered(&[5, 6, 7, 8, 1, 9]), (vec![5, 6, 6, 7, 8, 9], 1));
    }
}
