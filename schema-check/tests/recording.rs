//! A recording of this machine, read by the other schema. `WATERSHED_RECORD_S` says how many
//! seconds it takes, 2 when it is not set.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::LazyLock;

use perfetto_protos::process_tree::ProcessTree;
use perfetto_protos::sys_stats::SysStats;
use perfetto_protos::trace::Trace;
use perfetto_protos::trace_packet::TracePacket;
use perfetto_protos::trace_stats::trace_stats::FinalFlushOutcome;
use perfetto_protos::tracing_service_event::tracing_service_event::Event_type;
use protobuf::Message as _;
use serde_json::Value;

struct Recording {
    trace: Trace,
    inspected: Value,
}

/// How long the recording is.
static SECONDS: LazyLock<u32> = LazyLock::new(|| match std::env::var("WATERSHED_RECORD_S") {
    Ok(seconds) => seconds.parse().expect("WATERSHED_RECORD_S is a number of seconds"),
    Err(_) => 2,
});

/// This machine, recorded once for all tests.
static RECORDING: LazyLock<Recording> = LazyLock::new(|| {
    let dir = tempfile::tempdir().unwrap();
    let watershed = watershed();
    let duration = format!("{}s", *SECONDS);
    run(&watershed, dir.path(), &["record", "-t", &duration, "-o", "t.pftrace"]);
    let bytes = std::fs::read(dir.path().join("t.pftrace")).unwrap();
    let inspected = run(&watershed, dir.path(), &["inspect", "--json", "t.pftrace"]);
    Recording {
        trace: Trace::parse_from_bytes(&bytes).unwrap(),
        inspected: serde_json::from_slice(&inspected.stdout).unwrap(),
    }
});

/// Builds the program, as a test of another package does not, and says where it is.
fn watershed() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "-p", "watershed", "--message-format=json-render-diagnostics"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/.."))
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let messages = String::from_utf8(output.stdout).unwrap();
    let executable = |line: &str| {
        let message: Value = serde_json::from_str(line).ok()?;
        Some(PathBuf::from(message["executable"].as_str()?))
    };
    messages.lines().find_map(executable).expect("cargo names what it has built")
}

fn run(program: &Path, dir: &Path, args: &[&str]) -> Output {
    let output = Command::new(program).args(args).current_dir(dir).output().unwrap();
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    output
}

fn packets() -> &'static [TracePacket] {
    &RECORDING.trace.packet
}

fn sys_stats() -> Vec<(u64, &'static SysStats)> {
    let samples = packets().iter().filter(|packet| packet.has_sys_stats());
    samples.map(|packet| (packet.timestamp(), packet.sys_stats())).collect()
}

/// Asserts that a counter never falls, and says by how much it grew.
#[track_caller]
fn growth(name: &str, samples: impl IntoIterator<Item = u64>) -> u64 {
    let samples: Vec<u64> = samples.into_iter().collect();
    assert!(samples.len() > 1, "{name}: {} samples", samples.len());
    assert!(samples.is_sorted(), "{name} fell: {samples:?}");
    samples[samples.len() - 1] - samples[0]
}

#[test]
fn time_goes_on_in_every_sequence() {
    let mut last: BTreeMap<u32, u64> = BTreeMap::new();
    let mut timed = 0;
    // The service's own packets are sorted by the time of what they report, pass by pass, not over
    // passes.
    let producers = packets().iter().filter(|packet| packet.trusted_packet_sequence_id() > 1);
    for packet in producers.filter(|packet| packet.has_timestamp()) {
        let last = last.entry(packet.trusted_packet_sequence_id()).or_default();
        assert!(packet.timestamp() >= *last, "time went back: {packet}");
        *last = packet.timestamp();
        timed += 1;
    }
    assert!(timed > 10, "{timed} packets with a time");
}

