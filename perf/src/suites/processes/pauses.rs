//! When the machine itself stood still: the host of a virtual machine gives a CPU to others for
//! milliseconds, and what runs there cannot know.
//!
//! A process with real-time priority has a thread on each CPU that sleeps for a short time, again
//! and again. No other thread of this machine can make it late by more than some microseconds, so a
//! thread that is late by much tells of a CPU that was away.

use super::{Process, Role, say};
use crate::measure::WrongAnswer;
use serde::{Deserialize, Serialize};
use std::io::Read as _;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_micros(500);
/// What is shorter has other causes too: interrupts, a timer of the host.
const SHORTEST: Duration = Duration::from_millis(1);
/// Of `chrt`, above what else may have real-time priority on an ordinary machine.
const PRIORITY: &str = "60";

/// What the process is told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct PausesRole {}

impl PausesRole {
    pub(super) fn play(self) -> Result<(), String> {
        let is_over = AtomicBool::new(false);
        let cpus = core_affinity::get_core_ids().unwrap_or_default();
        let pauses_ns = std::thread::scope(|scope| {
            let threads: Vec<_> = cpus
                .into_iter()
                .map(|cpu| {
                    let is_over = &is_over;
                    scope.spawn(move || {
                        core_affinity::set_for_current(cpu);
                        watch(is_over)
                    })
                })
                .collect();
            say(&"ready")?;
            let _ = std::io::stdin().read(&mut [0]);
            is_over.store(true, Ordering::Relaxed);
            let each = threads.into_iter().map(|thread| thread.join().expect("it does not panic"));
            Ok::<_, String>(each.flatten().collect::<Vec<u64>>())
        })?;
        say(&pauses_ns)
    }
}

/// Pauses of this thread's CPU, in nanoseconds.
fn watch(is_over: &AtomicBool) -> Vec<u64> {
    let mut pauses_ns = Vec::new();
    let mut last = Instant::now();
    while !is_over.load(Ordering::Relaxed) {
        std::thread::sleep(NAP);
        let pause = last.elapsed().saturating_sub(NAP);
        if pause >= SHORTEST {
            pauses_ns.push(pause.as_nanos() as u64);
        }
        last = Instant::now();
    }
    pauses_ns
}

/// The process, while it watches.
pub(in crate::suites) struct PauseWatch(Process);

impl PauseWatch {
    /// `None` where a process may not have real-time priority, or there is no `chrt`.
    pub(in crate::suites) fn start() -> Option<PauseWatch> {
        let role = Role::Pauses(PausesRole {});
        let mut process = Process::start_with(&["chrt", "--fifo", PRIORITY], &role).ok()?;
        process.answer::<String>().ok()?;
        Some(PauseWatch(process))
    }

    /// What it saw, of all CPUs.
    pub(in crate::suites) fn end(mut self) -> Result<Vec<Duration>, WrongAnswer> {
        self.0.tell(&"end")?;
        let pauses_ns: Vec<u64> = self.0.answer()?;
        Ok(pauses_ns.into_iter().map(Duration::from_nanos).collect())
    }
}
