//! Rows of varints, and of fields.

use super::{Version, Work};
use std::hint::black_box;
use std::time::{Duration, Instant};
use watershed_simd::decode::{Field, FieldLengths, Varints, naive};
use watershed_simd::fields::WireType;

/// Rows of varints, to be decoded one after the other.
pub struct Decoding {
    pool: Vec<Vec<u8>>,
    row: Vec<u8>,
    values: Vec<u64>,
    expected: Vec<u64>,
    found: Option<Varints>,
}

impl Decoding {
    /// The rows of `pool`.
    pub fn new(pool: Vec<Vec<u8>>) -> Decoding {
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

    fn check(&mut self) -> Result<u64, String> {
        let answer = naive::varints(&self.row, &mut self.expected);
        if self.found != Some(answer) || self.values[..answer.values] != self.expected[..answer.values] {
            return Err(format!("{:?} for {answer:?}", self.found));
        }
        Ok(answer.values.max(1) as u64)
    }
}

/// Rows of fields, whose headers and lengths are found.
pub struct Measuring {
    pool: Vec<Vec<u8>>,
    row: Vec<u8>,
    fields: Vec<Field>,
    expected: Vec<Field>,
    found: Option<FieldLengths>,
}

impl Measuring {
    /// The rows of `pool`, which have at most 1000 fields each.
    pub fn new(pool: Vec<Vec<u8>>) -> Measuring {
        const NO_FIELD: Field =
            Field { number: 0, wire_type: WireType::Varint, header_bytes: 0, value_bytes: 0 };
        let row = Vec::new();
        Measuring { pool, row, fields: vec![NO_FIELD; 1000], expected: vec![NO_FIELD; 1000], found: None }
    }
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

    fn check(&mut self) -> Result<u64, String> {
        let answer = naive::field_lengths(&self.row, &mut self.expected);
        if self.found != Some(answer) || self.fields[..answer.fields] != self.expected[..answer.fields] {
            return Err(format!("{:?} for {answer:?}", self.found));
        }
        Ok(answer.fields.max(1) as u64)
    }
}
