//! Random lives of the whole tracing service: several producers and consumers, connections that
//! are slow and end anywhere, peers that lie, files that fail, and a clock that only moves from one
//! event to the next. One seed is one run; a fuzzer's bytes are one, too.
//!
//! The service's core is the shipped one. What must hold is checked from outside, by books of the
//! simulation's own:
//!
//! - no packet is read twice, changed, out of order or under another's identity;
//! - each packet that was committed is read, or told as lost: with the next packet of its writer,
//!   or where none follows by the statistics. Nothing is told as lost that is not;
//! - every request is answered once, and each producer is told things in their order;
//! - a clone has what a read of its original gives at that time; a filtered trace has no field that
//!   its filter forbids; triggers are taken as often as they may, and each is in the trace;
//! - no turn does more than its peers' rows are worth;
//! - when everybody has gone nothing is left: timers, buffers, memory, rows.
//!
//! A run that fails panics; [`run_seed`] then runs it again and prints its last events.
#![forbid(unsafe_code)]

mod check;
mod choices;
mod config;
mod consumer;
mod consuming;
mod ending;
mod liar;
mod log;
mod packet;
mod producer;
mod producing;
mod report;
mod session;
mod world;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

pub use choices::Choices;
pub use report::Report;

use log::Log;
use world::World;

/// The run of a seed.
///
/// # Panics
///
/// If something does not hold; then the seed and the last events are on standard error.
pub fn run_seed(seed: u64) -> Report {
    catch_unwind(|| run(Choices::of_seed(seed))).unwrap_or_else(|_| {
        eprintln!("the run of seed {seed} fails; WATERSHED_SEED={seed} WATERSHED_RUNS=1 replays it");
        let again =
            catch_unwind(AssertUnwindSafe(|| World::new(Choices::of_seed(seed), Log::new(true)).run()));
        match again {
            Ok(_) => panic!("seed {seed} fails only the first time: it is not a replay"),
            Err(payload) => resume_unwind(payload),
        }
    })
}

/// The run that these choices make.
///
/// # Panics
///
/// If something does not hold.
pub fn run(choices: Choices) -> Report {
    World::new(choices, Log::default()).run()
}
