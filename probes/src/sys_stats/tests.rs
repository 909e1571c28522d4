use super::*;
use crate::fake::{FakeMachine, poll};
use watershed_wire::protos::sys_stats::psi_sample::PsiResource;
use watershed_wire::protos::sys_stats_config::StatCounters;
use watershed_wire::protos::{MeminfoCounters, VmstatCounters};

const STAT: &str = "\
cpu  30 0 0 0 0 0 0 0 0 0
cpu0 10 1 20 300 4 5 6 7 0 0
cpu3 20 2 30 400
intr 1234 0 7 0 9
ctxt 55
btime 1700000000
processes 77
procs_running 1
procs_blocked 0
softirq 321 0 4 5
";

const MEMINFO: &str = "\
MemTotal:       16000000 kB
MemFree:         8000000 kB
Buffers:            2000 kB
Cached:             3000 kB
SwapCached:            0 kB
Active:                5 kB
Inactive:              6 kB
SwapTotal:             0 kB
SwapFree:              0 kB
Dirty:                 7 kB
Writeback:             0 kB
Mapped:                8 kB
Slab:                  9 kB
Committed_AS:         10 kB
VmallocTotal:         11 kB
VmallocUsed:          12 kB
VmallocChunk:          0 kB
";

struct Run {
    machine: FakeMachine,
    notices: Notices,
    probe: SysStatsProbe,
}

impl Run {
    fn new(machine: FakeMachine, config: &SysStatsConfig) -> Self {
        let notices = Notices::new();
        let probe = SysStatsProbe::new(&machine.roots(), config, &notices);
        Self { machine, notices, probe }
    }

    fn poll(&mut self, now_ms: u64) -> Option<SysStats> {
        let mut packets = poll(&mut self.probe, now_ms);
        assert!(packets.len() <= 1);
        let packet = packets.pop()?;
        assert_eq!(packet.timestamp, Some(now_ms * 1_000_000));
        assert_eq!(packet.timestamp_clock_id, None, "the trace's default clock");
        match packet.data {
            Some(Data::SysStats(s)) => {
                assert!(s.collection_end_timestamp.is_some());
                Some(s)
            }
            other => panic!("{other:?}"),
        }
    }

    fn said(&self) -> Vec<String> {
        self.notices.take().into_iter().map(|n| n.to_string()).collect()
    }
}

#[test]
fn cpu_times_keep_their_cpus() {
    let machine = FakeMachine::new();
    machine.write("proc/stat", STAT);
    let config = SysStatsConfig { stat_period_ms: Some(100), ..Default::default() };
    let s = Run::new(machine, &config).poll(5).unwrap();
    let tick_ns = 1_000_000_000 / rustix::param::clock_ticks_per_second();
    assert_eq!(s.cpu_stat.len(), 2, "the sum over all CPUs is not one");
    assert_eq!((s.cpu_stat[0].cpu_id, s.cpu_stat[1].cpu_id), (Some(0), Some(3)));
    let t = &s.cpu_stat[0];
    let times = [
        t.user_ns,
        t.user_nice_ns,
        t.system_mode_ns,
        t.idle_ns,
        t.io_wait_ns,
        t.irq_ns,
        t.softirq_ns,
        t.steal_ns,
    ];
    assert_eq!(times, [10, 1, 20, 300, 4, 5, 6, 7].map(|ticks| Some(ticks * tick_ns)));
    assert_eq!(s.cpu_stat[1].idle_ns, Some(400 * tick_ns));
    assert_eq!(s.cpu_stat[1].steal_ns, None, "a column that is not there");
    assert_eq!(s.num_forks, Some(77));
    assert_eq!(s.num_irq_total, Some(1234));
    let irqs: Vec<_> = s.num_irq.iter().map(|c| (c.irq(), c.count())).collect();
    assert_eq!(irqs, [(1, 7), (3, 9)], "those that fired");
    assert_eq!(s.num_softirq_total, Some(321));
    let softirqs: Vec<_> = s.num_softirq.iter().map(|c| (c.irq(), c.count())).collect();
    assert_eq!(softirqs, [(0, 0), (1, 4), (2, 5)]);
}

#[test]
fn stat_counters_filter() {
    for (counter, shape) in [
        (StatCounters::StatCpuTimes, [true, false, false, false]),
        (StatCounters::StatIrqCounts, [false, true, false, false]),
        (StatCounters::StatSoftirqCounts, [false, false, true, false]),
        (StatCounters::StatForkCount, [false, false, false, true]),
    ] {
        let machine = FakeMachine::new();
        machine.write("proc/stat", STAT);
        let config = SysStatsConfig {
            stat_period_ms: Some(100),
            stat_counters: vec![counter as i32],
            ..Default::default()
        };
        let s = Run::new(machine, &config).poll(0).unwrap();
        let got = [
            !s.cpu_stat.is_empty(),
            s.num_irq_total.is_some() && !s.num_irq.is_empty(),
            s.num_softirq_total.is_some() && !s.num_softirq.is_empty(),
            s.num_forks.is_some(),
        ];
        assert_eq!(got, shape, "{counter:?}");
    }
}

