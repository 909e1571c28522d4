//! The fragment walk: chunk by chunk, and as batches of as many chunks as a shard's owner takes at once.

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
    let one = each_shape("walk_one", &SHAPES, |name, shape, options| run(name, shape, options, false));
    let many = each_shape("walk_many", &SHAPES, |name, shape, options| run(name, shape, options, true));
    one.into_iter().chain(many).collect()
}

fn run(name: &str, shape: Chunks, options: &Options, together: bool) -> Result<Measurement, WrongAnswer> {
    let pieces = pieces(options);
    let pool = chunks(shape, pieces * BATCH);
    contest(name, "fragment", options, pieces, !together, || Walking::new(pool.clone(), together))
}
