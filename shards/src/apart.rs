//! Threads at one piece of work, each on a CPU of its own.
//!
//! Who wakes a thread wants it on an idle CPU, and Linux looks for one, but not for long: the busier the CPUs that share a cache were of late, the
//! fewer of them it looks at, and of two it looks at none. Then the woken thread waits behind the one that woke it, until the
//! balancer moves one of them, milliseconds later. A read or a clone takes no longer than that. So each thread says where it runs, and who finds
//! that another of the same work runs there goes to a CPU that none of them has. As long as some have not begun, the others give way to them.

use std::sync::{Mutex, PoisonError};
use std::thread::{self, ThreadId};

use crate::topology::current_cpu;

/// Where one thread was when it last looked.
#[derive(Debug)]
struct Place {
    thread: ThreadId,
    cpu_id: usize,
    num_moves: usize,
    num_yields: usize,
}

/// How often a thread goes elsewhere: where the system keeps bringing threads together, others need the CPUs.
const MOST_MOVES: usize = 8;

/// How often a thread gives way to those that have not begun: they may be busy elsewhere.
const MOST_YIELDS: usize = 16;

/// The CPUs of the threads that share a piece of work.
#[derive(Debug)]
pub(crate) struct Apart {
    /// How many will come, if they can.
    num_threads: usize,
    places: Mutex<Vec<Place>>,
}

impl Apart {
    pub(crate) fn new(num_threads: usize) -> Apart {
        Apart { num_threads, places: Mutex::new(Vec::with_capacity(num_threads)) }
    }

    /// To be called by each thread when it begins with a part of the work, which takes tens of microseconds or more: if another of this work is
    /// on the same CPU, it goes on on one that none of them has and that it may use, if there is one. What CPUs it may use is the same
    /// afterwards.
    pub(crate) fn settle(&self) {
        if self.settle_from(current_cpu(), system::leave) {
            thread::yield_now();
        }
    }

    /// The same for who is at `cpu_id`; `leave` goes to a CPU that is none of those given and tells which, if it can. Whether to give way.
    fn settle_from(&self, cpu_id: usize, leave: impl FnOnce(&[usize]) -> Option<usize>) -> bool {
        let thread = thread::current().id();
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let own = places.iter().position(|place| place.thread == thread);
        let mut place = match own {
            Some(own) => Place { cpu_id, ..places.swap_remove(own) },
            None => Place { thread, cpu_id, num_moves: 0, num_yields: 0 },
        };
        let taken: Vec<usize> = places.iter().map(|place| place.cpu_id).collect();
        if taken.contains(&cpu_id)
            && place.num_moves < MOST_MOVES
            && let Some(new_cpu_id) = leave(&taken)
        {
            place.cpu_id = new_cpu_id;
            place.num_moves += 1;
        }
        let gives_way = taken.len() + 1 < self.num_threads && place.num_yields < MOST_YIELDS;
        place.num_yields += usize::from(gives_way);
        places.push(place);
        gives_way
    }
}