#[test]
fn meminfo_is_in_kib_and_filtered() {
    let machine = FakeMachine::new();
    machine.write("proc/meminfo", MEMINFO);
    let config = SysStatsConfig { meminfo_period_ms: Some(100), ..Default::default() };
    let mut run = Run::new(machine, &config);
    let s = run.poll(0).unwrap();
    let value = |key: MeminfoCounters| s.meminfo.iter().find(|v| v.key() == key).map(|v| v.value());
    assert_eq!(value(MeminfoCounters::MeminfoMemTotal), Some(16_000_000));
    assert_eq!(value(MeminfoCounters::MeminfoDirty), Some(7));
    assert_eq!(value(MeminfoCounters::MeminfoCommitedAs), Some(10));
    assert_eq!(value(MeminfoCounters::MeminfoMemAvailable), None, "not in this file");
    assert_eq!(s.meminfo.len(), 17);
    assert_eq!(run.said(), [] as [&str; 0]);

    let config = SysStatsConfig {
        meminfo_period_ms: Some(100),
        meminfo_counters: vec![
            MeminfoCounters::MeminfoCached as i32,
            MeminfoCounters::MeminfoIonHeap as i32,
            MeminfoCounters::MeminfoMemAvailable as i32,
            999,
        ],
        ..Default::default()
    };
    let mut run = Run::new(run.machine, &config);
    let s = run.poll(0).unwrap();
    assert_eq!(s.meminfo.len(), 1);
    assert_eq!((s.meminfo[0].key(), s.meminfo[0].value()), (MeminfoCounters::MeminfoCached, 3000));
    assert_eq!(
        run.said(),
        [
            "linux.sys_stats: meminfo_counters: not on this machine: MEMINFO_ION_HEAP, MEMINFO_MEM_AVAILABLE, 999"
        ]
    );
}

#[test]
fn vmstat_maps_names_to_numbers() {
    let machine = FakeMachine::new();
    machine.write("proc/vmstat", "pgfault 12\nnr_free_pages 34\nnot_in_the_format 5\nnr_dirty -1\n");
    let config = SysStatsConfig { vmstat_period_ms: Some(100), ..Default::default() };
    let mut run = Run::new(machine, &config);
    let s = run.poll(0).unwrap();
    let got: Vec<_> = s.vmstat.iter().map(|v| (v.key(), v.value())).collect();
    assert_eq!(
        got,
        [
            (VmstatCounters::VmstatNrFreePages, 34),
            (VmstatCounters::VmstatNrDirty, 0),
            (VmstatCounters::VmstatPgfault, 12)
        ],
        "in the order of their numbers; a transient negative is none"
    );
    let config = SysStatsConfig {
        vmstat_period_ms: Some(100),
        vmstat_counters: vec![VmstatCounters::VmstatPgfault as i32, VmstatCounters::VmstatPswpin as i32],
        ..Default::default()
    };
    let mut run = Run::new(run.machine, &config);
    assert_eq!(run.poll(0).unwrap().vmstat.len(), 1);
    assert_eq!(run.said(), ["linux.sys_stats: vmstat_counters: not on this machine: VMSTAT_PSWPIN"]);
}

#[test]
fn memory_allocator_files() {
    let machine = FakeMachine::new();
    machine.write(
        "proc/buddyinfo",
        "Node 0, zone      DMA      1      0      3 \nNode 1, zone   Normal    328    198      4 \n",
    );
    machine.write(
        "proc/slabinfo",
        "slabinfo - version: 2.1\n# name <active_objs> ...\n\
         dentry 10 20 192 21 2 : tunables 0 0 0 : slabdata 30 40 0\n",
    );
    let config =
        SysStatsConfig { buddyinfo_period_ms: Some(100), slab_period_ms: Some(100), ..Default::default() };
    let s = Run::new(machine, &config).poll(0).unwrap();
    let buddies: Vec<_> = s.buddy_info.iter().map(|b| (b.node(), b.zone(), b.order_pages.clone())).collect();
    assert_eq!(buddies, [("0", "DMA", vec![1, 0, 3]), ("1", "Normal", vec![328, 198, 4])]);
    assert_eq!(s.slab_info.len(), 1);
    let slab = &s.slab_info[0];
    assert_eq!((slab.name(), slab.pages_per_slab(), slab.num_slabs()), ("dentry", 2, 40));
}

