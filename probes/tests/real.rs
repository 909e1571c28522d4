//! The probes on the machine that runs the tests.

use std::collections::HashMap;
use std::process::Command;
use std::time::{Duration, Instant};
use watershed_probes::{Notices, Probe, ProcessStatsProbe, Roots, SysStatsProbe, boottime_now_ns};
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{ProcessStatsConfig, SysStats, SysStatsConfig, TracePacket, VmstatCounters};

fn poll(probe: &mut impl Probe) -> Vec<TracePacket> {
    let mut packets = Vec::new();
    probe.poll(boottime_now_ns(), &mut |p| packets.push(p.clone()));
    packets
}

fn thread_cpu_ns() -> i64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

#[test]
fn counters_of_the_machine_grow() {
    let config = SysStatsConfig {
        meminfo_period_ms: Some(10),
        vmstat_period_ms: Some(10),
        stat_period_ms: Some(10),
        ..Default::default()
    };
    let notices = Notices::new();
    let mut probe = SysStatsProbe::new(&Roots::default(), &config, &notices);
    let mut sample = || match poll(&mut probe).pop().and_then(|p| p.data) {
        Some(Data::SysStats(s)) => s,
        other => panic!("{other:?}"),
    };
    let first = sample();
    // A fork, and ten ticks of this thread's own CPU time: what has passed on the clock says
    // nothing on a busy machine.
    assert!(Command::new("true").status().unwrap().success());
    while thread_cpu_ns() < 100_000_000 {
        // Mostly not in the system call that reads the clock.
        for number in 0..100_000 {
            std::hint::black_box(number);
        }
    }
    let last = sample();
    assert!(last.num_forks > first.num_forks);
    assert!(last.num_irq_total > first.num_irq_total);
    // The kernel books the time of a process that was niced apart from that of others.
    let user_ns = |s: &SysStats| s.cpu_stat.iter().map(|c| c.user_ns() + c.user_nice_ns()).sum::<u64>();
    assert!(user_ns(&last) > user_ns(&first));
    let faults = |s: &SysStats| {
        let key = VmstatCounters::VmstatPgfault;
        s.vmstat.iter().find(|v| v.key() == key).unwrap().value()
    };
    assert!(faults(&last) > faults(&first));
    assert!(last.meminfo.len() > 20 && last.vmstat.len() > 50);
    assert!(notices.take().is_empty());
}

#[test]
fn this_process_and_its_children_have_their_names() {
    let config = ProcessStatsConfig {
        scan_all_processes_on_start: Some(true),
        record_thread_names: Some(true),
        proc_stats_poll_ms: Some(100),
        ..Default::default()
    };
    let mut probe = ProcessStatsProbe::new(&Roots::default(), &config, &Notices::new());
    let mut child = Command::new("sleep").arg("60").spawn().unwrap();
    // A thread gives itself its name when it starts to run.
    let (runs, until_it_runs) = std::sync::mpsc::channel();
    let (read, until_read) = std::sync::mpsc::channel::<()>();
    let thread = std::thread::Builder::new().name("probe-me".into()).spawn(move || {
        runs.send(()).unwrap();
        until_read.recv()
    });
    let thread = thread.unwrap();
    until_it_runs.recv().unwrap();

    let packets = poll(&mut probe);
    child.kill().unwrap();
    child.wait().unwrap();
    drop(read);
    assert!(thread.join().unwrap().is_err(), "it was there until now");

    let (mut names, mut threads, mut rss_kb) = (HashMap::new(), Vec::new(), HashMap::new());
    for packet in packets {
        match packet.data {
            Some(Data::ProcessTree(t)) => {
                names.extend(t.processes.iter().map(|p| (p.pid(), (p.ppid(), p.cmdline.clone()))));
                threads.extend(t.threads);
            }
            Some(Data::ProcessStats(s)) => {
                rss_kb.extend(s.processes.iter().map(|p| (p.pid(), p.vm_rss_kb())))
            }
            other => panic!("{other:?}"),
        }
    }
    let own_pid = std::process::id().cast_signed();
    let own_args: Vec<String> = std::env::args().collect();
    assert_eq!(names[&own_pid].1, own_args);
    let (ppid, args) = &names[&child.id().cast_signed()];
    assert_eq!((*ppid, args.join(" ").as_str()), (own_pid, "sleep 60"));
    assert!(threads.iter().any(|t| t.tgid() == own_pid && t.name() == "probe-me"));
    assert!(rss_kb[&own_pid] > 0);
}

#[test]
fn many_processes_that_end_while_they_are_read() {
    let config = ProcessStatsConfig {
        scan_all_processes_on_start: Some(true),
        record_thread_names: Some(true),
        proc_stats_poll_ms: Some(100),
        resolve_process_fds: Some(true),
        scan_smaps_rollup: Some(true),
        ..Default::default()
    };
    let mut probe = ProcessStatsProbe::new(&Roots::default(), &config, &Notices::new());
    let started = Instant::now();
    let spawner = std::thread::spawn(move || {
        while started.elapsed() < Duration::from_millis(700) {
            assert!(Command::new("true").status().unwrap().success());
        }
    });
    while started.elapsed() < Duration::from_millis(600) {
        poll(&mut probe);
        std::thread::sleep(Duration::from_millis(20));
    }
    spawner.join().unwrap();
}
