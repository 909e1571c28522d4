//! What the system says of descriptors, for several threads that wait for it at once.
//!
//! ```text
//!   sockets, other threads (an eventfd), the timer (a timerfd) --> one epoll descriptor
//!                                                                    |  each event once
//!                                                  thread, thread, thread: each waits there
//! ```
//!
//! Of the threads that wait an event wakes one, so no thread of the daemon has to wake another. A
//! thread that begins to wait before the one that was woken has got a CPU gets its events.
//!
//! mio registers descriptors, for changes only. It has one waiting thread; several can wait for its
//! descriptor, which is what `epoll` is made for.

use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use mio::unix::SourceFd;
use mio::{Interest, Registry, Token};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create, timerfd_settime,
};

use crate::connection::Ready;
use crate::polling::Polling;

/// Events that one wait returns, at most. More of them come with the next one.
const EVENTS_PER_WAIT: usize = 1024;
const NS_PER_MS: u64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;

/// One thread's way to wait.
pub(crate) struct Waiter {
    registry: Registry,
    events: Vec<epoll::Event>,
}

impl Waiter {
    /// For what is registered there, now or later. Of the thread that makes it.
    pub(crate) fn new(registry: Registry) -> Waiter {
        Waiter { registry, events: Vec::with_capacity(EVENTS_PER_WAIT) }
    }

    /// What has happened and was given to no other thread. If that is nothing it waits, unless
    /// `is_busy`, maybe after a while of `polling`; a signal ends the wait.
    pub(crate) fn wait(
        &mut self,
        is_busy: bool,
        polling: &Polling,
    ) -> io::Result<impl Iterator<Item = (Token, Ready)> + '_> {
        self.events.clear();
        let at_once = Some(&Timespec { tv_sec: 0, tv_nsec: 0 });
        if is_busy {
            self.take(at_once)?;
        } else {
            polling.poll(|| self.take(at_once))?;
            if self.events.is_empty() {
                self.take(None)?;
            }
        }
        Ok(self.events.iter().map(|event| (Token(event.data.u64() as usize), ready(event.flags))))
    }

    /// Waits for so long at most. Whether there are events.
    fn take(&mut self, timeout: Option<&Timespec>) -> io::Result<bool> {
        match epoll::wait(self.registry.as_fd(), spare_capacity(&mut self.events), timeout) {
            Ok(_) | Err(Errno::INTR) => Ok(!self.events.is_empty()),
            Err(error) => Err(error.into()),
        }
    }
}

/// After an error what the socket says of it is read, so it counts as the end.
fn ready(flags: EventFlags) -> Ready {
    let has_ended = flags.intersects(EventFlags::HUP | EventFlags::ERR);
    Ready {
        readable: flags.intersects(EventFlags::IN | EventFlags::PRI),
        read_closed: has_ended || flags.contains(EventFlags::IN | EventFlags::RDHUP),
        writable: has_ended || flags.contains(EventFlags::OUT),
    }
}

/// An event at a time that is set: one descriptor for all threads, of which it wakes one.
#[derive(Debug)]
pub(crate) struct Timer {
    fd: OwnedFd,
    at_ns: Option<u64>,
}

impl Timer {
    pub(crate) fn new(registry: &Registry, token: Token) -> io::Result<Timer> {
        let fd = timerfd_create(TimerfdClockId::Monotonic, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)?;
        registry.register(&mut SourceFd(&fd.as_raw_fd()), token, Interest::READABLE)?;
        Ok(Timer { fd, at_ns: None })
    }

    /// One event, at that time in monotonic time, or within a millisecond of it: never before.
    pub(crate) fn set(&mut self, at_ns: Option<u64>) -> io::Result<()> {
        // Deadlines of other clocks are some nanoseconds another one each time.
        let at_ns = at_ns.map(|at_ns| at_ns.max(1).div_ceil(NS_PER_MS).saturating_mul(NS_PER_MS));
        if at_ns == self.at_ns {
            return Ok(());
        }
        let none = Timespec { tv_sec: 0, tv_nsec: 0 };
        let it_value = at_ns.map_or(none, |at_ns| Timespec {
            tv_sec: (at_ns / NS_PER_S) as i64,
            tv_nsec: (at_ns % NS_PER_S) as i64,
        });
        let time = Itimerspec { it_interval: none, it_value };
        timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &time)?;
        self.at_ns = at_ns;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::mpsc;
    use std::thread;
    use std::time::Duration;

    use mio::{Poll, Waker};
    use watershed_shell::machine::monotonic_ns;

    use super::*;

    const WAKER: Token = Token(7);
    const TIMER: Token = Token(8);

    fn tokens(waiter: &mut Waiter, is_busy: bool) -> Vec<Token> {
        waiter.wait(is_busy, &Polling::new(2)).unwrap().map(|(token, _)| token).collect()
    }

    #[test]
    fn each_event_wakes_one_thread() {
        let poll = Poll::new().unwrap();
        let waker = Waker::new(poll.registry(), WAKER).unwrap();
        let (tell, told) = mpsc::channel();
        thread::scope(|scope| {
            for number in 0..2 {
                let (tell, registry) = (tell.clone(), poll.registry().try_clone().unwrap());
                scope.spawn(move || {
                    let mut waiter = Waiter::new(registry);
                    assert_eq!(tokens(&mut waiter, false), [WAKER]);
                    tell.send(number).unwrap();
                });
            }
            let mut woken = BTreeSet::new();
            for _ in 0..2 {
                waker.wake().unwrap();
                assert!(woken.insert(told.recv_timeout(Duration::from_secs(20)).unwrap()));
                // Nobody else was woken.
                assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
            }
        });
        let mut waiter = Waiter::new(poll.registry().try_clone().unwrap());
        assert_eq!(tokens(&mut waiter, true), [], "each was given to somebody");
        waker.wake().unwrap();
        assert_eq!(tokens(&mut waiter, false), [WAKER], "what comes before the wait is there");
    }

    #[test]
    fn a_timer_fires_once_and_not_before_its_time() {
        let poll = Poll::new().unwrap();
        let mut waiter = Waiter::new(poll.registry().try_clone().unwrap());
        let mut timer = Timer::new(poll.registry(), TIMER).unwrap();
        for _ in 0..3 {
            let at_ns = monotonic_ns() + 3 * NS_PER_MS;
            timer.set(Some(at_ns)).unwrap();
            timer.set(Some(at_ns)).unwrap();
            assert_eq!(tokens(&mut waiter, false), [TIMER]);
            assert!(monotonic_ns() >= at_ns);
            assert_eq!(tokens(&mut waiter, true), []);
        }
        timer.set(Some(monotonic_ns() + 5 * NS_PER_MS)).unwrap();
        timer.set(None).unwrap();
        thread::sleep(Duration::from_millis(20));
        assert_eq!(tokens(&mut waiter, true), [], "it was called off");
        timer.set(Some(0)).unwrap();
        assert_eq!(tokens(&mut waiter, false), [TIMER], "a time that is over");
    }
}