#[test]
fn disks_that_never_worked_are_told_once() {
    let machine = FakeMachine::new();
    let disks = "7 0 loop0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n\
                 254 0 vda 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17\n";
    machine.write("proc/diskstats", disks);
    let config = SysStatsConfig { diskstat_period_ms: Some(100), ..Default::default() };
    let mut run = Run::new(machine, &config);
    assert_eq!(run.poll(0).unwrap().disk_stat.len(), 2);
    let s = run.poll(100).unwrap();
    assert_eq!(s.disk_stat.len(), 1);
    let d = &s.disk_stat[0];
    assert_eq!(d.device_name(), "vda");
    let got = [
        d.read_sectors,
        d.read_time_ms,
        d.write_sectors,
        d.write_time_ms,
        d.discard_sectors,
        d.discard_time_ms,
        d.flush_count,
        d.flush_time_ms,
    ];
    assert_eq!(got, [3, 4, 7, 8, 14, 15, 16, 17].map(Some));
}

#[test]
fn pressure_with_and_without_full() {
    let machine = FakeMachine::new();
    machine.write("proc/pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=11\n");
    for name in ["io", "memory"] {
        let full = "some avg10=1.00 avg60=0.00 avg300=0.00 total=22\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=33\n";
        machine.write(format!("proc/pressure/{name}"), full);
    }
    let config = SysStatsConfig { psi_period_ms: Some(100), ..Default::default() };
    let s = Run::new(machine, &config).poll(0).unwrap();
    let got: Vec<_> = s.psi.iter().map(|p| (p.resource(), p.total_ns())).collect();
    assert_eq!(
        got,
        [
            (PsiResource::CpuSome, 11_000),
            (PsiResource::IoSome, 22_000),
            (PsiResource::IoFull, 33_000),
            (PsiResource::MemorySome, 22_000),
            (PsiResource::MemoryFull, 33_000),
        ]
    );
}

#[test]
fn cpu_directories() {
    let machine = FakeMachine::new();
    for (cpu, khz) in [(0, "1000000"), (2, "3000000")] {
        let dir = format!("sys/devices/system/cpu/cpu{cpu}");
        machine.write(format!("{dir}/cpufreq/scaling_cur_freq"), format!("{khz}\n"));
        for (state, us) in [("POLL", 5), ("C1", 70)].iter().enumerate() {
            machine.write(format!("{dir}/cpuidle/state{state}/name"), format!("{}\n", us.0));
            machine.write(format!("{dir}/cpuidle/state{state}/time"), format!("{}\n", us.1));
        }
    }
    machine.write("sys/devices/system/cpu/cpuidle/current_driver", "none\n");
    let config =
        SysStatsConfig { cpufreq_period_ms: Some(100), cpuidle_period_ms: Some(100), ..Default::default() };
    let mut run = Run::new(machine, &config);
    let s = run.poll(0).unwrap();
    assert_eq!(s.cpufreq_khz, [1_000_000, 0, 3_000_000], "by CPU number");
    let idle: Vec<_> = s.cpuidle_state.iter().map(|c| (c.cpu_id(), c.cpuidle_state_entry.len())).collect();
    assert_eq!(idle, [(0, 2), (2, 2)]);
    let entry = &s.cpuidle_state[1].cpuidle_state_entry[1];
    assert_eq!((entry.state(), entry.duration_us()), ("C1", 70));
    // A CPU that goes offline loses its directory.
    run.machine.remove("sys/devices/system/cpu/cpu2/cpufreq");
    assert_eq!(run.poll(100).unwrap().cpufreq_khz, [1_000_000, 0, 0]);
    assert_eq!(run.said(), [] as [&str; 0]);
}

#[test]
fn frequencies_of_a_virtual_machine() {
    let machine = FakeMachine::new();
    machine.write("sys/devices/system/cpu/cpu0/online", "1\n");
    machine.write(
        "proc/cpuinfo",
        "processor\t: 0\ncpu MHz\t\t: 2300.500\n\nprocessor\t: 2\ncpu MHz\t\t: 2400.000\n\n",
    );
    let config = SysStatsConfig { cpufreq_period_ms: Some(100), ..Default::default() };
    let mut run = Run::new(machine, &config);
    assert_eq!(run.poll(0).unwrap().cpufreq_khz, [2_300_500, 0, 2_400_000]);
    assert_eq!(run.said().len(), 1);
}

