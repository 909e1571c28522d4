//! Writing over the whole range of packets and chunks: one even cost, without a step.

use super::write::{sizes, warm_up};
use crate::measure::{Options, Series, WrongAnswer, timed};
use crate::report::Measurement;
use crate::workload::rings::{buffer, check_written, commit, fed_bytes, mean_bytes};
use crate::workload::templates::{Shape, some_filled};
use crate::workload::{SourceChunk, feed};

const PACKET_BYTES: [usize; 10] = [8, 16, 28, 44, 64, 128, 256, 500, 1000, 4000];
/// Of a page with one chunk in it.
const PAGE_BYTES: [usize; 7] = [64, 256, 1024, 2048, 4096, 16_384, 32_768];

/// Bytes of the chunks of each point: as much as a hundred of 4 KiB. So all points read from the
/// same level of the cache, and a byte costs the same in each.
const SOURCE_BYTES: usize = 100 * 4096;

/// A packet size and a chunk size.
struct Point {
    packet_bytes: usize,
    page_bytes: usize,
    chunks: Vec<SourceChunk>,
    /// Nanoseconds a chunk, by round.
    laps: Vec<f64>,
}

impl Point {
    fn all() -> Vec<Point> {
        let pairs =
            PAGE_BYTES.iter().flat_map(|&page| PACKET_BYTES.iter().map(move |&packet| (page, packet)));
        let fitting = pairs.filter(|(page_bytes, packet_bytes)| packet_bytes + 16 <= *page_bytes);
        fitting
            .map(|(page_bytes, packet_bytes)| Point {
                packet_bytes,
                page_bytes,
                chunks: some_filled(
                    &Shape::full(page_bytes - 16, packet_bytes..=packet_bytes),
                    SOURCE_BYTES.div_ceil(page_bytes),
                ),
                laps: Vec::new(),
            })
            .collect()
    }

    /// What the cost may depend on: 1, bytes, packets.
    fn terms(&self) -> [f64; 3] {
        let packets = f64::from(self.chunks[0].packets);
        [1.0, mean_bytes(&self.chunks), packets]
    }

    /// A new ring, filled twice, then one timed lap of it.
    fn lap(&mut self, ring_bytes: usize) -> Result<(), WrongAnswer> {
        let mut ring = buffer(ring_bytes)?;
        let mut feed = feed::one_writer(&self.chunks);
        let warm_up = warm_up(ring_bytes, &self.chunks);
        commit(&mut ring, &mut feed, warm_up);
        let commits = warm_up / 2;
        let (lap, ()) = timed(commits as u64, || commit(&mut ring, &mut feed, commits));
        let written = warm_up + commits;
        check_written(&ring, written as u64, fed_bytes(feed::one_writer(&self.chunks), written))?;
        self.laps.push(lap.elapsed.as_nanos() as f64 / lap.units as f64);
        Ok(())
    }
}

/// How far the cost of a chunk lies at most from `a + b * bytes + c * packets`, as a ratio in
/// either direction. The value is that of the medians.
pub(super) fn sweep(options: &Options) -> Result<Measurement, WrongAnswer> {
    let (_, ring_bytes) = sizes(options);
    let mut points = Point::all();
    for _ in 0..options.rounds.min(5) {
        points.iter_mut().try_for_each(|point| point.lap(ring_bytes / 4))?;
    }
    let rows: Vec<([f64; 3], f64)> =
        points.iter().map(|point| (point.terms(), Series::new(point.laps.clone()).median())).collect();
    let fit = fitted(&rows);
    let worst = points.iter().zip(&rows).map(|(point, row)| (distance(fit, row), point));
    let (ratio, point) = worst.max_by(|a, b| a.0.total_cmp(&b.0)).ok_or("no point")?;
    Ok(Measurement::ratio("sweep", &Series::new(vec![ratio]))
        .with("chunk_ns", fit[0])
        .with("kilobyte_ns", fit[1] * 1000.0)
        .with("packet_ns", fit[2])
        .with("worst_at_page_bytes", point.page_bytes as f64)
        .with("worst_at_packet_bytes", point.packet_bytes as f64))
}

/// The measured value over the fitted one, or the other way round.
fn distance(fit: [f64; 3], (terms, measured): &([f64; 3], f64)) -> f64 {
    let expected: f64 = terms.iter().zip(fit).map(|(term, factor)| term * factor).sum();
    if expected <= 0.0 { f64::INFINITY } else { (measured / expected).max(expected / measured) }
}

/// The factors whose sum of squared relative errors is least.
fn fitted(rows: &[([f64; 3], f64)]) -> [f64; 3] {
    // The normal equations, in which each row is divided by what was measured.
    let mut system = [[0.0; 4]; 3];
    for (terms, measured) in rows {
        let terms = terms.map(|term| term / measured);
        for (row, term) in system.iter_mut().zip(terms) {
            for (cell, other) in row.iter_mut().zip([terms[0], terms[1], terms[2], 1.0]) {
                *cell += term * other;
            }
        }
    }
    for pivot in 0..3 {
        let divisor = system[pivot][pivot];
        system[pivot] = system[pivot].map(|cell| cell / divisor);
        let solved = system[pivot];
        for (_, row) in system.iter_mut().enumerate().filter(|(at, _)| *at != pivot) {
            let factor = row[pivot];
            for (cell, other) in row.iter_mut().zip(solved) {
                *cell -= factor * other;
            }
        }
    }
    system.map(|row| row[3])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fit_finds_the_factors() {
        let points = Point::all();
        let cost = |terms: [f64; 3]| 30.0 + 0.1 * terms[1] + 2.0 * terms[2];
        let rows: Vec<_> = points.iter().map(|point| (point.terms(), cost(point.terms()))).collect();
        for (found, expected) in fitted(&rows).into_iter().zip([30.0, 0.1, 2.0]) {
            assert!((found / expected - 1.0).abs() < 1e-6, "{found} for {expected}");
        }
        assert!((distance([30.0, 0.1, 2.0], &(rows[3].0, rows[3].1 * 1.5)) - 1.5).abs() < 1e-6);
    }
}
