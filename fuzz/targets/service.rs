//! Arbitrary calls of the service's core, by way of its simulation and with its checkers.
#![no_main]

use libfuzzer_sys::fuzz_target;
use watershed_simulation::{Choices, run};

fuzz_target!(|bytes: &[u8]| {
    run(Choices::of_bytes(bytes));
});
