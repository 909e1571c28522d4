//! Every level of every kernel gives the naive twin's answer.
//!
//! The first three bytes say how far the kernels may go and where the rest is cut; the bytes are then a chunk of fragments,
//! several chunks, a row of varints and a packet in two slices. Each lives in an allocation of its own, so that the address
//! sanitizer sees a read past its end.
#![no_main]

use libfuzzer_sys::fuzz_target;
use watershed_simd::fields::{Rules, WireType};
use watershed_simd::walk::{Job, Span};
use watershed_simd::{Kernels, Level, decode, fields, walk};

fuzz_target!(|data: &[u8]| {
    let [limit, pieces, cut, bytes @ ..] = data else { return };
    let limit = usize::from(*limit) * 5;
    for kernels in Level::available().filter_map(Kernels::at) {
        one_chunk(kernels, bytes, limit);
        many_chunks(kernels, bytes, limit, usize::from(pieces % 70) + 1);
        row(kernels, bytes, limit);
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

fn many_chunks(kernels: Kernels, bytes: &[u8], limit: usize, pieces: usize) {
    let size = bytes.len().div_ceil(pieces).max(1);
    let chunks: Vec<Box<[u8]>> = bytes.chunks(size).map(Into::into).collect();
    let mut spans = vec![vec![Span::default(); limit]; chunks.len()];
    let mut jobs: Vec<Job<'_>> =
        chunks.iter().zip(&mut spans).map(|(chunk, spans)| Job::new(chunk, limit, spans)).collect();
    kernels.walk_many(&mut jobs);
    let mut expected = vec![Span::default(); limit];
    for (job, chunk) in jobs.iter().zip(&chunks) {
        let answer = walk::naive::walk(chunk, limit, &mut expected);
        assert_eq!(
            (job.found(), job.spans()),
            (answer, &expected[..answer.fragments]),
            "{}",
            kernels.level()
        );
    }
}

fn row(kernels: Kernels, bytes: &[u8], room: usize) {
    let bytes = bytes.to_vec().into_boxed_slice();
    let (mut values, mut expected) = (vec![0; room], vec![0; room]);
    let answer = decode::naive::varints(&bytes, &mut expected);
    assert_eq!(kernels.varints(&bytes, &mut values), answer, "{}", kernels.level());
    assert_eq!(values[..answer.values], expected[..answer.values], "{}", kernels.level());
    assert_eq!(kernels.varint(&bytes), decode::naive::varint(&bytes), "{}", kernels.level());
    assert_eq!(kernels.field(&bytes), decode::naive::field(&bytes), "{}", kernels.level());
}

fn packet(kernels: Kernels, bytes: &[u8], cut: usize) {
    let rules = Rules::new().reserve([3, 10, 5000]).expect_wire_type(8, WireType::Varint);
    let (first, second) = bytes.split_at(cut);
    let (first, second): (Box<[u8]>, Box<[u8]>) = (first.into(), second.into());
    let slices: [&[u8]; 2] = [&first, &second];
    let answer = fields::naive::scan(&[bytes], &rules);
    assert_eq!(kernels.scan(&slices, &rules), answer, "{}", kernels.level());
}
