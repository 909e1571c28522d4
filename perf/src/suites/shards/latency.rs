//! How long a commit takes while another thread reads.

use super::team::{Writers, exact_ring};
use crate::measure::{Options, Series, WrongAnswer};
use crate::report::Measurement;
use crate::workload::templates;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;
use watershed_engine::Packet;

/// Wall time of each commit of a chunk to a buffer of two shards, beside a thread that reads all
/// that is there, again and again. The clock's own time is in it.
pub(super) fn commit_beside_reader(options: &Options) -> Result<Measurement, WrongAnswer> {
    let chunks = templates::mixed(100);
    let buffer = exact_ring(options.size(16 << 20, 2 << 20), 2)?;
    let mut writers = Writers::new(&buffer, &chunks, 1, 1);
    let commits = options.size(400_000, 2000);
    writers.commit(commits / 20, 1);
    let [has_read, is_over] = [const { AtomicBool::new(false) }; 2];
    let (mut ns, passes) = std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let (mut passes, mut bytes) = (0_u64, 0);
            // Relaxed, as the other: they only say when to begin and to end.
            while !is_over.load(Ordering::Relaxed) {
                let copy = |packet: &Packet<'_>, block: &mut Vec<u8>| {
                    packet.slices().iter().for_each(|slice| block.extend_from_slice(slice));
                    true
                };
                let count = |pieces: watershed_shards::Pieces<'_>| -> Result<(), std::convert::Infallible> {
                    bytes += pieces.size_bytes();
                    Ok(())
                };
                let Ok(()) = buffer.read_pass(copy).write_all(count);
                passes += 1;
                has_read.store(true, Ordering::Relaxed);
            }
            std::hint::black_box(bytes);
            passes
        });
        while !has_read.load(Ordering::Relaxed) {
            std::thread::yield_now();
        }
        let mut ns = Vec::with_capacity(commits);
        for _ in 0..commits {
            let start = Instant::now();
            writers.commit(1, 1);
            ns.push(start.elapsed().as_nanos() as f64);
        }
        is_over.store(true, Ordering::Relaxed);
        (ns, reader.join().expect("the reader ends"))
    });
    let (stats, ledger) = (buffer.stats(), buffer.ledger());
    if !ledger.is_balanced() || stats.abi_violations != 0 || stats.chunks_read == 0 {
        return Err(format!("after {passes} passes: {ledger:?}, {stats:?}"));
    }
    ns.sort_unstable_by(f64::total_cmp);
    let at = |part: f64| ns[((ns.len() - 1) as f64 * part).round() as usize];
    let figures = [at(0.99), at(0.999), at(0.9999), ns[ns.len() - 1]].map(|ns| ns / 1e3);
    Ok(Measurement::microseconds("commit_beside_reader", &Series::new(ns.clone()))
        .with("us_p99", figures[0])
        .with("us_p999", figures[1])
        .with("us_p9999", figures[2])
        .with("us_max", figures[3])
        .with("reads", passes as f64))
}
