//! The scan of packets' fields, packet by packet, with the numbers that the service reserves.

use super::shapes::Packet;
use super::{Version, Work};
use std::hint::black_box;
use std::time::{Duration, Instant};
use watershed_simd::fields::{Rules, Scan, Violation, naive};

/// Packets of one piece of work.
pub const BATCH: usize = 256;

/// Fields that producers must not write; the trusted fields of a packet are some of them.
pub const RESERVED: [u32; 12] = [3, 10, 33, 35, 36, 50, 69, 79, 98, 124, 125, 133];

/// Packets one behind the other, as a ring has them.
pub struct Scanning {
    rules: Rules,
    pool: Vec<Packet>,
    index: usize,
    staging: Vec<u8>,
    found: Vec<Result<Scan, Violation>>,
}

impl Scanning {
    /// Batches of the pool's packets.
    pub fn new(pool: Vec<Packet>) -> Scanning {
        let rules = Rules::new().reserve(RESERVED);
        Scanning { rules, pool, index: 0, staging: Vec::new(), found: Vec::with_capacity(BATCH) }
    }

    fn batch(&self) -> &[Packet] {
        &self.pool[self.index * BATCH..][..BATCH]
    }
}

impl Work for Scanning {
    fn prepare(&mut self, index: usize) {
        self.index = index;
        self.found.clear();
        self.staging.clear();
        for packet in &self.pool[index * BATCH..][..BATCH] {
            self.staging.extend_from_slice(&packet.bytes);
        }
    }

    fn run(&mut self, version: Version) -> Duration {
        let start = Instant::now();
        let mut rest = &self.staging[..];
        let mut slices: Vec<&[u8]> = Vec::with_capacity(4);
        for packet in &self.pool[self.index * BATCH..][..BATCH] {
            let (mut bytes, behind) = rest.split_at(packet.bytes.len());
            rest = behind;
            slices.clear();
            let mut done = 0;
            for &cut in &packet.cuts {
                let (slice, behind) = bytes.split_at(cut - done);
                slices.push(slice);
                bytes = behind;
                done = cut;
            }
            slices.push(bytes);
            let found = match version.kernels() {
                Some(kernels) => kernels.scan(&slices, &self.rules),
                None => naive::scan(&slices, &self.rules),
            };
            self.found.push(black_box(found));
        }
        start.elapsed()
    }

    fn check(&mut self) -> Result<u64, String> {
        for (packet, found) in self.batch().iter().zip(&self.found) {
            let answer = naive::scan(&[&packet.bytes], &self.rules);
            if *found != answer {
                return Err(format!("{found:?} for {answer:?}"));
            }
        }
        Ok(BATCH as u64)
    }
}
