use super::*;
use crate::fake::{FakeMachine, FakeProcess, poll};
use watershed_wire::protos::process_stats::Process as Counters;
use watershed_wire::protos::process_stats_config::Quirks;
use watershed_wire::protos::trace_packet::Data;

struct Run {
    machine: FakeMachine,
    notices: Notices,
    probe: ProcessStatsProbe,
}

/// Everything that one poll reported.
#[derive(Default, Debug)]
struct Told {
    processes: Vec<Process>,
    threads: Vec<Thread>,
    counters: Vec<Counters>,
    packets: usize,
    cleared: Vec<bool>,
}

impl Told {
    fn names(&self) -> Vec<(i32, String)> {
        self.processes.iter().map(|p| (p.pid(), p.cmdline.join(" "))).collect()
    }

    fn threads(&self) -> Vec<(i32, i32, &str)> {
        self.threads.iter().map(|t| (t.tgid(), t.tid(), t.name())).collect()
    }

    fn of(&self, pid: i32) -> &Counters {
        self.counters.iter().find(|c| c.pid() == pid).unwrap()
    }
}

impl Run {
    fn new(machine: FakeMachine, config: &ProcessStatsConfig) -> Self {
        let notices = Notices::new();
        let probe = ProcessStatsProbe::new(&machine.roots(), config, &notices);
        Self { machine, notices, probe }
    }

    fn poll(&mut self, now_ms: u64) -> Told {
        let mut told = Told::default();
        for packet in poll(&mut self.probe, now_ms) {
            assert_eq!(packet.timestamp, Some(now_ms * 1_000_000));
            told.packets += 1;
            told.cleared.push(packet.incremental_state_cleared());
            match packet.data {
                Some(Data::ProcessTree(t)) => {
                    assert!(t.collection_end_timestamp.is_some());
                    told.processes.extend(t.processes);
                    told.threads.extend(t.threads);
                }
                Some(Data::ProcessStats(s)) => {
                    assert!(s.collection_end_timestamp.is_some());
                    told.counters.extend(s.processes);
                }
                other => panic!("{other:?}"),
            }
        }
        told.processes.sort_by_key(|p| p.pid());
        told.threads.sort_by_key(|t| (t.tgid(), t.tid()));
        told
    }

    fn said(&self) -> Vec<String> {
        self.notices.take().into_iter().map(|n| n.to_string()).collect()
    }
}

fn scan_and_poll() -> ProcessStatsConfig {
    ProcessStatsConfig {
        scan_all_processes_on_start: Some(true),
        record_thread_names: Some(true),
        proc_stats_poll_ms: Some(1000),
        proc_stats_cache_ttl_ms: Some(1_000_000),
        ..Default::default()
    }
}

fn machine(processes: &[FakeProcess]) -> FakeMachine {
    let machine = FakeMachine::new();
    machine.write("proc/meminfo", "a name that is no number\n");
    for p in processes {
        machine.process(p);
    }
    machine
}

#[test]
fn the_first_scan_tells_everything() {
    let mut server = FakeProcess::new(300, "server (x) y:z", b"/usr/bin/server\0--port\09\0");
    server.threads = vec![(301, "worker"), (302, "io:1")];
    let machine = machine(&[FakeProcess::kernel_thread(7, "kworker/0:1-events"), server]);
    let mut run = Run::new(machine, &scan_and_poll());
    assert_eq!(run.probe.due_ns(), Some(0), "at once");
    let told = run.poll(10);
    assert_eq!(told.names(), [(7, "kworker/0:1-events".into()), (300, "/usr/bin/server --port 9".into())]);
    let (k, p) = (&told.processes[0], &told.processes[1]);
    assert_eq!((k.is_kthread, k.cmdline_is_comm, k.ppid), (Some(true), Some(true), Some(2)));
    assert_eq!((p.is_kthread, p.cmdline_is_comm, p.uid), (Some(false), None, Some(1000)));
    assert_eq!((p.process_start_from_boot, &p.nspid[..]), (None, &[][..]));
    assert_eq!(
        told.threads(),
        [
            (7, 7, "kworker/0:1-events"),
            (300, 300, "server (x) y:z"),
            (300, 301, "worker"),
            (300, 302, "io:1")
        ]
    );
    assert_eq!(
        told.counters,
        [Counters {
            pid: Some(300),
            vm_size_kb: Some(5000),
            vm_rss_kb: Some(1000),
            rss_anon_kb: Some(300),
            rss_file_kb: Some(200),
            rss_shmem_kb: Some(100),
            vm_swap_kb: Some(50),
            vm_locked_kb: Some(4),
            vm_hwm_kb: Some(2000),
            oom_score_adj: Some(-500),
            ..Default::default()
        }]
    );
    assert_eq!(run.probe.due_ns(), Some(1_000_000_000));
    assert_eq!(run.said(), [] as [&str; 0]);
}

