//! The filter of filtered sessions, and what a packet that has passed it must not have.

use watershed_wire::protos::trace_config::TraceFilter;
use watershed_wire::raw::Fields;

/// Of packets: time, sequence, config, loss, and of the test event its text.
const ALLOWED: [u32; 4] = [8, 10, 33, 42];
const FOR_TESTING: u32 = 900;
const STR: u32 = 1;

const SIMPLE: u32 = 1;
const NESTED: u32 = 3;
const END_OF_MESSAGE: u32 = 0;

/// Lower half of FNV-1a with 64 bits over the words of a program.
fn checksum(words: &[u32]) -> u32 {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        as u32
}

/// As a config has it.
pub(crate) fn program() -> TraceFilter {
    let (packet, event) = (1, 2);
    let trace = [1 << 3 | NESTED, packet, END_OF_MESSAGE];
    let fields = ALLOWED.map(|number| number << 3 | SIMPLE);
    let rest = [FOR_TESTING << 3 | NESTED, event, END_OF_MESSAGE, STR << 3 | SIMPLE, END_OF_MESSAGE];
    let words = [&trace[..], &fields[..], &rest[..]].concat();
    let mut bytecode = Vec::new();
    for word in words.iter().chain([&checksum(&words)]) {
        prost::encoding::encode_varint(u64::from(*word), &mut bytecode);
    }
    TraceFilter { bytecode: Some(bytecode), ..Default::default() }
}

/// Panics if the packet has a field that the program forbids.
pub(crate) fn check(packet: &[u8]) {
    for field in Fields::new(packet) {
        let field = field.expect("a message");
        if field.number == FOR_TESTING {
            let event = field.value.bytes().expect("only messages pass as messages");
            let is_fine = |field: &Result<_, _>| {
                field.as_ref().is_ok_and(|field: &watershed_wire::raw::Field<'_>| field.number == STR)
            };
            assert!(Fields::new(event).all(|field| is_fine(&field)), "in an event: {event:?}");
        } else {
            assert!(ALLOWED.contains(&field.number), "field {} has passed the filter", field.number);
        }
    }
}
