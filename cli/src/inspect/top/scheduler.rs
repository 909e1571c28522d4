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

use super::comms::Comm;
use super::lives::{End, LifeId, Lives, Maker};
use super::thread::Thread;
use super::{Event, IDLE, PAIRS_MAX, State, Waker, What};

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

/// Who woke a thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) enum By {
    Thread(LifeId),
    Idle,
    Interrupt,
    Unknown,
}

#[derive(Debug, Default)]
pub(super) struct Scheduler {
    pub(super) lives: Lives,
    pub(super) cpus: Vec<Cpu>,
    /// Wakings by who did it and of whom.
    pub(super) wakings: HashMap<(By, LifeId), u64>,
    /// Wakings of pairs beyond [`PAIRS_MAX`].
    pub(super) wakings_left_out: u64,
    /// Events of threads beyond the limit.
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
            What::Switch { prev, prev_comm, prev_state, next, next_comm } => {
                if let Some(prev) = prev {
                    self.hear(prev, prev_comm, at_ns);
                }
                self.hear(next, next_comm, at_ns);
                self.switch(cpu, prev, prev_state, next, at_ns);
            }
            What::Waking { waker, tid, comm } => {
                self.hear(tid, comm, at_ns);
                self.wake(cpu, waker, tid, at_ns);
                self.runnable(tid, at_ns);
            }
            What::Runnable { tid, comm } => {
                self.hear(tid, comm, at_ns);
                self.runnable(tid, at_ns);
            }
            What::New { tid, comm, maker, is_thread } => {
                self.begin(tid, maker, is_thread, at_ns);
                self.hear(tid, comm, at_ns);
                self.runnable(tid, at_ns);
            }
            What::Renamed { tid, comm } => self.hear(tid, comm, at_ns),
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
        for life in self.lives.all_mut() {
            life.thread.enter(State::Dead, at_ns, lossy_ns);
        }
        for cpu in self.cpus.iter_mut().filter(|cpu| cpu.is_seen) {
            cpu.enter(None, at_ns);
        }
    }

    /// Time during which events of some CPU were missing.
    pub(super) fn lossy_ns(&self) -> u64 {
        self.lossy.total_ns(self.last_ns)
    }

    /// A thread has been made, whoever had its number before.
    fn begin(&mut self, tid: i32, maker: i32, is_thread: bool, at_ns: u64) {
        if tid == IDLE {
            return;
        }
        if let Some(cpu) = self.runs_on(tid) {
            self.leave(cpu, at_ns);
        }
        let lossy_ns = self.lossy.total_ns(at_ns);
        if let Some(before) = self.thread(tid).filter(|thread| thread.state != State::Unseen) {
            if before.state != State::Dead {
                // Nobody told when it ended.
                before.state = State::Unknown;
            }
            before.enter(State::Dead, at_ns, lossy_ns);
        }
        let maker = if is_thread { Maker::Thread(self.life(maker, at_ns)) } else { Maker::AnotherProcess };
        self.lives.begin(tid, at_ns, maker);
    }

    /// An event names a thread, which may be another one than the last of that number.
    fn hear(&mut self, tid: i32, comm: Comm, at_ns: u64) {
        let Some(mut id) = self.life(tid, at_ns) else {
            return;
        };
        let life = self.lives.get_mut(id);
        let is_other = match life.end {
            End::NotYet => false,
            End::Told => true,
            End::Concluded => comm.is_some() && life.comm.is_some() && comm != life.comm,
        };
        if is_other {
            id = self.lives.begin(tid, at_ns, Maker::Unknown).unwrap_or(id);
        }
        let life = self.lives.get_mut(id);
        if life.end != End::NotYet {
            // It was the end of another one, the switch to which is missing.
            (life.end, life.thread.state) = (End::NotYet, State::Unknown);
            self.contradictions += 1;
        }
        if comm.is_some() {
            life.comm = comm;
        }
    }

    /// The latest life of a number, which is a new one if nothing was heard of it.
    fn life(&mut self, tid: i32, at_ns: u64) -> Option<LifeId> {
        if tid == IDLE {
            return None;
        }
        let life = self.lives.latest(tid).or_else(|| self.lives.begin(tid, at_ns, Maker::Unknown));
        self.events_left_out += u64::from(life.is_none());
        life
    }

    fn thread(&mut self, tid: i32) -> Option<&mut Thread> {
        let life = self.lives.latest(tid)?;
        Some(&mut self.lives.get_mut(life).thread)
    }

    fn runs_on(&self, tid: i32) -> Option<u32> {
        let thread = &self.lives.get(self.lives.latest(tid)?).thread;
        (thread.state == State::Running).then_some(thread.cpu)
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
        if prev.is_none() && current == Some(next) && next != IDLE {
            // Whoever ran between, it is that one's state.
            self.contradict(cpu, at_ns);
        }
        let (is_told, prev) = (prev.is_some(), prev.or(self.cpus[cpu as usize].current));
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
        if prev_state == State::Dead
            && let Some(life) = prev.and_then(|prev| self.lives.latest(prev))
        {
            self.lives.get_mut(life).end = if is_told { End::Told } else { End::Concluded };
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

    /// Counts a waking.
    fn wake(&mut self, cpu: u32, waker: Waker, tid: i32, at_ns: u64) {
        let current = self.cpus[cpu as usize].current;
        let waker = match waker {
            Waker::Current => current.map_or(Waker::Unknown, Waker::Thread),
            other => other,
        };
        let by = match waker {
            Waker::Thread(IDLE) => By::Idle,
            Waker::Thread(waker) => self.life(waker, at_ns).map_or(By::Unknown, By::Thread),
            Waker::Interrupt => By::Interrupt,
            Waker::Current | Waker::Unknown => By::Unknown,
        };
        let Some(woken) = self.lives.latest(tid) else {
            self.wakings_left_out += 1;
            return;
        };
        let room = self.wakings.len() < PAIRS_MAX;
        match self.wakings.get_mut(&(by, woken)) {
            Some(count) => *count += 1,
            None if room => drop(self.wakings.insert((by, woken), 1)),
            None => self.wakings_left_out += 1,
        }
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