#[cfg(any(target_os = "linux", target_os = "android"))]
mod system {
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    /// Moves the calling thread to a CPU that it may use, but to none of `taken`, and returns which. None if there is none, or the system
    /// refuses.
    pub(super) fn leave(taken: &[usize]) -> Option<usize> {
        let allowed = sched_getaffinity(None).ok()?;
        let mut free = allowed;
        taken.iter().filter(|&&cpu_id| cpu_id < CpuSet::MAX_CPU).for_each(|&cpu_id| free.unset(cpu_id));
        if free.count() == 0 {
            return None;
        }
        sched_setaffinity(None, &free).ok()?;
        let cpu_id = crate::topology::current_cpu();
        // Refused only where the CPUs of the whole process were changed just now: the system has chosen from the new ones, then.
        let _ = sched_setaffinity(None, &allowed);
        Some(cpu_id)
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod system {
    /// Nobody can be told where to run.
    pub(super) fn leave(_taken: &[usize]) -> Option<usize> {
        None
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    fn only(cpu_id: usize) -> CpuSet {
        let mut set = CpuSet::new();
        set.set(cpu_id);
        set
    }

    fn allowed() -> (CpuSet, Vec<usize>) {
        let set = sched_getaffinity(None).unwrap();
        (set, (0..CpuSet::MAX_CPU).filter(|&cpu_id| set.is_set(cpu_id)).collect())
    }

    fn cpu_ids(apart: &Apart) -> Vec<usize> {
        apart.places.lock().unwrap().iter().map(|place| place.cpu_id).collect()
    }

    /// A thread of the same work that stays on `cpu_id`.
    fn another_on(apart: &Apart, cpu_id: usize) {
        thread::scope(|scope| {
            scope.spawn(|| {
                sched_setaffinity(None, &only(cpu_id)).unwrap();
                apart.settle();
            });
        });
    }

    #[test]
    fn who_finds_another_on_its_cpu_goes_to_a_free_one_and_may_use_all_afterwards() {
        let (set, cpus) = allowed();
        let [first, .., last] = cpus[..] else { return };
        let mut has_moved = false;
        // It may be moved by the system before it looks.
        for _ in 0..100 {
            let apart = Apart::new(2);
            for &cpu_id in &cpus[1..] {
                another_on(&apart, cpu_id);
            }
            sched_setaffinity(None, &only(last)).unwrap();
            sched_setaffinity(None, &set).unwrap();
            // Wherever it is, the only free one is the first; and it does not matter how often it asks.
            for _ in 0..3 {
                apart.settle();
                assert_eq!(allowed().0, set);
                assert_eq!(*cpu_ids(&apart).last().unwrap(), first, "of {cpus:?}");
            }
            assert_eq!(cpu_ids(&apart).len(), cpus.len(), "each thread is there once");
            has_moved |= apart.places.lock().unwrap().last().unwrap().num_moves > 0;
        }
        assert!(has_moved);
    }

    #[test]
    fn who_may_use_no_other_cpu_stays() {
        let cpu_id = allowed().1[0];
        let apart = Apart::new(2);
        another_on(&apart, cpu_id);
        another_on(&apart, cpu_id);
        assert_eq!(cpu_ids(&apart), [cpu_id, cpu_id]);
    }

    #[test]
    fn who_is_brought_back_again_and_again_stays_in_the_end() {
        let apart = Apart::new(2);
        thread::scope(|scope| scope.spawn(|| apart.settle_from(5, |_| None)).join()).unwrap();
        let mut moves = 0;
        for _ in 0..2 * MOST_MOVES {
            apart.settle_from(5, |taken| {
                assert_eq!(taken, [5], "its own place is not taken");
                moves += 1;
                Some(6)
            });
        }
        assert_eq!((moves, cpu_ids(&apart)), (MOST_MOVES, vec![5, 5]));
    }

    #[test]
    fn who_was_first_gives_way_until_all_are_there_but_not_for_ever() {
        let apart = Apart::new(3);
        let settle = |cpu_id| apart.settle_from(cpu_id, |_| None);
        let elsewhere = |cpu_id| thread::scope(|scope| scope.spawn(|| settle(cpu_id)).join()).unwrap();
        assert_eq!(
            [settle(1), elsewhere(2), settle(1), elsewhere(3), settle(1)],
            [true, true, true, false, false]
        );
        let lonely = Apart::new(2);
        let times = (0..100).filter(|_| lonely.settle_from(1, |_| None)).count();
        assert_eq!(times, MOST_YIELDS);
    }

    #[test]
    fn who_has_a_cpu_for_itself_stays() {
        let apart = Apart::new(2);
        thread::scope(|scope| scope.spawn(|| apart.settle_from(5, |_| None)).join()).unwrap();
        apart.settle_from(7, |_| unreachable!("nobody else is at 7"));
        assert_eq!(cpu_ids(&apart), [5, 7]);
    }
}
