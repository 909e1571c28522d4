//! The fragment walk, chunk by chunk.

use super::{Workload, contest, each_shape, pieces};
use crate::measure::{Options, WrongAnswer};
use crate::report::Measurement;
use watershed_counted::kernels::shapes::{Chunks, chunks};
use watershed_counted::kernels::walk::{BATCH, Walking};

const SHAPES: [(&str, Chunks); 9] = [
    ("real", Chunks::Real),
    ("real_sdk", Chunks::RealSdk),
    ("real_templates", Chunks::RealTemplates),
    ("dense", Chunks::Dense),
    ("one_byte", Chunks::OneByte),
    ("two_byte", Chunks::TwoByte),
    ("four_byte", Chunks::FourByte),
    ("mixed", Chunks::Mixed),
    ("hostile", Chunks::Hostile),
];

pub(super) fn workloads() -> Vec<Workload> {
    each_shape("walk_one", &SHAPES, run)
}

fn run(name: &str, shape: Chunks, options: &Options) -> Result<Measurement, WrongAnswer> {
    let pieces = pieces(options);
    let pool = chunks(shape, pieces * BATCH);
    contest(name, "fragment", options, pieces, || Walking::new(pool.clone()))
}