#[test]
fn later_polls_tell_changes_only() {
    let mut p = FakeProcess::new(300, "a", b"a\0");
    let idle = FakeProcess::new(400, "b", b"b\0");
    let mut run = Run::new(machine(&[p.clone(), idle]), &scan_and_poll());
    run.poll(0);
    assert_eq!(run.poll(1000).packets, 0, "nobody ran");
    p.utime_ticks += 1;
    p.rss_kb = Some(1001);
    run.machine.process(&p);
    let told = run.poll(2000);
    assert_eq!(told.counters, [Counters { pid: Some(300), vm_rss_kb: Some(1001), ..Default::default() }]);
    assert!(told.processes.is_empty());
}

#[test]
fn the_cache_ends_after_its_time() {
    let config = ProcessStatsConfig { proc_stats_cache_ttl_ms: Some(3500), ..scan_and_poll() };
    let mut run = Run::new(machine(&[FakeProcess::new(300, "a", b"a\0")]), &config);
    let counts: Vec<usize> = (0..8).map(|i| run.poll(i * 1000).counters.len()).collect();
    assert_eq!(counts, [1, 0, 0, 1, 0, 0, 1, 0]);
    // Without a cache time, every poll reports everything.
    let config = ProcessStatsConfig { proc_stats_cache_ttl_ms: None, ..scan_and_poll() };
    let mut run = Run::new(run.machine, &config);
    for i in 0..3 {
        assert_eq!(run.poll(i * 1000).of(300).vm_rss_kb, Some(1000));
    }
}

#[test]
fn processes_that_come_and_go() {
    let a = FakeProcess::new(300, "a", b"a\0");
    let mut run = Run::new(machine(std::slice::from_ref(&a)), &scan_and_poll());
    run.poll(0);
    run.machine.process(&FakeProcess::new(301, "b", b"b\0"));
    let told = run.poll(1000);
    assert_eq!(told.names(), [(301, "b".into())]);
    assert_eq!(told.counters.len(), 1);
    run.machine.remove("proc/300");
    assert_eq!(run.poll(2000).packets, 0);
    // The same number for another process, seen between two polls or after a gap.
    run.machine.process(&FakeProcess { start_ticks: 500, ..FakeProcess::new(301, "b", b"b\0again\0") });
    run.machine.process(&a);
    let told = run.poll(3000);
    assert_eq!(told.names(), [(300, "a".into()), (301, "b again".into())]);
    assert_eq!(told.of(301).vm_rss_kb, Some(1000), "counters of another process are news");
}

#[test]
fn a_vanished_process_is_normal() {
    let machine = machine(&[FakeProcess::new(300, "a", b"a\0")]);
    for (pid, gone) in [(310, "stat"), (311, "status")] {
        machine.process(&FakeProcess::new(pid, "g", b"g\0"));
        machine.remove(format!("proc/{pid}/{gone}"));
    }
    machine.process(&FakeProcess::new(312, "g", b"g\0"));
    machine.write("proc/312/stat", "half a li");
    let mut run = Run::new(machine, &scan_and_poll());
    let told = run.poll(0);
    assert_eq!(told.names(), [(300, "a".into())]);
    assert_eq!(run.said(), [] as [&str; 0]);
}

#[test]
fn a_new_name_is_told() {
    let mut p = FakeProcess::new(300, "sh", b"sh\0-c\0x\0");
    let mut run =
        Run::new(machine(&[p.clone(), FakeProcess::kernel_thread(7, "kworker/0:1-a")]), &scan_and_poll());
    run.poll(0);
    p.comm = b"rustc".to_vec();
    p.cmdline = b"rustc\0x.rs\0";
    run.machine.process(&p);
    run.machine.process(&FakeProcess::kernel_thread(7, "kworker/0:1-b"));
    for i in 1..=KTHREAD_SCANS {
        let told = run.poll(i * 1000);
        if i == 1 {
            assert_eq!(told.names(), [(300, "rustc x.rs".into())]);
            assert_eq!(told.threads(), [(300, 300, "rustc")]);
        } else {
            assert_eq!(told.packets, 0, "a worker's work is no name");
        }
    }
}

