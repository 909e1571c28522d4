//! What one poll of each source costs on this machine, in CPU time.
//!
//! `cargo run --release -p watershed-probes --example cost`

use procfs_core::FromRead;
use procfs_core::process::Stat;
use watershed_probes::{Notices, Probe, ProcessStatsProbe, Roots, SysStatsProbe};
use watershed_wire::protos::{ProcessStatsConfig, SysStatsConfig, TracePacket};

const POLLS: u64 = 200;

/// User and system time of this process so far, in microseconds.
fn cpu_time_us() -> (u64, u64) {
    let line = std::fs::read("/proc/self/stat").expect("/proc is mounted");
    let stat = Stat::from_read(line.as_slice()).expect("the crate knows this kernel's stat");
    let us_per_tick = 1_000_000 / rustix::param::clock_ticks_per_second();
    (stat.utime * us_per_tick, stat.stime * us_per_tick)
}

fn measure(name: &str, probe: &mut impl Probe) {
    let mut packets = 0u64;
    let mut bytes = 0u64;
    let mut count = |p: &TracePacket| {
        packets += 1;
        bytes += prost::Message::encoded_len(p) as u64;
    };
    // The first poll tells everything; it is not what a recording costs.
    probe.poll(0, &mut count);
    let first_bytes = bytes;
    let (user, system) = cpu_time_us();
    let started = std::time::Instant::now();
    for poll in 1..=POLLS {
        probe.poll(poll * 1_000_000_000, &mut |p| {
            packets += 1;
            bytes += prost::Message::encoded_len(p) as u64;
        });
    }
    let wall_us = started.elapsed().as_micros() as u64;
    let (user_end, system_end) = cpu_time_us();
    println!(
        "{name:<28} {:>6} us wall {:>6} us user {:>6} us system {:>7} bytes a poll (the first: {first_bytes})",
        wall_us / POLLS,
        (user_end - user) / POLLS,
        (system_end - system) / POLLS,
        (bytes - first_bytes) / POLLS,
    );
}

fn main() {
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