#[test]
fn every_packet_is_stamped_and_nothing_was_dropped() {
    for packet in packets().iter().filter(|packet| !packet.has_synchronization_marker()) {
        assert!(packet.has_trusted_uid(), "{packet}");
        assert_ne!(packet.trusted_packet_sequence_id(), 0, "{packet}");
        assert!(!packet.previous_packet_dropped(), "{packet}");
    }
}

#[test]
fn clocks_are_those_of_this_machine() {
    let snapshot = packets().iter().find(|packet| packet.has_clock_snapshot()).unwrap();
    let clocks = &snapshot.clock_snapshot().clocks;
    let ids: Vec<u32> = clocks.iter().map(|clock| clock.clock_id()).collect();
    assert_eq!(ids[0], 6, "BOOTTIME comes first");
    for id in 1..=6 {
        assert!(ids.contains(&id), "no clock {id} in {ids:?}");
    }
    let realtime = clocks.iter().find(|clock| clock.clock_id() == 1).unwrap().timestamp();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
    let age_s = now.as_secs() - realtime / 1_000_000_000;
    assert!(age_s < 3600, "the recording claims to be {age_s} s old");
}

#[test]
fn counters_grow() {
    let samples = sys_stats();
    let with =
        |has: fn(&SysStats) -> bool| samples.iter().map(|(_, stats)| *stats).filter(move |stats| has(stats));
    growth("forks", with(SysStats::has_num_forks).map(|stats| stats.num_forks()));
    growth("interrupts", with(SysStats::has_num_irq_total).map(|stats| stats.num_irq_total()));
    let cpus = with(|stats| !stats.cpu_stat.is_empty()).next().unwrap().cpu_stat.len();
    assert!(cpus >= std::thread::available_parallelism().unwrap().get(), "{cpus} CPUs");
    let mut all_ns = 0;
    for cpu in 0..cpus {
        let times = || with(|stats| !stats.cpu_stat.is_empty()).map(move |stats| &stats.cpu_stat[cpu]);
        all_ns += growth("user", times().map(|times| times.user_ns()));
        all_ns += growth("nice", times().map(|times| times.user_nice_ns()));
        all_ns += growth("system", times().map(|times| times.system_mode_ns()));
        all_ns += growth("idle", times().map(|times| times.idle_ns()));
    }
    // Two seconds on every CPU, less what the kernel counts elsewhere and what the ends cut off.
    assert!(all_ns > cpus as u64 * 500_000_000, "{all_ns} ns of CPU time on {cpus} CPUs");
}

#[test]
fn memory_is_that_of_this_machine() {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let total_kb: u64 = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix(" kB")?.parse().ok())
        .unwrap();
    let totals = sys_stats().into_iter().flat_map(|(_, stats)| &stats.meminfo).filter(|value| {
        value.key() == perfetto_protos::sys_stats_counters::MeminfoCounters::MEMINFO_MEM_TOTAL
    });
    let totals: Vec<u64> = totals.map(|value| value.value()).collect();
    assert!(!totals.is_empty());
    assert!(totals.iter().all(|total| *total == total_kb), "{totals:?}, the kernel says {total_kb}");
}

#[test]
fn known_processes_are_in_the_tree_with_their_names() {
    let trees: Vec<&ProcessTree> = packets()
        .iter()
        .filter(|packet| packet.has_process_tree())
        .map(|packet| packet.process_tree())
        .collect();
    let processes: Vec<_> = trees.iter().flat_map(|tree| &tree.processes).collect();
    let name_of = |pid: i32| {
        let process = processes.iter().find(|process| process.pid() == pid);
        process.map(|process| process.cmdline.first().cloned().unwrap_or_default())
    };
    let ours = std::process::id() as i32;
    let our_name = std::env::args().next().unwrap();
    assert_eq!(name_of(ours), Some(our_name));
    assert!(name_of(1).is_some(), "no process 1 among {}", processes.len());
    let us = processes.iter().find(|process| process.pid() == ours).unwrap();
    assert_eq!(us.ppid(), std::os::unix::process::parent_id() as i32);
}

