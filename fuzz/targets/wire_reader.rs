//! A trace file in pieces of any size: no panic, and the place of damage is honest.
#![no_main]

mod reading;

use libfuzzer_sys::fuzz_target;
use reading::read;

fuzz_target!(|input: (u8, &[u8])| {
    let (piece_size_bytes, trace) = input;
    let (packets, end) = read(trace, usize::from(piece_size_bytes) + 1);
    let at_once = read(trace, trace.len().max(1));
    assert_eq!((&packets, &end), (&at_once.0, &at_once.1));
    if let Err(damage) = end {
        let intact = &trace[..damage.offset_bytes as usize];
        let (before, end) = read(intact, intact.len().max(1));
        assert_eq!(end, Ok(()));
        assert_eq!(before[..], packets[..before.len()]);
        if damage.offset_inflated_bytes.is_none() {
            assert_eq!(before.len(), packets.len());
        }
    }
});
