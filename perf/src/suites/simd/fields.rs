//! The scan of packets' fields, packet by packet, with the numbers that the service reserves.

use super::{Workload, contest, each_shape, pieces};
use crate::measure::{Options, WrongAnswer};
use crate::report::Measurement;
use watershed_counted::kernels::fields::{BATCH, Scanning};
use watershed_counted::kernels::shapes::{Packets, packets};

const SHAPES: [(&str, Packets); 4] = [
    ("track_event", Packets::TrackEvent),
    ("counter", Packets::Counter),
    ("cut", Packets::Cut),
    ("hostile", Packets::Hostile),
];

pub(super) fn workloads() -> Vec<Workload> {
    each_shape("fields", &SHAPES, run)
}

fn run(name: &str, shape: Packets, options: &Options) -> Result<Measurement, WrongAnswer> {
    let pieces = pieces(options);
    let pool = packets(shape, pieces * BATCH);
    contest(name, "packet", options, pieces, || Scanning::new(pool.clone()))
}
