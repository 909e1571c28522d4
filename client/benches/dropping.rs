//! What a packet costs that is dropped, against one that is written, with three services:
//!
//! | column | the service | what it does while packets are dropped |
//! |---|---|---|
//! | `stopped` | counts the chunks that it frees ([`Smb::free_epoch`]), as ours does | nothing |
//! | `frees` | likewise | frees a chunk every 64 packets; another writer takes it at once |
//! | `no count` | has no such count, as Perfetto's | nothing |
//!
//! With the first one a dropped packet is to cost less than a written one, in any memory.
//!
//! `cargo bench -p watershed-client --bench dropping` prints nanoseconds of CPU time for one packet
//! of 24 bytes, and behind each dropped one the ratio to a written one, for memories from 256 KiB
//! to 32 MiB, one thread and two. On a busy machine only the ratios mean something. Each run checks
//! that what was dropped is counted.

use std::sync::{Arc, Barrier};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use watershed_client::{Arbiter, ArbiterOptions, Done, Endpoint, ExhaustedPolicy, TraceWriter, Waker};
use watershed_smb::{PageLayout, SharedMemory, Smb};
use watershed_wire::protos::CommitDataRequest;

const PAGE_BYTES: usize = 4096;
const PACKET: [u8; 24] = [0x5A; 24];
/// Fills a page.
static WHOLE_PAGE: [u8; 4072] = [7; 4072];

/// Packets for which a service that frees chunks frees one: a page has 146 of them, so it is behind
/// by less than half.
const PACKETS_PER_FREED: u64 = 64;

/// What the service does while packets are dropped: see the head.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Service {
    Stopped,
    Frees,
    NoCount,
}

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
fn full(pages: usize, threads: usize, service: Service) -> (Smb, Arbiter, Vec<TraceWriter>) {
    let memory = SharedMemory::create(pages * PAGE_BYTES).expect("memory");
    let smb = Smb::new(Arc::new(memory), PAGE_BYTES).expect("a memory of pages");
    if service != Service::NoCount {
        smb.publish_free_epoch();
    }
    let arbiter = Arbiter::new(smb.clone(), Arc::new(Stalled), Box::new(Stalled), ArbiterOptions::default());
    let mut writers: Vec<_> = (0..threads).map(|_| arbiter.create_writer(1, ExhaustedPolicy::Drop)).collect();
    (0..pages).for_each(|_| writers[0].write_packet(&WHOLE_PAGE));
    assert_eq!(arbiter.stats().packets_dropped, 0);
    writers.iter_mut().for_each(|writer| writer.write_packet(&PACKET));
    (smb, arbiter, writers)
}

/// Frees the chunk of a page, which another writer takes and fills at once.
fn free_and_take(smb: &Smb, page: usize) {
    smb.try_begin_read(page, 0).expect("complete").release().expect("nobody tampers here");
    let chunk = smb.try_acquire_within(page, 1, PageLayout::Div1).expect("just freed");
    smb.complete(chunk).expect("nobody tampers here");
}

/// Of this thread.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// Nanoseconds for each of `packets` packets of each thread. `between` is called for every
/// [`PACKETS_PER_FREED`] of the first one.
fn lap(writers: Vec<TraceWriter>, packets: u64, mut between: impl FnMut() + Send) -> f64 {
    let threads = writers.len();
    let barrier = Barrier::new(threads);
    let write = |mut writer: TraceWriter, between: &mut dyn FnMut()| {
        barrier.wait();
        let started = cpu_time();
        for first in (0..packets).step_by(PACKETS_PER_FREED as usize) {
            between();
            (first..packets.min(first + PACKETS_PER_FREED)).for_each(|_| writer.write_packet(&PACKET));
        }
        cpu_time() - started
    };
    let took: Duration = std::thread::scope(|scope| {
        let mut writers = writers.into_iter();
        let first = writers.next().expect("one writer at least");
        let others: Vec<_> = writers.map(|writer| scope.spawn(|| write(writer, &mut || {}))).collect();
        let first = write(first, &mut between);
        others.into_iter().map(|other| other.join().expect("a writer")).sum::<Duration>() + first
    });
    took.as_nanos() as f64 / (threads as u64 * packets) as f64
}

fn dropped(pages: usize, threads: usize, service: Service, packets: u64) -> f64 {
    let (smb, arbiter, writers) = full(pages, threads, service);
    let mut page = 0;
    let mut serve = || {
        if service == Service::Frees {
            page = (page + 1) % pages;
            free_and_take(&smb, page);
        }
    };
    let started = cpu_time();
    (0..packets / PACKETS_PER_FREED).for_each(|_| serve());
    let service_ns = (cpu_time() - started).as_nanos() as f64 / packets as f64;
    let ns = lap(writers, packets, serve);
    assert_eq!(arbiter.stats().packets_dropped, threads as u64 * (packets + 1));
    ns - service_ns
}

/// Into pages that were written before, three quarters of them.
fn written(pages: usize, threads: usize) -> f64 {
    let (smb, arbiter, writers) = full(pages, threads, Service::Stopped);
    let pages_free = (0..pages).map(|page| smb.try_begin_read(page, 0).expect("complete"));
    pages_free.for_each(|chunk| chunk.release().expect("nobody tampers here"));
    let packets_per_page = PAGE_BYTES / (PACKET.len() + 4);
    let packets = pages * 3 / 4 * packets_per_page / threads;
    let ns = lap(writers, packets as u64, || {});
    // A writer that has dropped looks into few pages, and others may take just those.
    let dropped = arbiter.stats().packets_dropped - threads as u64;
    assert!(dropped < 10 + packets as u64 / 100, "{dropped} of {packets}");
    ns
}

fn main() {
    let measure = std::env::args().any(|arg| arg == "--bench");
    let (laps, packets) = if measure { (15, 200_000) } else { (1, 1000) };
    println!(
        "{:>6} {:>7} {:>8} {:>14} {:>14} {:>14}",
        "pages", "threads", "written", "stopped", "frees", "no count"
    );
    for (pages, threads) in [(64, 1), (1024, 1), (8192, 1), (64, 2), (1024, 2), (8192, 2)] {
        let median = |lap: &dyn Fn() -> f64| {
            let mut runs: Vec<_> = (0..laps).map(|_| lap()).collect();
            runs.sort_by(f64::total_cmp);
            runs[laps / 2]
        };
        let written = median(&|| written(pages, threads));
        print!("{pages:>6} {threads:>7} {written:>8.1}");
        // Another writer would take the chunk of the one that frees it.
        let frees = Some(Service::Frees).filter(|_| threads == 1);
        for service in [Some(Service::Stopped), frees, Some(Service::NoCount)] {
            match service.map(|service| median(&|| dropped(pages, threads, service, packets))) {
                Some(dropped) => print!(" {dropped:>7.1} {:>6.2}", dropped / written),
                None => print!(" {:>14}", "-"),
            }
        }
        println!();
    }
}
