//! Rows of varints.

use super::{Workload, contest, each_shape, pieces};
use crate::measure::{Options, WrongAnswer};
use crate::report::Measurement;
use watershed_counted::kernels::decode::{Decoding, Measuring};
use watershed_counted::kernels::shapes::{Packets, Rows, packets, rows};

const SHAPES: [(&str, Rows); 6] = [
    ("one_byte", Rows::OneByte),
    ("two_byte", Rows::TwoByte),
    ("four_byte", Rows::FourByte),
    ("small", Rows::Small),
    ("mixed", Rows::Mixed),
    ("hostile", Rows::Hostile),
];

pub(super) fn workloads() -> Vec<Workload> {
    let mut workloads = each_shape("decode", &SHAPES, varints);
    workloads.extend(each_shape("decode", &[("field_lengths", Packets::TrackEvent)], field_lengths));
    workloads
}

fn varints(name: &str, shape: Rows, options: &Options) -> Result<Measurement, WrongAnswer> {
    let pool = rows(shape, pieces(options) * 4);
    contest(name, "varint", options, pool.len(), false, || Decoding::new(pool.clone()))
}

fn field_lengths(name: &str, shape: Packets, options: &Options) -> Result<Measurement, WrongAnswer> {
    let pool: Vec<Vec<u8>> = packets(shape, pieces(options) * 128)
        .chunks(128)
        .map(|packets| packets.iter().flat_map(|packet| packet.bytes.clone()).collect())
        .collect();
    contest(name, "field", options, pool.len(), false, || Measuring::new(pool.clone()))
}
