//! One pass over a ring: its pages, CPU by CPU, to every session that has started.

use std::io;

use super::FTRACE_NAME;
use super::encoder::BundleClock;
use super::hub::Which;
use super::ring::Ring;
use super::session::Session;
use crate::Notices;

/// Pages that are read before they are encoded: few enough to stay in a processor's cache.
const BATCH_PAGES: usize = 32;

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
}

impl<'a> Pass<'a> {
    /// Of a ring with so much memory a CPU. `pages` is room that is kept from pass to pass.
    pub(super) fn new(
        (which, ring): (Which, &'a Ring),
        buffer_size_kb: u32,
        pages: &'a mut Vec<u8>,
        sessions: &'a mut [Session],
        notices: &'a Notices,
    ) -> Self {
        let pages_max = ((buffer_size_kb as usize) << 10) / ring.layout.page_size_bytes();
        Self { which, ring, clock: ring.bundle_clock(), pages_max, pages, sessions, notices }
    }

    /// True if some CPU may have more.
    pub(super) fn run(mut self) -> bool {
        let mut has_more = false;
        for pipe in 0..self.ring.pipes.len() {
            has_more |= self.read_cpu(pipe);
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
                    read += count;
                    if !may_have_more || read > self.pages_max {
                        return may_have_more;
                    }
                }
                Err(error) => {
                    self.failed(cpu, &error);
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

    fn failed(&mut self, cpu: u32, error: &io::Error) {
        self.notices.add(FTRACE_NAME, format!("reading CPU {cpu}: {error}"));
        self.sessions.iter_mut().for_each(|session| session.read_failed(error));
    }
}
