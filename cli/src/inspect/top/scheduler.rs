//! What every thread and CPU does, from one event to the next, and how long it did so.
//!
//! ```text
//!             switched to                 waking
//!   Runnable ─────────────> Running      Interruptible, Uninterruptible, Idle, Stopped ──> Runnable
//!      ^                       │                      ^
//!      └── preempted, yields ──┴──── waits for ───────┘            Dead: ended, not counted
//!
//!   loss on a CPU: its Running thread ──> Unknown, until it is heard of again
//! ```

use std::collections::HashMap;

use super::{Event, IDLE, PAIRS_MAX, State, THREADS_MAX, Waker, What};

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
    state: State,
    since_ns: u64,
    /// [`Lossy::total_ns`] at that time.
    lossy_ns: u64,
    /// Where it runs.
    cpu: u32,
    /// It was woken while it still ran, on its way to sleep.
    is_woken: bool,
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
    fn enter(&mut self, state: State, at_ns: u64, lossy_ns: u64) {
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

    fn is_waiting(&self) -> bool {
        matches!(self.state, State::Interruptible | State::Uninterruptible | State::Idle | State::Stopped)
    }
}

/// A CPU, from its first event on.
#[derive(Debug, Default)]
pub(super) struct Cpu {
    /// Who runs; `None` if that is not known.
    current: Option<i32>,
    since_ns: u64,
    is_seen: bool,
    is_lossy: bool,
    pub(super) busy_ns: u64,
    pub(super) idle_ns: u64,
    pub(super) unknown_ns: u64,
    pub(super) switches: u64,
}

impl Cpu {
    fn enter(&mut self, current: Option<i32>, at_ns: u64) {
        let time_ns = at_ns.saturating_sub(self.since_ns);
        if self.is_seen {
            match self.current {
                None => self.unknown_ns += time_ns,
                Some(IDLE) => self.idle_ns += time_ns,
                Some(_) => self.busy_ns += time_ns,
            }
        }
        (self.current, self.since_ns, self.is_seen) = (current, at_ns, true);
    }

    pub(super) fn is_seen(&self) -> bool {
        self.is_seen
    }
}

/// Time during which events of any CPU were missing.
#[derive(Debug, Default)]
struct Lossy {
    cpus: u32,
    since_ns: u64,
    over_ns: u64,
}

impl Lossy {
    fn begin(&mut self, at_ns: u64) {
        if self.cpus == 0 {
            self.since_ns = at_ns;
        }
        self.cpus += 1;
    }

    fn end(&mut self, at_ns: u64) {
        self.cpus -= 1;
        if self.cpus == 0 {
            self.over_ns += at_ns.saturating_sub(self.since_ns);
        }
    }

    fn total_ns(&self, at_ns: u64) -> u64 {
        self.over_ns + if self.cpus > 0 { at_ns.saturating_sub(self.since_ns) } else { 0 }
    }
}

#[derive(Debug, Default)]
pub(super) struct Scheduler {
    pub(super) threads: HashMap<i32, Thread>,
    pub(super) cpus: Vec<Cpu>,
    /// Wakings by who did it and of whom.
    pub(super) wakings: HashMap<(Waker, i32), u64>,
    /// Wakings of pairs beyond [`PAIRS_MAX`].
    pub(super) wakings_left_out: u64,
    /// Events of threads beyond [`THREADS_MAX`].
    pub(super) events_left_out: u64,
    /// Switches that contradict those before: some are not in the trace.
    pub(super) contradictions: u64,
    pub(super) first_ns: Option<u64>,
    pub(super) last_ns: u64,
    lossy: Lossy,
}

impl Scheduler {
    /// Takes the next event; none is earlier than those before.
    pub(super) fn take(&mut self, event: Event) {
        let Event { at_ns, cpu, what } = event;
        self.first_ns.get_or_insert(at_ns);
        self.last_ns = at_ns;
        let index = cpu as usize;
        if index >= self.cpus.len() {
            self.cpus.resize_with(index + 1, Cpu::default);
        }
        match what {
            What::Switch { prev, prev_state, next } => self.switch(cpu, prev, prev_state, next, at_ns),
            What::Waking { waker, tid } => self.wake(cpu, waker, tid, at_ns),
            What::Runnable { tid } => self.runnable(tid, at_ns),
            What::LostFrom if !self.cpus[index].is_lossy => {
                self.cpus[index].is_lossy = true;
                self.lossy.begin(at_ns);
                self.leave(cpu, at_ns);
            }
            What::LostUntil if self.cpus[index].is_lossy => {
                self.cpus[index].is_lossy = false;
                self.lossy.end(at_ns);
            }
            What::LostFrom | What::LostUntil => {}
        }
    }

