//! `linux.ftrace`: events of the kernel, above all which thread ran when on which CPU, and why not.
//!
//! ```text
//!   tracefs instance of our own            one Hub, whatever the number of sessions
//!
//!   events/*/*/enable  <------------------ union of what the sessions ask for
//!   events/*/*/format  --> EventFormat --> Plan (typed or generic), or a column of Compact
//!   per_cpu/cpuN/
//!     trace_pipe_raw   --> Page, Record --> Encoder of each session --> bundle --> TraceWriter
//!                                               |
//!                                               +--> Pids --> OnDemand --> linux.process_stats
//! ```
//!
//! Pages are read each period, and when a CPU's memory is half full (`Watch`), and at every flush,
//! in passes of at most 100 ms: what is left is read in the next, and the service is heard between.
//! Nothing of the kernel's state outlives the last session; what a process left behind that was
//! killed is removed by the next one that records.

mod addresses;
mod compact;
mod encoder;
mod events;
mod format;
mod hub;
mod known;
mod page;
mod pass;
mod pids;
mod plan;
mod print_filter;
mod proto;
mod read;
mod rest;
mod ring;
mod session;
mod settings;
mod source;
mod stats;
mod symbols;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
mod tracefs;
mod watch;

pub use source::FtraceFactory;

use crate::Roots;

/// The name under which configs ask for this source.
pub const FTRACE_NAME: &str = "linux.ftrace";

/// Whether this process may record events of the kernel. Mounts tracefs where it is not mounted.
///
/// # Errors
///
/// What is in the way, and what would help.
pub fn ftrace_access(roots: &Roots) -> Result<(), String> {
    tracefs::TraceFs::find(roots).map(drop).map_err(|error| error.to_string())
}

/// Which of these names (`group/name`, `group/*`, `name`) stand for no event of this kernel; all of
/// them where tracefs cannot be used.
pub fn ftrace_unknown_events(roots: &Roots, names: &[String]) -> Vec<String> {
    match tracefs::TraceFs::find(roots) {
        Ok(tracefs) => {
            let (names, mut wrong): (Vec<_>, Vec<_>) =
                names.iter().cloned().partition(|name| events::check(name).is_ok());
            wrong.extend(events::resolve(&tracefs, &names).unknown);
            wrong
        }
        Err(_) => names.to_vec(),
    }
}

#[cfg(test)]
mod kernels_tests;
#[cfg(test)]
mod recorded_tests;
