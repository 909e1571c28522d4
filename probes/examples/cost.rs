//! What one poll of each source costs on this machine, in CPU time, and an event of the kernel from
//! its page to its packet.
//!
//! `cargo run --release -p watershed-probes --features testing --example cost`

use procfs_core::FromRead;
use procfs_core::process::Stat;
use watershed_probes::testing::PageEncoder;
use watershed_probes::{Notices, Probe, ProcessStatsProbe, Roots, SysStatsProbe, SystemInfoProbe};
use watershed_wire::protos::{ProcessStatsConfig, SysStatsConfig, SystemInfoConfig, TracePacket};

const POLLS: u64 = 200;

/// User and system time of this process so far, in microseconds.
fn cpu_time_us() -> (u64, u64) {
    let line = std::fs::read("/proc/self/stat").expect("/proc is mounted");
    let stat = Stat::from_read(line.as_slice()).expect("the crate knows this kernel's stat");
    let us_per_tick = 1_000_000 / rustix::param::clock_ticks_per_second();
    (stat.utime * us_per_tick, stat.stime * us_per_tick)
}

fn measure(name: &str, probe: &mut impl Probe) {
    measure_polls(name, |now_ns, emit| probe.poll(now_ns, emit));
}

fn measure_polls(name: &str, mut poll: impl FnMut(u64, &mut dyn FnMut(&TracePacket))) {
    let mut poll = |now_ns| {
        let mut bytes = 0;
        poll(now_ns, &mut |packet| bytes += prost::Message::encoded_len(packet) as u64);
        bytes
    };
    // The first poll tells everything; it is not what a recording costs.
    let first_bytes = poll(0);
    let (user, system) = cpu_time_us();
    let started = std::time::Instant::now();
    let bytes: u64 = (1..=POLLS).map(|second| poll(second * 1_000_000_000)).sum();
    let wall_us = started.elapsed().as_micros() as u64;
    let (user_end, system_end) = cpu_time_us();
    println!(
        "{name:<28} {:>6} us wall {:>6} us user {:>6} us system {:>7} bytes a poll (the first: {first_bytes})",
        wall_us / POLLS,
        (user_end - user) / POLLS,
        (system_end - system) / POLLS,
        bytes / POLLS,
    );
}

/// Two pages of a kernel, time and again.
fn measure_events() {
    let formats = [
        ("sched", include_str!("../tests/formats/6.18-x86_64/sched_switch")),
        ("sched", include_str!("../tests/formats/6.18-x86_64/sched_waking")),
    ];
    let header_page = include_str!("../tests/pages/6.18-x86_64/whole/header_page");
    let text = include_str!("../tests/pages/6.18-x86_64/whole/trace.txt");
    let pages = include_bytes!("../tests/pages/6.18-x86_64/whole/pages").repeat(16);
    let events = text.lines().filter(|line| line.contains(": sched_")).count() as u64 * 16 * POLLS;
    let mut encoder = PageEncoder::new(header_page, &formats, true, true).expect("files of a kernel");
    let (mut bytes, started) = (0, std::time::Instant::now());
    for _ in 0..POLLS {
        encoder.encode(0, &pages, &mut |packet| bytes += packet.len() as u64);
    }
    println!(
        "{:<28} {:>6.1} ns wall an event, {:.2} bytes",
        "scheduling, from its page",
        started.elapsed().as_nanos() as f64 / events as f64,
        bytes as f64 / events as f64
    );
}

fn main() {
    measure_events();
    let roots = Roots::default();
    let notices = Notices::new();
    let ms = Some(1000);
    let sections: [(&str, SysStatsConfig); 8] = [
        ("meminfo", SysStatsConfig { meminfo_period_ms: ms, ..Default::default() }),
        ("vmstat", SysStatsConfig { vmstat_period_ms: ms, ..Default::default() }),
        ("stat", SysStatsConfig { stat_period_ms: ms, ..Default::default() }),
        ("cpufreq", SysStatsConfig { cpufreq_period_ms: ms, ..Default::default() }),
        ("diskstat", SysStatsConfig { diskstat_period_ms: ms, ..Default::default() }),
        ("psi", SysStatsConfig { psi_period_ms: ms, ..Default::default() }),
        ("buddyinfo", SysStatsConfig { buddyinfo_period_ms: ms, ..Default::default() }),
        ("slab", SysStatsConfig { slab_period_ms: ms, ..Default::default() }),
    ];
    for (name, config) in sections {
        measure(name, &mut SysStatsProbe::new(&roots, &config, &notices));
    }
    // Told once, by a probe of its own each time.
    let everything = SystemInfoConfig { irq_names: Some(true) };
    measure_polls("system_info, once", |now_ns, emit| {
        SystemInfoProbe::new(&roots, &everything, &notices).poll(now_ns, emit);
    });
    let processes = |ttl_ms| ProcessStatsConfig {
        scan_all_processes_on_start: Some(true),
        record_thread_names: Some(true),
        proc_stats_poll_ms: ms,
        proc_stats_cache_ttl_ms: Some(ttl_ms),
        ..Default::default()
    };
    let changes = processes(u32::MAX);
    measure("processes, changes only", &mut ProcessStatsProbe::new(&roots, &changes, &notices));
    measure("processes, everything", &mut ProcessStatsProbe::new(&roots, &processes(0), &notices));
    for notice in notices.take() {
        println!("{notice}");
    }
}