#[test]
fn a_kernel_threads_number_may_pass_on() {
    let mut run = Run::new(machine(&[FakeProcess::kernel_thread(7, "kworker/0:1")]), &scan_and_poll());
    run.poll(0);
    run.machine.process(&FakeProcess { start_ticks: 900, ..FakeProcess::new(7, "late", b"late\0") });
    let names: Vec<_> = (1..=KTHREAD_SCANS).flat_map(|i| run.poll(i * 1000).names()).collect();
    assert_eq!(names, [(7, "late".into())]);
}

#[test]
fn threads_that_come_and_rename_themselves() {
    let mut p = FakeProcess::new(300, "a", b"a\0");
    let mut run = Run::new(machine(&[p.clone()]), &scan_and_poll());
    run.poll(0);
    p.threads = vec![(301, "a")];
    run.machine.process(&p);
    assert_eq!(run.poll(1000).threads(), [(300, 301, "a")]);
    // Nothing else changes: the process looks idle, and still the name is looked at once more.
    run.machine.write("proc/300/task/301/comm", "named\n");
    assert_eq!(run.poll(2000).threads(), [(300, 301, "named")]);
    assert_eq!(run.poll(3000).packets, 0);
    assert_eq!(run.poll(4000).packets, 0);
    // The same thread number anew.
    p.threads.clear();
    p.utime_ticks += 1;
    run.machine.process(&p);
    run.machine.remove("proc/300/task/301");
    assert!(run.poll(5000).threads.is_empty());
    p.threads = vec![(301, "new")];
    run.machine.process(&p);
    assert_eq!(run.poll(6000).threads(), [(300, 301, "new")]);
}

#[test]
fn names_that_are_no_text() {
    let p = FakeProcess { comm: vec![b'x', 0xff], ..FakeProcess::new(300, "", b"y\xfe\0") };
    let mut run = Run::new(machine(&[p]), &scan_and_poll());
    let told = run.poll(0);
    assert_eq!(told.names(), [(300, "y\u{fffd}".into())]);
    assert_eq!(told.of(300).vm_rss_kb, Some(1000));
}

#[test]
fn config_fields_that_turn_things_off() {
    let mut p = FakeProcess::new(300, "a", b"a\0");
    p.threads = vec![(301, "t")];
    let processes = [p, FakeProcess::kernel_thread(7, "k")];
    let config = ProcessStatsConfig {
        record_thread_names: None,
        skip_main_thread_message: Some(true),
        ..scan_and_poll()
    };
    assert_eq!(Run::new(machine(&processes), &config).poll(0).threads(), [(300, 301, "")]);
    // No dump at the start: kernel threads are never reported, the others with their first
    // counters.
    for config in [
        ProcessStatsConfig { scan_all_processes_on_start: None, ..scan_and_poll() },
        ProcessStatsConfig { quirks: vec![Quirks::DisableInitialDump as i32], ..scan_and_poll() },
    ] {
        assert_eq!(Run::new(machine(&processes), &config).poll(0).names(), [(300, "a".into())]);
    }
    // Only the dump.
    let config =
        ProcessStatsConfig { proc_stats_poll_ms: None, proc_stats_cache_ttl_ms: None, ..scan_and_poll() };
    let mut run = Run::new(machine(&processes), &config);
    let told = run.poll(0);
    assert_eq!((told.processes.len(), told.counters.len()), (2, 0));
    assert_eq!(run.probe.due_ns(), None);
    // On demand.
    run.machine.process(&FakeProcess::new(900, "new", b"new\0"));
    run.probe.hurry();
    assert_eq!(run.probe.due_ns(), Some(0));
    assert_eq!(run.poll(1).names(), [(900, "new".into())]);
    let config = ProcessStatsConfig { quirks: vec![Quirks::DisableOnDemand as i32], ..config };
    let mut run = Run::new(run.machine, &config);
    run.poll(0);
    run.probe.hurry();
    assert_eq!(run.probe.due_ns(), None);
}

#[test]
fn nothing_asked() {
    let run = Run::new(machine(&[]), &ProcessStatsConfig::default());
    assert_eq!(run.probe.due_ns(), None);
    assert_eq!(run.said().len(), 1);
    let config = ProcessStatsConfig {
        proc_stats_poll_ms: Some(5),
        record_process_dmabuf_rss: Some(true),
        ..Default::default()
    };
    let run = Run::new(run.machine, &config);
    let said = run.said();
    assert!(said[0].contains("raised to 100") && said[1].contains("dmabuf_rss"), "{said:?}");
}

