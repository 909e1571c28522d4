//! The engine behaves like the model, and serves writers as they expect.
//!
//! `WATERSHED_STEPS` and `WATERSHED_SEED` make the property test longer, or draw other histories.

use watershed_model::Policy;
use watershed_model::drive::Scope;
use watershed_model::engine::Engine;
use watershed_model::property::{check, check_in};
use watershed_model::subject::Subject;
use watershed_model::writers::Writers;

fn number_from(variable: &str, default: u64) -> u64 {
    std::env::var(variable).map_or(default, |text| text.parse().expect("a number"))
}

#[test]
fn the_engine_is_like_the_model_in_every_history() {
    let seed = number_from("WATERSHED_SEED", 1);
    let (steps, last_seed) = check::<Engine>(number_from("WATERSHED_STEPS", 25_000), seed);
    println!("{steps} steps, seeds {seed} to {last_seed}");
}

#[test]
fn a_large_engine_reads_like_a_large_model() {
    check_in::<Engine>(Scope::Packets { size_bytes: 1 << 20 }, 4_000, number_from("WATERSHED_SEED", 1));
}

#[test]
fn writers_lose_nothing_where_nothing_is_evicted() {
    for seed in 0..60 {
        let engine = Engine::create(1 << 20, Policy::Ring, None);
        let result = Writers::new(engine, 3, 60 + 17 * (seed as usize % 13), false, seed).run(250);
        result.unwrap_or_else(|difference| panic!("seed {seed}: {difference}"));
    }
}

#[test]
fn writers_are_told_what_is_lost() {
    let mut lost = 0;
    for seed in 0..100 {
        let engine = Engine::create(4096, Policy::Ring, None);
        let result = Writers::new(engine, 3, 60 + 17 * (seed as usize % 13), true, seed).run(250);
        lost += result.unwrap_or_else(|difference| panic!("seed {seed}: {difference}")).1;
    }
    assert!(lost > 300, "{lost} packets lost");
}