    /// Nothing comes any more: what goes on counts up to the last event.
    pub(super) fn finish(&mut self) {
        let (at_ns, lossy_ns) = (self.last_ns, self.lossy.total_ns(self.last_ns));
        for thread in self.threads.values_mut() {
            thread.enter(State::Dead, at_ns, lossy_ns);
        }
        for cpu in self.cpus.iter_mut().filter(|cpu| cpu.is_seen) {
            cpu.enter(None, at_ns);
        }
    }

    /// Time during which events of some CPU were missing.
    pub(super) fn lossy_ns(&self) -> u64 {
        self.lossy.total_ns(self.last_ns)
    }

    fn thread(&mut self, tid: i32) -> Option<&mut Thread> {
        if tid == IDLE {
            return None;
        }
        if self.threads.len() >= THREADS_MAX && !self.threads.contains_key(&tid) {
            self.events_left_out += 1;
            return None;
        }
        Some(self.threads.entry(tid).or_default())
    }

    fn runs_on(&self, tid: i32) -> Option<u32> {
        let thread = self.threads.get(&tid).filter(|thread| thread.state == State::Running);
        thread.map(|thread| thread.cpu)
    }

    /// Who runs on that CPU is not known any more, nor since when.
    fn leave(&mut self, cpu: u32, at_ns: u64) {
        let lossy_ns = self.lossy.total_ns(at_ns);
        let cpu = &mut self.cpus[cpu as usize];
        let current = cpu.current;
        cpu.enter(None, at_ns);
        if let Some(thread) = current.and_then(|tid| self.thread(tid)) {
            thread.enter(State::Unknown, at_ns, lossy_ns);
        }
    }

    fn switch(&mut self, cpu: u32, prev: Option<i32>, prev_state: State, next: i32, at_ns: u64) {
        let current = self.cpus[cpu as usize].current;
        if let (Some(prev), Some(current)) = (prev, current)
            && prev != current
        {
            self.contradict(cpu, at_ns);
        }
        let prev = prev.or(current);
        // One thread cannot run twice.
        for tid in prev.into_iter().chain([next]) {
            if let Some(elsewhere) = self.runs_on(tid).filter(|&elsewhere| elsewhere != cpu) {
                self.contradict(elsewhere, at_ns);
            }
        }
        let lossy_ns = self.lossy.total_ns(at_ns);
        if let Some(thread) = prev.and_then(|prev| self.thread(prev)) {
            if thread.state == State::Runnable || thread.is_waiting() {
                // It ran, and nothing tells since when.
                thread.state = State::Unknown;
            }
            thread.enter(prev_state, at_ns, lossy_ns);
        }
        self.cpus[cpu as usize].enter(Some(next), at_ns);
        self.cpus[cpu as usize].switches += 1;
        if let Some(thread) = self.thread(next) {
            // It was woken before it slept, so it did not wait for that.
            if thread.is_woken && thread.is_waiting() {
                thread.state = State::Runnable;
            }
            thread.enter(State::Running, at_ns, lossy_ns);
            (thread.cpu, thread.is_woken) = (cpu, false);
            thread.switches += 1;
        }
    }

    /// A switch on that CPU is not in the trace: since the one before, who ran is not known.
    fn contradict(&mut self, cpu: u32, at_ns: u64) {
        self.contradictions += 1;
        let lossy_ns = self.lossy.total_ns(at_ns);
        let cpu = &mut self.cpus[cpu as usize];
        let current = cpu.current.take();
        cpu.enter(None, at_ns);
        if let Some(thread) = current.and_then(|tid| self.thread(tid)).filter(|t| t.state == State::Running) {
            thread.state = State::Unknown;
            thread.enter(State::Unknown, at_ns, lossy_ns);
        }
    }

    fn wake(&mut self, cpu: u32, waker: Waker, tid: i32, at_ns: u64) {
        let waker = match waker {
            Waker::Current => self.cpus[cpu as usize].current.map_or(Waker::Unknown, Waker::Thread),
            other => other,
        };
        let room = self.wakings.len() < PAIRS_MAX;
        match self.wakings.get_mut(&(waker, tid)) {
            Some(count) => *count += 1,
            None if room => drop(self.wakings.insert((waker, tid), 1)),
            None => self.wakings_left_out += 1,
        }
        self.runnable(tid, at_ns);
    }

    fn runnable(&mut self, tid: i32, at_ns: u64) {
        let lossy_ns = self.lossy.total_ns(at_ns);
        if let Some(thread) = self.thread(tid) {
            match thread.state {
                State::Running => thread.is_woken = true,
                State::Runnable => {}
                _ => thread.enter(State::Runnable, at_ns, lossy_ns),
            }
        }
    }
}