#[test]
fn temperatures_and_devices() {
    let machine = FakeMachine::new();
    for (zone, temp) in [(0, "45678"), (1, "-3000")] {
        machine.write(format!("sys/class/thermal/thermal_zone{zone}/type"), "x86_pkg_temp\n");
        machine.write(format!("sys/class/thermal/thermal_zone{zone}/temp"), format!("{temp}\n"));
    }
    machine.write("sys/class/thermal/cooling_device0/type", "fan\n");
    machine.write("sys/class/devfreq/ddr/cur_freq", "800000000\n");
    machine.write("sys/class/drm/card0/gt_act_freq_mhz", "450\n");
    machine.write("sys/class/drm/card1/device/pp_dpm_sclk", "0: 200Mhz \n1: 700Mhz *\n");
    let config = SysStatsConfig {
        thermal_period_ms: Some(100),
        devfreq_period_ms: Some(100),
        gpufreq_period_ms: Some(100),
        ..Default::default()
    };
    let s = Run::new(machine, &config).poll(0).unwrap();
    assert_eq!(s.thermal_zone.len(), 1, "the format has no degrees below zero");
    let zone = &s.thermal_zone[0];
    assert_eq!((zone.name(), zone.temp(), zone.r#type()), ("thermal_zone0", 45, "x86_pkg_temp"));
    assert_eq!((s.devfreq[0].key(), s.devfreq[0].value()), ("ddr", 800_000_000));
    assert_eq!(s.gpufreq_mhz, [450, 700]);
}

#[test]
fn each_section_has_its_period() {
    let machine = FakeMachine::new();
    machine.write("proc/stat", STAT);
    machine.write("proc/vmstat", "pgfault 1\n");
    let config =
        SysStatsConfig { stat_period_ms: Some(250), vmstat_period_ms: Some(600), ..Default::default() };
    let mut run = Run::new(machine, &config);
    let mut seen = Vec::new();
    let mut now_ms = 1010;
    while now_ms <= 2500 {
        if let Some(s) = run.poll(now_ms) {
            seen.push((now_ms, s.num_forks.is_some(), !s.vmstat.is_empty()));
        }
        now_ms = run.probe.due_ns().unwrap() / 1_000_000;
    }
    assert_eq!(
        seen,
        [
            (1010, true, true),
            (1200, false, true),
            (1250, true, false),
            (1500, true, false),
            (1750, true, false),
            (1800, false, true),
            (2000, true, false),
            (2250, true, false),
            (2400, false, true),
            (2500, true, false),
        ]
    );
    assert!(run.poll(2600).is_none(), "nothing is due");
    run.probe.hurry();
    assert!(run.poll(2600).is_some());
}

#[test]
fn what_is_missing_is_said_once_and_the_rest_goes_on() {
    let machine = FakeMachine::new();
    machine.write("proc/stat", STAT);
    let all = SysStatsConfig {
        meminfo_period_ms: Some(3),
        vmstat_period_ms: Some(100),
        stat_period_ms: Some(3),
        devfreq_period_ms: Some(100),
        cpufreq_period_ms: Some(100),
        buddyinfo_period_ms: Some(100),
        diskstat_period_ms: Some(100),
        psi_period_ms: Some(100),
        thermal_period_ms: Some(100),
        cpuidle_period_ms: Some(100),
        gpufreq_period_ms: Some(100),
        slab_period_ms: Some(100),
        ..Default::default()
    };
    let mut run = Run::new(machine, &all);
    let said = run.said();
    assert_eq!(said.iter().filter(|n| n.contains("raised to 10")).count(), 2);
    assert_eq!(said.iter().filter(|n| n.contains("not on this machine, nothing is recorded")).count(), 11);
    assert!(run.poll(0).unwrap().num_forks.is_some());
    assert_eq!(run.probe.due_ns(), Some(10_000_000));

    let mut nothing = Run::new(run.machine, &SysStatsConfig::default());
    assert_eq!(
        nothing.said(),
        ["linux.sys_stats: no period is set in sys_stats_config, nothing is recorded"]
    );
    assert_eq!(nothing.probe.due_ns(), None);
    assert!(nothing.poll(0).is_none());
}

#[test]
fn a_file_that_turns_bad_is_said_once() {
    let machine = FakeMachine::new();
    machine.write("proc/vmstat", "pgfault 1\n");
    let config = SysStatsConfig { vmstat_period_ms: Some(100), ..Default::default() };
    let mut run = Run::new(machine, &config);
    assert!(run.poll(0).is_some());
    run.machine.write("proc/vmstat", "pgfault x\n");
    assert!(run.poll(100).is_none());
    assert!(run.poll(200).is_none());
    assert_eq!(run.said().len(), 1);
    run.machine.write("proc/vmstat", "pgfault 2\n");
    assert_eq!(run.poll(300).unwrap().vmstat[0].value(), 2);
}
