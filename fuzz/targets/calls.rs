//! Sequences of calls: the engine answers every one as the model does.
#![no_main]

use libfuzzer_sys::fuzz_target;
use watershed_model::drive::run;
use watershed_model::engine::Engine;
use watershed_model::history::History;

fuzz_target!(|history: History| {
    if let Err(difference) = run::<Engine>(&history) {
        panic!("{difference}");
    }
});
