//! The property over many steps: `cargo run --release -p watershed-model --example long_run --
//! STEPS SEED`.
//!
//! Prints how many steps were compared, and the seeds; a difference ends it with the history that
//! shows it.

use std::time::Instant;

use watershed_model::engine::Engine;
use watershed_model::property::check;

fn main() {
    let mut numbers = std::env::args().skip(1).map(|arg| arg.parse().expect("usage: long_run STEPS SEED"));
    let (steps, seed) = (numbers.next().unwrap_or(10_000_000), numbers.next().unwrap_or(1));
    let start = Instant::now();
    let (done, last_seed) = check::<Engine>(steps, seed);
    println!(
        "{done} steps compared, seeds {seed} to {last_seed}, {} s: no difference",
        start.elapsed().as_secs()
    );
}