#[test]
fn age_runtime_rollup_descriptors() {
    let mut p = FakeProcess::new(300, "a", b"a\0");
    p.nspid = "\t12\t1";
    p.threads = vec![(301, "t")];
    let machine = machine(&[p.clone(), FakeProcess::kernel_thread(7, "k")]);
    machine.write(
        "proc/300/smaps_rollup",
        "55a0-7ffe ---p 00000000 00:00 0                          [rollup]\nRss:                3000 kB\n\
         Pss:                2500 kB\nPss_Anon:           1000 kB\nPss_File:           1400 kB\nPss_Shmem:           100 kB\n\
         SwapPss:               7 kB\n",
    );
    machine.write("proc/300/dmabuf_rss", "8192\n");
    machine.write("proc/self/dmabuf_rss", "0\n");
    machine.link("proc/300/fd/3", "/etc/hosts");
    let config = ProcessStatsConfig {
        record_process_age: Some(true),
        record_process_runtime: Some(true),
        scan_smaps_rollup: Some(true),
        resolve_process_fds: Some(true),
        record_process_dmabuf_rss: Some(true),
        ..scan_and_poll()
    };
    let mut run = Run::new(machine, &config);
    let told = run.poll(0);
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    assert_eq!(told.processes[1].process_start_from_boot, Some(100 * tick_ns));
    assert_eq!(told.processes[1].nspid, [12, 1]);
    assert_eq!(told.threads.iter().find(|t| t.tid() == 301).unwrap().nstid, [12, 1]);
    let c = told.of(300);
    assert_eq!((c.runtime_user_mode, c.runtime_kernel_mode), (Some(7 * tick_ns), Some(3 * tick_ns)));
    let rollup = [
        c.smr_rss_kb,
        c.smr_pss_kb,
        c.smr_pss_anon_kb,
        c.smr_pss_file_kb,
        c.smr_pss_shmem_kb,
        c.smr_swap_pss_kb,
    ];
    assert_eq!(rollup, [3000, 2500, 1000, 1400, 100, 7].map(Some));
    assert_eq!(c.dmabuf_rss_kb, Some(8));
    assert_eq!((c.fds.len(), c.fds[0].fd(), c.fds[0].path()), (1, 3, "/etc/hosts"));
    assert_eq!(told.of(7).runtime_user_mode, Some(7 * tick_ns), "kernel threads run too");
    assert_eq!(run.poll(1000).packets, 0);
    run.machine.link("proc/300/fd/4", "socket:[1]");
    let told = run.poll(2000);
    assert_eq!(
        (told.counters.len(), told.counters[0].fds.len()),
        (1, 1),
        "a new descriptor of an idle process"
    );
}

#[test]
fn large_machines_take_several_packets() {
    let processes: Vec<_> = (0..500)
        .map(|i| {
            FakeProcess::new(1000 + i, "p", b"/a/rather/long/command/line/for/one/process\0with\0arguments\0")
        })
        .collect();
    let mut run = Run::new(machine(&processes), &scan_and_poll());
    let mut largest = 0;
    let mut names_told = std::collections::HashSet::new();
    run.probe.poll(0, &mut |p| {
        largest = largest.max(prost::Message::encoded_len(p));
        match &p.data {
            Some(Data::ProcessTree(t)) => names_told.extend(t.processes.iter().map(|p| p.pid())),
            Some(Data::ProcessStats(s)) => {
                assert!(
                    s.processes.iter().all(|c| names_told.contains(&c.pid())),
                    "a name goes before its counters"
                );
            }
            _ => unreachable!(),
        }
    });
    assert_eq!(names_told.len(), 500);
    assert!((4_000..20_000).contains(&largest), "{largest}");
}

#[test]
fn after_a_clear_everything_is_told_again() {
    let mut run = Run::new(machine(&[FakeProcess::new(300, "a", b"a\0")]), &scan_and_poll());
    let first = run.poll(0);
    assert!(first.cleared.iter().all(|c| !c));
    run.probe.clear_incremental_state();
    let told = run.poll(1000);
    assert_eq!((told.names(), told.counters.len()), (first.names(), 1));
    assert_eq!(told.cleared, [true, false], "the first packet carries the mark");
}
