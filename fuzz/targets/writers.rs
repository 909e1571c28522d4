//! Writers that behave, in a ring of any size: what comes out is what was written, and what is
//! missing is said.
#![no_main]

use libfuzzer_sys::fuzz_target;
use watershed_model::Policy;
use watershed_model::engine::Engine;
use watershed_model::subject::Subject;
use watershed_model::writers::Writers;

fuzz_target!(|input: (u64, u8, u8, u16, bool)| {
    let (seed, writers, steps, chunk_bytes, evicts) = input;
    let engine = Engine::create(if evicts { 4096 } else { 1 << 20 }, Policy::Ring, None);
    let chunk_bytes = 40 + usize::from(chunk_bytes % 1000);
    if let Err(difference) =
        Writers::new(engine, 1 + usize::from(writers % 6), chunk_bytes, evicts, seed).run(usize::from(steps))
    {
        panic!("{difference}");
    }
});
