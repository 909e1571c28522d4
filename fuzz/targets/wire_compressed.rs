//! Packets of compressed packets: what went in comes out, in pieces of any size, and a stream that
//! was changed ends in damage or in other packets, never in a panic or without bound.
#![no_main]

mod reading;

use std::io::Write as _;

use flate2::Compression;
use flate2::write::ZlibEncoder;
use libfuzzer_sys::fuzz_target;
use reading::read;
use ruzstd::encoding::{CompressionLevel, compress_to_vec};
use watershed_wire::framing::append_packet;
use watershed_wire::raw::Rewrite;

/// Fields of `TracePacket`.
const FOR_TESTING: u32 = 900;
const COMPRESSED_PACKETS: u32 = 50;
const ZSTD_COMPRESSED_PACKETS: u32 = 133;

#[derive(arbitrary::Arbitrary, Debug)]
struct Input<'a> {
    piece_size_bytes: u8,
    is_zstd: bool,
    payloads: Vec<&'a [u8]>,
    /// Where in the stream, and what is done to the byte there.
    changes: Vec<(u16, u8)>,
}

/// A packet with one field.
fn packet(number: u32, value: &[u8]) -> Vec<u8> {
    Rewrite::new().set_each(number, [value]).apply(&[]).expect("nothing is a message")
}

fn compress(packets: &[u8], is_zstd: bool) -> Vec<u8> {
    if is_zstd {
        return compress_to_vec(packets, CompressionLevel::Fastest);
    }
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(packets).and_then(|()| encoder.finish()).expect("memory does not fail")
}

fuzz_target!(|input: Input| {
    let packets: Vec<_> = input.payloads.iter().map(|payload| packet(FOR_TESTING, payload)).collect();
    let mut plain = Vec::new();
    packets.iter().for_each(|packet| append_packet(&mut plain, &[packet]));
    let mut stream = compress(&plain, input.is_zstd);
    let mut is_changed = false;
    for (at, change) in input.changes {
        let at = usize::from(at) % stream.len();
        stream[at] ^= change;
        is_changed |= change != 0;
    }
    let number = if input.is_zstd { ZSTD_COMPRESSED_PACKETS } else { COMPRESSED_PACKETS };
    let mut trace = Vec::new();
    append_packet(&mut trace, &[&packet(number, &stream)]);

    let found = read(&trace, usize::from(input.piece_size_bytes) + 1);
    assert_eq!(found, read(&trace, trace.len()));
    if !is_changed {
        assert_eq!(found, (packets, Ok(())));
    }
});
