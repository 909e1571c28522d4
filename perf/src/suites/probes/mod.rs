//! What recording the kernel's events costs, and whether anything is missing.
//!
//! ```text
//!   ping-pong        two threads of one CPU, which wake each other by pipes
//!     | scheduling events
//!   kernel's ring    2 MiB a CPU
//!     | raw pages, every 250 ms or when half full
//!   probes           linux.ftrace and linux.process_stats            <- CPU time is measured here,
//!     | compact packets, shared memory
//!   daemon           a session into a file                           <- here, and the file's size
//! ```
//!
//! Where Perfetto's programs are found, `traced_probes` and `traced` record the same in turns with
//! ours, by the same config; the same code starts the sessions and reads the files.

mod idle;
mod recorders;
mod rival;
mod roles;
mod sched;
mod top_buffer;
mod trace;

pub use rival::PerfettoRole;
pub use roles::{PingPongRole, ProbesRole};

use super::{Suite, Workload};
use watershed_probes::{Roots, ftrace_access};

/// Of the kernel's ring, in each session.
const PERIOD_MS: u32 = 250;

/// The suite.
pub fn suite() -> Suite {
    Suite {
        name: "probes",
        about: "events of the kernel, recorded by processes of their own; needs root and tracefs",
        pinned: false,
        unavailable: || ftrace_access(&Roots::default()).err(),
        workloads,
    }
}

fn workloads() -> Vec<Workload> {
    vec![
        Workload::new("sched_ping_pong", |options| sched::ping_pong("sched_ping_pong", options)),
        Workload::new("idle", |options| idle::idle("idle", options)),
    ]
}
