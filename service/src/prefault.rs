//! Memory that buffers will use next is made ready, by another thread where the shell has threads
//! that may wait: a huge page takes up to some milliseconds, in which no commit would be read.
//!
//! ```text
//!   the service's thread                             any thread
//!   poll_prefault: at first a trial,
//!     then buffers whose memory is short         --->  run: until enough is ready
//!   handle_prefaulted                            <---  one more may be asked for
//! ```
//!
//! Where huge pages are slow one of them is enough for a loss: while it is made ready the processor
//! does nothing else, and whoever writes there makes one, too. So the trial looks before there are
//! buffers, and once it, or a buffer, has met a slow page all that are made later have plain ones.

use std::sync::Arc;
use std::time::Duration;

use watershed_engine::HugePages;
use watershed_engine::mem::{HUGE_PAGE_BYTES, Region};
use watershed_shards::ShardedBuffer;

use crate::output::{Output, Warning};
use crate::service::Service;

/// How far memory is made ready ahead of commits, at least and at most: an eighth of the buffer. It
/// must last while the system lets the thread wait that makes it ready; 4 MiB are written in 4 ms
/// at 1 GB/s. Small buffers are not for so much, and shall not take memory that they may not need.
const AHEAD_BYTES_MIN: usize = 4 << 20;
const AHEAD_BYTES_MAX: usize = 8 << 20;

/// A huge page that takes so long is slow. To clear one takes some tenths of a millisecond; 4 MiB
/// of shared memory last for 4 ms at 1 GB/s.
pub const SLOW_PAGE: Duration = Duration::from_millis(2);

/// The trial makes so many bytes of huge pages ready: a system that has some at hand may be slow
/// with the next ones.
const TRIAL_BYTES: usize = 32 << 20;

/// Memory that is to be made ready. See [`Service::poll_prefault`].
#[derive(Debug)]
pub struct PrefaultWork(Prefault);

#[derive(Debug)]
enum Prefault {
    /// Some that is given up afterwards.
    Trial,
    Buffers(Vec<Arc<ShardedBuffer>>),
}

/// What came of a [`PrefaultWork`].
#[derive(Debug)]
pub struct PrefaultDone {
    has_slow_pages: bool,
}

impl PrefaultWork {
    /// Does it. Commits go on meanwhile. `cpu_time` is that of the calling thread: where a page
    /// takes [`SLOW_PAGE`] or more the rest of its buffer has plain ones.
    pub fn run(self, cpu_time: impl FnMut() -> Duration) -> PrefaultDone {
        let has_slow_pages = match self.0 {
            Prefault::Trial => has_slow_pages(cpu_time),
            Prefault::Buffers(buffers) => prefault(&buffers, cpu_time),
        };
        PrefaultDone { has_slow_pages }
    }
}

/// Whether some of the system's huge pages are slow.
fn has_slow_pages(mut cpu_time: impl FnMut() -> Duration) -> bool {
    let Ok(region) = Region::map(TRIAL_BYTES, HugePages::Advise) else { return false };
    region.granted() == HugePages::Advise
        && (0..TRIAL_BYTES).step_by(HUGE_PAGE_BYTES).any(|start| {
            let before = cpu_time();
            region.prefault(start..start + HUGE_PAGE_BYTES) && cpu_time().saturating_sub(before) >= SLOW_PAGE
        })
}

/// How far a buffer's memory is made ready ahead.
fn ahead_bytes(buffer: &ShardedBuffer) -> usize {
    (buffer.size_bytes() / 8).clamp(AHEAD_BYTES_MIN, AHEAD_BYTES_MAX)
}

/// Whether somebody is to go on making a buffer's memory ready: half of it is used.
pub(crate) fn is_due(buffer: &ShardedBuffer) -> bool {
    buffer.is_prefault_due(ahead_bytes(buffer) / 2)
}

/// Makes one more page ready. Whether there was one to do.
fn prefault_one(buffer: &ShardedBuffer) -> bool {
    buffer.prefault_ahead(ahead_bytes(buffer)) != 0
}

/// Makes memory of buffers ready. Whether there were slow pages.
fn prefault(buffers: &[Arc<ShardedBuffer>], mut cpu_time: impl FnMut() -> Duration) -> bool {
    let mut has_slow_pages = false;
    for buffer in buffers {
        let mut before = cpu_time();
        while prefault_one(buffer) {
            let now = cpu_time();
            if now.saturating_sub(before) >= SLOW_PAGE {
                buffer.use_plain_pages();
                has_slow_pages = true;
            }
            before = now;
        }
    }
    has_slow_pages
}

impl Service {
    /// Memory that is to be made ready, if the shell
    /// [has threads that may wait](crate::ServiceOptions::never_waits); `None` also until the last
    /// one is done. To be called when nothing else is to be done.
    pub fn poll_prefault(&mut self) -> Option<PrefaultWork> {
        if !self.options.never_waits || self.is_prefaulting {
            return None;
        }
        let wants_trial = self.options.huge_pages == HugePages::Advise && !self.has_tried_pages;
        if wants_trial {
            (self.has_tried_pages, self.is_prefaulting) = (true, true);
            return Some(PrefaultWork(Prefault::Trial));
        }
        let buffers = self.buffers.iter().map(|buffer| &buffer.trace);
        let short: Vec<_> = buffers.filter(|trace| is_due(trace)).map(Arc::clone).collect();
        self.is_prefaulting = !short.is_empty();
        self.is_prefaulting.then_some(PrefaultWork(Prefault::Buffers(short)))
    }

    /// Memory has been made ready.
    pub fn handle_prefaulted(&mut self, done: PrefaultDone) {
        self.is_prefaulting = false;
        if done.has_slow_pages && !std::mem::replace(&mut self.has_slow_pages, true) {
            // Those that were made meanwhile, too.
            self.buffers.iter().for_each(|buffer| buffer.trace.use_plain_pages());
            self.outputs.push_back(Output::Warning(Warning::SlowHugePages));
        }
    }

    /// As that, a page of one buffer, by this thread where there is no other one. True if a page
    /// was made ready: there may be more.
    pub(crate) fn prefault_one_page(&self) -> bool {
        !self.options.never_waits && self.buffers.iter().any(|buffer| prefault_one(&buffer.trace))
    }
}
