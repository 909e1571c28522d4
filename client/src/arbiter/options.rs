//! How an arbiter works, and what it says that it has done.

use std::time::Duration;

use watershed_smb::PageLayout;

#[cfg(doc)]
use super::ExhaustedPolicy;

/// How an arbiter works. The defaults are those of the format's common client library.
#[derive(Clone, Copy, Debug)]
pub struct ArbiterOptions {
    /// How free pages are partitioned, while writers hold less than a half of the memory. With more
    /// they are cut smaller, and a writer that is not busy gives its chunk back with each packet.
    pub layout: PageLayout,
    /// How long returned chunks wait for others before they are committed; zero means as soon as
    /// the producer's thread gets to it.
    pub batch_commits_duration: Duration,
    /// Patch chunks that wait in the batch in place, instead of sending the patches. Only with a
    /// service that says that it supports direct patching.
    pub direct_patching: bool,
    /// Whether [`ExhaustedPolicy::StallThenAbort`] may end this process. Off by default, and that
    /// policy then drops as [`ExhaustedPolicy::StallThenDrop`] does: a session's config, which
    /// anybody who may trace can write, must not end a program whose owner has not allowed it.
    pub allow_abort: bool,
    /// After how many waits a stalling writer gives up: 300 by default, about 29 seconds.
    pub stall_limit: u32,
}

impl Default for ArbiterOptions {
    fn default() -> Self {
        Self {
            layout: PageLayout::Div1,
            batch_commits_duration: Duration::ZERO,
            direct_patching: false,
            allow_abort: false,
            stall_limit: 300,
        }
    }
}

/// What an arbiter has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ArbiterStats {
    /// Chunks that writers got.
    pub chunks_acquired: u64,
    /// Times that a writer asked and got none.
    pub chunks_refused: u64,
    /// Times that a writer waited for a free chunk.
    pub stalls: u64,
    /// Packets that writers dropped, because no chunk was free or they were too large.
    pub packets_dropped: u64,
    /// Commit messages sent. What writers commit themselves, as they do in process, needs none.
    pub commits: u64,
    /// Chunks whose state in shared memory was wrong: somebody tampered with it.
    pub violations: u64,
}
