//! Memory that buffers will use next is made ready, by another thread where the shell has threads
//! that may wait: a huge page takes up to some milliseconds, in which no commit would be read.
//!
//! ```text
//!   the service's thread                             any thread
//!   poll_prefault: buffers whose memory is short --->  run: until enough is ready
//!   handle_prefaulted                            <---  one more may be asked for
//! ```

use std::sync::Arc;
use std::time::Duration;

use watershed_shards::ShardedBuffer;

use crate::output::{Output, Warning};
use crate::service::Service;

/// How far memory is made ready ahead of commits.
const PREFAULT_BYTES: usize = 4 << 20;
/// Somebody is to go on with it when less is ready.
pub(crate) const PREFAULT_DUE_BYTES: usize = PREFAULT_BYTES / 2;

/// A huge page that takes so long is slow. To clear one takes some tenths of a millisecond; 4 MiB
/// of shared memory last for 4 ms at 1 GB/s.
pub const SLOW_PAGE: Duration = Duration::from_millis(2);

/// Buffers whose memory is to be made ready. See [`Service::poll_prefault`].
#[derive(Debug)]
pub struct PrefaultWork(Vec<Arc<ShardedBuffer>>);

/// What came of a [`PrefaultWork`].
#[derive(Debug)]
pub struct PrefaultDone {
    has_slow_pages: bool,
}

impl PrefaultWork {
    /// Does it. Commits go on meanwhile. `cpu_time` is that of the calling thread: where a page
    /// takes [`SLOW_PAGE`] or more the rest of its buffer has plain ones.
    pub fn run(self, mut cpu_time: impl FnMut() -> Duration) -> PrefaultDone {
        let mut has_slow_pages = false;
        for buffer in &self.0 {
            let mut before = cpu_time();
            while buffer.prefault_ahead(PREFAULT_BYTES) != 0 {
                let now = cpu_time();
                if now.saturating_sub(before) >= SLOW_PAGE {
                    buffer.use_plain_pages();
                    has_slow_pages = true;
                }
                before = now;
            }
        }
        PrefaultDone { has_slow_pages }
    }
}

impl Service {
    /// Memory that is to be made ready, if the shell
    /// [has threads that may wait](crate::ServiceOptions::never_waits); `None` also until the last
    /// one is done. To be called when nothing else is to be done.
    pub fn poll_prefault(&mut self) -> Option<PrefaultWork> {
        if !self.options.never_waits || self.is_prefaulting {
            return None;
        }
        let buffers = self.buffers.iter().map(|buffer| &buffer.trace);
        let short: Vec<_> =
            buffers.filter(|trace| trace.is_prefault_due(PREFAULT_DUE_BYTES)).map(Arc::clone).collect();
        self.is_prefaulting = !short.is_empty();
        self.is_prefaulting.then_some(PrefaultWork(short))
    }

    /// Memory has been made ready.
    pub fn handle_prefaulted(&mut self, done: PrefaultDone) {
        self.is_prefaulting = false;
        if done.has_slow_pages {
            self.outputs.push_back(Output::Warning(Warning::SlowHugePages));
        }
    }

    /// As that, a page of one buffer, by this thread where there is no other one. True if a page
    /// was made ready: there may be more.
    pub(crate) fn prefault_one_page(&self) -> bool {
        !self.options.never_waits
            && self.buffers.iter().any(|buffer| buffer.trace.prefault_ahead(PREFAULT_BYTES) != 0)
    }
}
