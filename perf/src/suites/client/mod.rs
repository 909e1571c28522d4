//! What an event costs the thread that writes it.
//!
//! ```text
//!   loop of events     instant!, slice!, on one thread or two                      <- timed
//!     | chunks of 4 MiB of shared memory; the policy is the default, which drops
//!   service            in this process, a ring of 64 MiB
//!     | stop, read
//!   trace              every event is looked at: it is here or it was counted as dropped
//! ```
//!
//! A lap is a session of its own. Its threads warm up first, until they have been through all of
//! the shared memory, and the time is that of their loops alone. The rivals, where they were built
//! (`ci/rivals`), are perfetto-sdk and LTTng-UST with the same events, fastrace with the slices and
//! tracing-perfetto with the spans; what they have recorded is looked at, too.

mod costs;
mod events;
mod recording;
mod rival;
mod tails;
mod tally;
mod trace;

use super::{Suite, Workload};
use events::Kind;

/// The suite.
pub fn suite() -> Suite {
    Suite {
        name: "client",
        about: "what a track event costs the program, with a session in process; beside rivals",
        // The service has threads of its own.
        pinned: false,
        unavailable: || None,
        workloads,
    }
}

fn workloads() -> Vec<Workload> {
    vec![
        Workload::new("clock", |options| costs::clock("clock", options)),
        Workload::new("instant", |options| costs::one_thread("instant", Kind::Instant, options)),
        Workload::new("slice_two_args", |options| costs::one_thread("slice_two_args", Kind::Slice, options)),
        Workload::new("disabled", |options| costs::disabled("disabled", options)),
        Workload::new("instant_two_threads", |options| costs::two_threads("instant_two_threads", options)),
        Workload::new("layer_span", |options| costs::layer("layer_span", options)),
        Workload::new("tail_in_process", |options| tails::in_process("tail_in_process", options)),
        Workload::new("tail_service_stopped", |options| {
            tails::service_stopped("tail_service_stopped", options)
        }),
        Workload::new("bytes_per_event", |options| costs::bytes_per_event("bytes_per_event", options)),
    ]
}