#[test]
fn own_memory_is_sampled_more_than_once() {
    let ours = std::process::id() as i32;
    let samples = packets().iter().filter(|packet| packet.has_process_stats());
    let samples: Vec<u64> = samples
        .flat_map(|packet| &packet.process_stats().processes)
        .filter(|process| process.pid() == ours)
        .map(|process| process.vm_rss_kb())
        .collect();
    assert!(!samples.is_empty());
    assert!(samples.iter().all(|rss_kb| (100..10_000_000).contains(rss_kb)), "{samples:?}");
}

#[test]
fn the_service_tells_the_whole_story() {
    let events = packets().iter().filter(|packet| packet.has_service_event());
    let events: Vec<&Event_type> =
        events.filter_map(|packet| packet.service_event().event_type.as_ref()).collect();
    let at = |wanted: fn(&Event_type) -> bool| events.iter().position(|event| wanted(event));
    let started = at(|event| matches!(event, Event_type::TracingStarted(true))).unwrap();
    let disabled = at(|event| matches!(event, Event_type::TracingDisabled(true))).unwrap();
    let read =
        events.iter().rposition(|event| matches!(event, Event_type::ReadTracingBuffersCompleted(true)));
    assert!(started < disabled && Some(disabled) < read, "{events:?}");

    let stats = packets().iter().rfind(|packet| packet.has_trace_stats()).unwrap().trace_stats();
    assert_eq!(stats.final_flush_outcome(), FinalFlushOutcome::FINAL_FLUSH_SUCCEEDED);
    assert_eq!(stats.invalid_packets(), 0);
    for buffer in &stats.buffer_stats {
        assert!(buffer.bytes_written() > 0);
        assert_eq!(buffer.chunks_overwritten(), 0);
        assert_eq!(buffer.chunks_discarded(), 0);
        assert_eq!(buffer.trace_writer_packet_loss(), 0);
        assert_eq!(buffer.abi_violations(), 0);
        assert_eq!(buffer.patches_failed(), 0);
    }
}

#[test]
fn the_config_is_echoed() {
    let config = packets().iter().find(|packet| packet.has_trace_config()).unwrap().trace_config();
    assert_eq!(config.duration_ms(), *SECONDS * 1000);
    let names: Vec<&str> = config.data_sources.iter().map(|source| source.config.name()).collect();
    assert!(names.contains(&"linux.sys_stats") && names.contains(&"linux.process_stats"), "{names:?}");
}

/// `inspect` and the other schema see the same trace.
#[test]
fn inspect_says_the_same() {
    let inspected = &RECORDING.inspected;
    assert_eq!(inspected["completeness"]["verdict"], "complete", "{}", inspected["completeness"]);
    assert_eq!(inspected["losses"], serde_json::json!([]));
    assert_eq!(inspected["packets"]["count"], packets().len());
    let kinds = inspected["packets"]["by_kind"].as_array().unwrap();
    let count = |name: &str| kinds.iter().find(|kind| kind["kind"] == name).unwrap()["packets"].clone();
    assert_eq!(count("sys_stats"), packets().iter().filter(|packet| packet.has_sys_stats()).count());
    assert_eq!(count("process_stats"), packets().iter().filter(|packet| packet.has_process_stats()).count());
    let ids = packets().iter().map(|packet| packet.trusted_packet_sequence_id()).filter(|id| *id != 0);
    let ids: std::collections::BTreeSet<u32> = ids.collect();
    let sequences = inspected["sequences"].as_array().unwrap();
    let inspected_ids = sequences.iter().filter_map(|sequence| sequence["id"].as_u64());
    assert!(inspected_ids.eq(ids.iter().map(|id| u64::from(*id))));
    let duration_ns = inspected["time"]["duration_ns"].as_u64().unwrap();
    let asked_ns = u64::from(*SECONDS) * 1_000_000_000;
    assert!((asked_ns / 4 * 3..asked_ns * 5).contains(&duration_ns), "{duration_ns}");
}
