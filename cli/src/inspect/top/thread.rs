//! What a thread does, and how long it did what.

use super::State;

/// Time in each state, in nanoseconds.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) running: u64,
    pub(super) runnable: u64,
    pub(super) interruptible: u64,
    pub(super) uninterruptible: u64,
    pub(super) idle: u64,
    pub(super) stopped: u64,
    /// Events were missing.
    pub(super) unknown: u64,
}

impl Times {
    fn of(&mut self, state: State) -> Option<&mut u64> {
        match state {
            State::Running => Some(&mut self.running),
            State::Runnable => Some(&mut self.runnable),
            State::Interruptible => Some(&mut self.interruptible),
            State::Uninterruptible => Some(&mut self.uninterruptible),
            State::Idle => Some(&mut self.idle),
            State::Stopped => Some(&mut self.stopped),
            State::Unknown => Some(&mut self.unknown),
            State::Unseen | State::Dead => None,
        }
    }

    pub(super) fn add(&mut self, other: &Times) {
        // Threads of a hostile trace may have more time together than there is.
        let add = |sum: &mut u64, time: u64| *sum = sum.saturating_add(time);
        add(&mut self.running, other.running);
        add(&mut self.runnable, other.runnable);
        add(&mut self.interruptible, other.interruptible);
        add(&mut self.uninterruptible, other.uninterruptible);
        add(&mut self.idle, other.idle);
        add(&mut self.stopped, other.stopped);
        add(&mut self.unknown, other.unknown);
    }
}

#[derive(Debug)]
pub(super) struct Thread {
    pub(super) state: State,
    pub(super) since_ns: u64,
    /// [`Lossy::total_ns`] at that time.
    pub(super) lossy_ns: u64,
    /// Where it runs.
    pub(super) cpu: u32,
    /// It was woken while it still ran, on its way to sleep.
    pub(super) is_woken: bool,
    pub(super) times: Times,
    /// Times that it was switched to.
    pub(super) switches: u64,
}

impl Default for Thread {
    fn default() -> Self {
        Thread {
            state: State::Unseen,
            since_ns: 0,
            lossy_ns: 0,
            cpu: 0,
            is_woken: false,
            times: Times::default(),
            switches: 0,
        }
    }
}

impl Thread {
    /// From here on it is in another state. Of what it waited, `lossy_ns` tells which part is not
    /// known; a thread that runs is known to as long as its CPU's events are there.
    pub(super) fn enter(&mut self, state: State, at_ns: u64, lossy_ns: u64) {
        let time_ns = at_ns.saturating_sub(self.since_ns);
        let unknown_ns = match self.state {
            State::Running | State::Unknown => 0,
            _ => (lossy_ns - self.lossy_ns).min(time_ns),
        };
        if let Some(time) = self.times.of(self.state) {
            *time += time_ns - unknown_ns;
            self.times.unknown += unknown_ns;
        }
        (self.state, self.since_ns, self.lossy_ns) = (state, at_ns, lossy_ns);
    }

    pub(super) fn is_waiting(&self) -> bool {
        matches!(self.state, State::Interruptible | State::Uninterruptible | State::Idle | State::Stopped)
    }
}
