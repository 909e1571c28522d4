//! What a packet costs that is dropped, against one that is written: no service frees a chunk while
//! packets are dropped.
//!
//! `cargo bench -p watershed-client --bench dropping` prints nanoseconds of wall time for one
//! packet of 24 bytes, for memories from 256 KiB to 32 MiB, one thread and two. As a test it drops
//! a few packets and checks that they are counted.

use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};

use watershed_client::{Arbiter, ArbiterOptions, Done, Endpoint, ExhaustedPolicy, TraceWriter, Waker};
use watershed_smb::{SharedMemory, Smb};
use watershed_wire::protos::CommitDataRequest;

const PAGE_BYTES: usize = 4096;
const PACKET: [u8; 24] = [0x5A; 24];
/// Fills a page.
static WHOLE_PAGE: [u8; 4072] = [7; 4072];

/// A service that never gets to run.
struct Stalled;

impl Endpoint for Stalled {
    fn register_data_source(&self, _descriptor: &[u8]) {}
    fn update_data_source(&self, _descriptor: &[u8]) {}
    fn unregister_data_source(&self, _name: &str) {}
    fn register_trace_writer(&self, _writer_id: u16, _target_buffer: u16) {}
    fn unregister_trace_writer(&self, _writer_id: u16) {}
    fn commit_data(&self, _request: CommitDataRequest, _done: Option<Done>) {}
    fn data_source_started(&self, _instance_id: u64) {}
    fn data_source_stopped(&self, _instance_id: u64) {}
    fn activate_triggers(&self, _names: &[String]) {}
    fn sync(&self, _done: Done) {}
}

impl Waker for Stalled {
    fn wake(&self, _delay: Duration) {}
}

/// A memory with all pages full, and writers that have found that out.
fn full(pages: usize, threads: usize) -> (Smb, Arbiter, Vec<TraceWriter>) {
    let memory = SharedMemory::create(pages * PAGE_BYTES).expect("memory");
    let smb = Smb::new(Arc::new(memory), PAGE_BYTES).expect("a memory of pages");
    let arbiter = Arbiter::new(smb.clone(), Arc::new(Stalled), Box::new(Stalled), ArbiterOptions::default());
    let mut writers: Vec<_> = (0..threads).map(|_| arbiter.create_writer(1, ExhaustedPolicy::Drop)).collect();
    (0..pages).for_each(|_| writers[0].write_packet(&WHOLE_PAGE));
    assert_eq!(arbiter.stats().packets_dropped, 0);
    writers.iter_mut().for_each(|writer| writer.write_packet(&PACKET));
    (smb, arbiter, writers)
}

/// Nanoseconds for each of `packets` packets of each thread.
fn lap(writers: Vec<TraceWriter>, packets: u64) -> f64 {
    let threads = writers.len();
    let barrier = Arc::new(Barrier::new(threads));
    let workers = writers.into_iter().map(|mut writer| {
        let barrier = barrier.clone();
        std::thread::spawn(move || {
            barrier.wait();
            let started = Instant::now();
            (0..packets).for_each(|_| writer.write_packet(&PACKET));
            started.elapsed()
        })
    });
    let took: Duration =
        workers.collect::<Vec<_>>().into_iter().map(|worker| worker.join().expect("a worker")).sum();
    took.as_nanos() as f64 / (threads as u64 * packets) as f64
}

fn dropped(pages: usize, threads: usize, packets: u64) -> f64 {
    let (_smb, arbiter, writers) = full(pages, threads);
    let ns = lap(writers, packets);
    assert_eq!(arbiter.stats().packets_dropped, threads as u64 * (packets + 1));
    ns
}

/// Into pages that were written before, three quarters of them.
fn written(pages: usize, threads: usize) -> f64 {
    let (smb, arbiter, writers) = full(pages, threads);
    let pages_free = (0..pages).map(|page| smb.try_begin_read(page, 0).expect("complete"));
    pages_free.for_each(|chunk| chunk.release().expect("nobody tampers here"));
    let packets_per_page = PAGE_BYTES / (PACKET.len() + 4);
    let packets = pages * 3 / 4 * packets_per_page / threads;
    let ns = lap(writers, packets as u64);
    // A writer that has dropped looks into few pages, and others may take just those.
    let dropped = arbiter.stats().packets_dropped - threads as u64;
    assert!(dropped < 10 + packets as u64 / 100, "{dropped} of {packets}");
    ns
}

fn main() {
    let measure = std::env::args().any(|arg| arg == "--bench");
    let (laps, packets) = if measure { (15, 200_000) } else { (1, 1000) };
    println!("{:>6} {:>7} {:>9} {:>9} {:>6}", "pages", "threads", "dropped", "written", "ratio");
    for (pages, threads) in [(64, 1), (1024, 1), (8192, 1), (64, 2), (1024, 2), (8192, 2)] {
        let median = |lap: &dyn Fn() -> f64| {
            let mut runs: Vec<_> = (0..laps).map(|_| lap()).collect();
            runs.sort_by(f64::total_cmp);
            runs[laps / 2]
        };
        let dropped = median(&|| dropped(pages, threads, packets));
        let written = median(&|| written(pages, threads));
        println!("{pages:>6} {threads:>7} {dropped:>9.1} {written:>9.1} {:>6.2}", dropped / written);
    }
}
