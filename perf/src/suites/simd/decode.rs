//! Rows of varints.

use super::shapes::{Packets, Rows, packets, rows};
use super::{Version, Work, Workload, contest, each_shape, pieces};
use crate::measure::{Options, WrongAnswer};
use crate::report::Measurement;
use std::hint::black_box;
use std::time::{Duration, Instant};
use watershed_simd::decode::{Field, FieldLengths, Varints, naive};
use watershed_simd::fields::WireType;

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

pub(super) struct Decoding {
    pool: Vec<Vec<u8>>,
    row: Vec<u8>,
    values: Vec<u64>,
    expected: Vec<u64>,
    found: Option<Varints>,
}

impl Decoding {
    pub(super) fn new(pool: Vec<Vec<u8>>) -> Decoding {
        Decoding { pool, row: Vec::new(), values: vec![0; 5000], expected: vec![0; 5000], found: None }
    }
}

impl Work for Decoding {
    fn prepare(&mut self, index: usize) {
        self.row.clear();
        self.row.extend_from_slice(&self.pool[index]);
    }

    fn run(&mut self, version: Version) -> Duration {
        let start = Instant::now();
        let found = match version.kernels() {
            Some(kernels) => kernels.varints(&self.row, &mut self.values),
            None => naive::varints(&self.row, &mut self.values),
        };
        self.found = Some(black_box(found));
        start.elapsed()
    }

    fn check(&mut self) -> Result<u64, WrongAnswer> {
        let answer = naive::varints(&self.row, &mut self.expected);
        if self.found != Some(answer) || self.values[..answer.values] != self.expected[..answer.values] {
            return Err(format!("{:?} for {answer:?}", self.found));
        }
        Ok(answer.values.max(1) as u64)
    }
}

fn field_lengths(name: &str, shape: Packets, options: &Options) -> Result<Measurement, WrongAnswer> {
    const NO_FIELD: Field = Field { number: 0, wire_type: WireType::Varint, header_bytes: 0, value_bytes: 0 };
    let pool: Vec<Vec<u8>> = packets(shape, pieces(options) * 128)
        .chunks(128)
        .map(|packets| packets.iter().flat_map(|packet| packet.bytes.clone()).collect())
        .collect();
    contest(name, "field", options, pool.len(), false, || Measuring {
        pool: pool.clone(),
        row: Vec::new(),
        fields: vec![NO_FIELD; 1000],
        expected: vec![NO_FIELD; 1000],
        found: None,
    })
}

struct Measuring {
    pool: Vec<Vec<u8>>,
    row: Vec<u8>,
    fields: Vec<Field>,
    expected: Vec<Field>,
    found: Option<FieldLengths>,
}

impl Work for Measuring {
    fn prepare(&mut self, index: usize) {
        self.row.clear();
        self.row.extend_from_slice(&self.pool[index]);
    }

    fn run(&mut self, version: Version) -> Duration {
        let start = Instant::now();
        let found = match version.kernels() {
            Some(kernels) => kernels.field_lengths(&self.row, &mut self.fields),
            None => naive::field_lengths(&self.row, &mut self.fields),
        };
        self.found = Some(black_box(found));
        start.elapsed()
    }

    fn check(&mut self) -> Result<u64, WrongAnswer> {
        let answer = naive::field_lengths(&self.row, &mut self.expected);
        if self.found != Some(answer) || self.fields[..answer.fields] != self.expected[..answer.fields] {
            return Err(format!("{:?} for {answer:?}", self.found));
        }
        Ok(answer.fields.max(1) as u64)
    }
}
