//! Every level of every kernel gives the naive twin's answer.
//!
//! The first two bytes say how far the kernels may go and where the rest is cut; the bytes are then
//! a chunk of fragments and a packet in two slices. Each has an allocation of its own, so that the
//! address sanitizer sees a read past its end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use watershed_simd::fields::{Rules, WireType};
use watershed_simd::walk::Span;
use watershed_simd::{Kernels, Level, fields, walk};

fuzz_target!(|data: &[u8]| {
    let [limit, cut, bytes @ ..] = data else { return };
    let limit = usize::from(*limit) * 5;
    for kernels in Level::available().filter_map(Kernels::at) {
        one_chunk(kernels, bytes, limit);
        packet(kernels, bytes, usize::from(*cut).min(bytes.len()));
    }
});

fn one_chunk(kernels: Kernels, bytes: &[u8], limit: usize) {
    let bytes = bytes.to_vec().into_boxed_slice();
    let (mut spans, mut expected) = (vec![Span::default(); limit], vec![Span::default(); limit]);
    let answer = walk::naive::walk(&bytes, limit, &mut expected);
    assert_eq!(kernels.walk(&bytes, limit, &mut spans), answer, "{}", kernels.level());
    assert_eq!(spans[..answer.fragments], expected[..answer.fragments], "{}", kernels.level());
}

fn packet(kernels: Kernels, bytes: &[u8], cut: usize) {
    let rules = Rules::new().reserve([3, 10, 5000]).expect_wire_type(8, WireType::Varint);
    let (first, second) = bytes.split_at(cut);
    let (first, second): (Box<[u8]>, Box<[u8]>) = (first.into(), second.into());
    let slices: [&[u8]; 2] = [&first, &second];
    let answer = fields::naive::scan(&[bytes], &rules);
    assert_eq!(kernels.scan(&slices, &rules), answer, "{}", kernels.level());
}
