//! One pass over a ring: its pages, CPU by CPU, to every session that has started.

use std::io;

use super::FTRACE_NAME;
use super::encoder::BundleClock;
use super::hub::Which;
use super::ring::Ring;
use super::session::Session;
use crate::Notices;
use crate::clock::boottime_now_ns;

/// Pages that are read before they are encoded: few enough to stay in a processor's cache.
const BATCH_PAGES: usize = 32;

/// What the memory of a CPU holds.
pub(super) fn pages_max(ring: &Ring, buffer_size_kb: u32) -> usize {
    ((buffer_size_kb as usize) << 10) / ring.layout.page_size_bytes()
}

/// A ring that is read, and who gets its pages.
pub(super) struct Pass<'a> {
    which: Which,
    ring: &'a Ring,
    clock: BundleClock,
    /// What a CPU's memory holds.
    pages_max: usize,
    pages: &'a mut Vec<u8>,
    sessions: &'a mut [Session],
    notices: &'a Notices,
    /// CLOCK_BOOTTIME at which it ends, whatever there is to read.
    end_ns: u64,
}

impl<'a> Pass<'a> {
    /// Of a ring with so much memory a CPU. `pages` is room that is kept from pass to pass.
    pub(super) fn new(
        (which, ring): (Which, &'a Ring),
        buffer_size_kb: u32,
        pages: &'a mut Vec<u8>,
        sessions: &'a mut [Session],
        notices: &'a Notices,
        end_ns: u64,
    ) -> Self {
        let pages_max = pages_max(ring, buffer_size_kb);
        Self { which, ring, clock: ring.bundle_clock(), pages_max, pages, sessions, notices, end_ns }
    }

    /// Begins with one of the CPUs, and leaves there the one with which the next pass begins: so
    /// all have their turn, however little the time is. True if some CPU may have more.
    pub(super) fn run(mut self, first: &mut usize) -> bool {
        let (begin, count) = (*first, self.ring.pipes.len());
        let mut has_more = false;
        for turn in begin..begin + count {
            has_more |= self.read_cpu(turn % count);
            if boottime_now_ns() >= self.end_ns {
                *first = (turn + 1) % count;
                let all_were_asked = turn + 1 == begin + count;
                return has_more || !all_were_asked;
            }
        }
        has_more
    }

    /// Reads a CPU until it has no more, but no more than its memory holds: a writer that is
    /// quicker than we are would keep us for ever. True if it may have more.
    fn read_cpu(&mut self, pipe: usize) -> bool {
        let cpu = self.ring.pipes[pipe].cpu;
        let mut read = 0;
        loop {
            match self.ring.read_pages(pipe, self.pages, BATCH_PAGES, read == 0) {
                Ok((count, may_have_more)) => {
                    self.encode(cpu, count);
                    self.was_read(pipe, count, may_have_more);
                    read += count;
                    let is_over = read > self.pages_max || boottime_now_ns() >= self.end_ns;
                    if !may_have_more || is_over {
                        return may_have_more;
                    }
                }
                Err(error) => {
                    self.failed(cpu, &error);
                    self.was_read(pipe, 0, false);
                    return false;
                }
            }
        }
    }

    fn encode(&mut self, cpu: u32, count: usize) {
        let size = self.ring.layout.page_size_bytes();
        let pages = &self.pages[..count * size];
        for session in self.sessions.iter_mut().filter(|session| session.is_started) {
            session.encode(self.which, cpu, pages.chunks_exact(size), self.ring.layout, self.clock);
        }
    }

    fn was_read(&mut self, pipe: usize, count: usize, may_have_more: bool) {
        for session in self.sessions.iter_mut() {
            session.was_read(self.which, pipe, count, may_have_more);
        }
    }

    fn failed(&mut self, cpu: u32, error: &io::Error) {
        self.notices.add(FTRACE_NAME, format!("reading CPU {cpu}: {error}"));
        self.sessions.iter_mut().for_each(|session| session.read_failed(error));
    }
}
