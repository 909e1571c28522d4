//! `watershed record`, as its users run it: the real program in a fresh directory.
//!
//! How late it is on an idle machine is for `record_cost` to say: here nothing depends on how fast
//! the machine is. That a flush was answered shows in the words "no data lost".

#[path = "support/mod.rs"]
mod support;

use std::collections::{BTreeMap, HashMap};
use std::time::{Duration, Instant};

use rustix::process::Signal;
use support::{Dir, packets, wait_until};
use watershed_wire::protos::sys_stats::CpuTimes;
use watershed_wire::protos::trace_packet::{Data, OptionalTrustedPacketSequenceId};
use watershed_wire::protos::{SysStats, TracePacket, VmstatCounters};

/// Readings of the machine, in their order.
fn sys_stats(packets: &[TracePacket]) -> Vec<&SysStats> {
    packets
        .iter()
        .filter_map(|p| match &p.data {
            Some(Data::SysStats(s)) => Some(s),
            _ => None,
        })
        .collect()
}

/// From the first reading to the last.
fn span_ms(packets: &[TracePacket]) -> u64 {
    let times =
        || packets.iter().filter(|p| matches!(p.data, Some(Data::SysStats(_)))).map(|p| p.timestamp());
    (times().max().expect("readings") - times().min().expect("readings")) / 1_000_000
}

/// Command lines by pid; the last name that was told.
fn process_names(packets: &[TracePacket]) -> HashMap<i32, String> {
    let mut names = HashMap::new();
    for packet in packets {
        if let Some(Data::ProcessTree(tree)) = &packet.data {
            names.extend(tree.processes.iter().map(|p| (p.pid(), p.cmdline.join(" "))));
        }
    }
    names
}

/// Whatever a CPU did.
fn all_ns(cpu: &CpuTimes) -> u64 {
    let busy = cpu.user_ns() + cpu.user_nice_ns() + cpu.system_mode_ns() + cpu.irq_ns() + cpu.softirq_ns();
    busy + cpu.idle_ns() + cpu.io_wait_ns() + cpu.steal_ns()
}

fn sequence_of(packet: &TracePacket) -> u32 {
    match packet.optional_trusted_packet_sequence_id {
        Some(OptionalTrustedPacketSequenceId::TrustedPacketSequenceId(id)) => id,
        None => 0,
    }
}

#[test]
fn two_seconds_of_this_machine() {
    let dir = Dir::new();
    let started = Instant::now();
    let run = dir.record(&["-t", "2s", "-o", "t.pftrace"]);
    let took = started.elapsed();
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(took > Duration::from_secs(2), "{took:?}");
    assert_eq!(run.stdout, "");
    // Whoever may not record scheduling is told.
    let has_kernel = watershed_probes::ftrace_access(&watershed_probes::Roots::default()).is_ok();
    let (told, summary) = run.stderr.trim_end().rsplit_once('\n').unwrap_or(("", run.stderr.trim_end()));
    assert_eq!(told.contains("scheduling is not recorded"), !has_kernel, "no progress in a pipe: {told}");
    assert!(summary.starts_with("t.pftrace: ") && summary.contains("no data lost"), "{}", run.stderr);

    let packets = packets(&dir.read("t.pftrace"));
    let mut last_ns: BTreeMap<u32, u64> = BTreeMap::new();
    for packet in packets.iter().filter(|p| p.timestamp.is_some()) {
        let sequence = sequence_of(packet);
        let last_ns = last_ns.entry(sequence).or_default();
        // The service's events are sorted by time within a read pass only.
        assert!(
            packet.timestamp() >= *last_ns || sequence == 1,
            "time runs backwards on sequence {sequence}"
        );
        *last_ns = packet.timestamp();
    }
    assert_eq!(last_ns.len(), 4 + usize::from(has_kernel), "the service and its data sources");
    let is_told = |p: &TracePacket| matches!(&p.data, Some(Data::CpuInfo(info)) if !info.cpus.is_empty());
    assert!(packets.iter().any(is_told), "what the CPUs are");

    let stats = sys_stats(&packets);
    // Readings that come late on a loaded machine are dropped.
    let span_ms = span_ms(&packets);
    let most = span_ms as usize / 250 + 3;
    assert!((2..=most).contains(&stats.len()), "one each 250 ms, and at both ends: {}", stats.len());
    let (first, last) = (stats[0], stats[stats.len() - 1]);
    assert!(span_ms >= 1500, "readings at the start and at the end: {span_ms} ms");
    assert!(stats.windows(2).all(|w| w[0].num_forks <= w[1].num_forks));
    let passed_ns = |s: &SysStats| s.cpu_stat.iter().map(all_ns).sum::<u64>();
    let cpus = first.cpu_stat.len() as u64;
    assert!(passed_ns(last) - passed_ns(first) > cpus * 1_000_000_000, "CPUs passed two seconds");
    let faults =
        |s: &SysStats| s.vmstat.iter().find(|v| v.key() == VmstatCounters::VmstatPgfault).unwrap().value();
    assert!(faults(last) > faults(first));

    let names = process_names(&packets);
    let own_args: Vec<String> = std::env::args().collect();
    assert_eq!(names[&std::process::id().cast_signed()], own_args.join(" "));
    assert!(names[&1].len() > 1);
    assert!(packets.iter().any(|p| matches!(p.data, Some(Data::TraceStats(_)))));

    let inspected = dir.shell("exec \"$0\" inspect t.pftrace");
    assert_eq!(inspected.code, Some(0), "{}", inspected.stdout);
    assert!(inspected.stdout.contains("complete, no data lost"), "{}", inspected.stdout);
}

#[test]
fn bad_arguments() {
    let dir = Dir::new();
    dir.write("c.pbtxt", "buffers { size_kb: 1024 }\n");
    for (args, expected) in [
        (&["-t", "0s"][..], "from 1ms to 168h"),
        (&["-t", "-5s"], "from 1ms to 168h"),
        (&["-t", "10"], "needs a unit"),
        (&["-t", "8d"], "from 1ms to 168h"),
        (&["-t", "soon"], "needs a unit"),
        (&["-b", "0MB"], "from 64KB to 4194303KB"),
        (&["-b", "-1MB"], "from 64KB to 4194303KB"),
        (&["-b", "64"], "needs a unit"),
        (&["-b", "5GB"], "from 64KB to 4194303KB"),
        (&["--shards", "0"], "from 1 to 1024"),
        (&["--shards", "1025"], "from 1 to 1024"),
        (&["--shards", "-1"], "from 1 to 1024"),
        (&["--shards", "many"], "from 1 to 1024"),
        (&["-b", "1MB", "-c", "c.pbtxt"], "cannot be used with"),
        (&["-c", "none.pbtxt"], "none.pbtxt"),
        (&["--frobnicate"], "--frobnicate"),
        (&["make"], "record -- make"),
        (&["sleep", "1"], "record -- sleep 1"),
        (&["-t", "1s", "make", "-j8", "all"], "record -- make -j8 all"),
        (&["make", "--", "all"], "record -- make -- all"),
        (&["-c", "c.pbtxt"], "linux.sys_stats, linux.process_stats"),
        (&["-o", ""], "--out"),
    ] {
        let run = dir.record(args);
        assert_eq!(run.code, Some(2), "{args:?}: {}", run.stderr);
        assert!(run.stderr.contains(expected), "{args:?}: {}", run.stderr);
        assert!(!run.stderr.contains(".pftrace: "), "{args:?}: nothing is recorded: {}", run.stderr);
        assert_eq!(dir.files(), ["c.pbtxt"], "{args:?}");
    }
}

/// Shards change nothing about a trace. Who asks for more than a buffer has room for is told.
#[test]
fn any_number_of_shards() {
    let dir = Dir::new();
    for shards in ["1", "2", "8", "64"] {
        let run = dir.record(&["-t", "400ms", "--shards", shards, "-o", "t.pftrace"]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert!(
            run.stderr.starts_with("t.pftrace: ") && run.stderr.contains("no data lost"),
            "{}",
            run.stderr
        );
        let packets = packets(&dir.read("t.pftrace"));
        assert!(sys_stats(&packets).len() >= 2 && process_names(&packets).contains_key(&1));
        let inspected = dir.shell("exec \"$0\" inspect t.pftrace");
        assert!(inspected.stdout.contains("complete, no data lost"), "{}", inspected.stdout);
    }
    let run = dir.record(&["-t", "100ms", "-b", "1MB", "--shards", "8", "-o", "t.pftrace"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("1 of 8 shards: it is too small"), "{}", run.stderr);
    let run = dir.record(&["-t", "100ms", "-b", "1MB", "-o", "t.pftrace"]);
    assert!(!run.stderr.contains("shards"), "nobody asked: {}", run.stderr);
    let args = ["-c", "-", "-t", "100ms", "--shards", "2", "-o", "t.pftrace"];
    let run = dir.record_with_input(&args, TWO_BUFFERS.replace("512", "8192").as_bytes());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("buffer 1 has 1 of 2 shards: a DISCARD buffer"), "{}", run.stderr);
}

#[test]
fn config_errors_say_where() {
    let dir = Dir::new();
    dir.write(
        "c.pbtxt",
        "buffers { size_kb: 1024 }\ndata_sources {\n  config { nmae: \"linux.sys_stats\" }\n}\n",
    );
    let run = dir.record(&["-c", "c.pbtxt"]);
    assert_eq!(run.code, Some(2));
    for part in ["c.pbtxt", "3", "12", "nmae"] {
        assert!(run.stderr.contains(part), "{part}: {}", run.stderr);
    }
    // What the service refuses is the config's fault too, and leaves no file behind.
    let no_buffer = "data_sources { config { name: \"linux.sys_stats\" target_buffer: 3 } }";
    let run = dir.record_with_input(&["-c", "-", "-o", "t.pftrace"], no_buffer.as_bytes());
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert_eq!(dir.files(), ["c.pbtxt"]);
}

#[test]
fn a_refused_config_spares_the_file_that_is_there() {
    let dir = Dir::new();
    dir.write("t.pftrace", "precious");
    let no_buffer = "data_sources { config { name: \"linux.sys_stats\" target_buffer: 3 } }";
    let run = dir.record_with_input(&["-c", "-", "-o", "t.pftrace"], no_buffer.as_bytes());
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert_eq!(dir.read("t.pftrace"), b"precious");
}

const TWO_BUFFERS: &str = r#"
    buffers { size_kb: 1024 fill_policy: RING_BUFFER }
    buffers { size_kb: 512 fill_policy: DISCARD name: "second" }
    data_sources { config {
        name: "linux.sys_stats" target_buffer: 0
        sys_stats_config { stat_period_ms: 100 stat_counters: STAT_FORK_COUNT }
    } }
    data_sources { config {
        name: "linux.process_stats" target_buffer_name: "second"
        process_stats_config { scan_all_processes_on_start: true }
    } }
    duration_ms: 600
"#;

#[test]
fn a_text_config_from_standard_input() {
    let dir = Dir::new();
    // Without its duration_ms it would not end.
    let run = dir.record_with_input(&["-c", "-", "-o", "t.pftrace"], TWO_BUFFERS.as_bytes());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let packets = packets(&dir.read("t.pftrace"));
    let stats = sys_stats(&packets);
    let most = span_ms(&packets) as usize / 100 + 3;
    assert!((2..=most).contains(&stats.len()), "{}", stats.len());
    for s in stats {
        assert!(s.num_forks.is_some() && s.cpu_stat.is_empty() && s.meminfo.is_empty());
    }
    assert!(process_names(&packets).contains_key(&1));
    let written: Vec<_> = packets
        .iter()
        .filter_map(|p| match &p.data {
            Some(Data::TraceStats(s)) => {
                Some(s.buffer_stats.iter().map(|b| b.bytes_written() > 0).collect::<Vec<_>>())
            }
            _ => None,
        })
        .collect();
    assert_eq!(written.last().unwrap(), &[true, true], "both buffers were used");
}

#[test]
fn a_binary_config_from_a_file_and_a_time_that_overrides_it() {
    let dir = Dir::new();
    let config = watershed_wire::config::TraceConfig::from_text(TWO_BUFFERS).unwrap();
    dir.write("c.pb", config.bytes());
    let run = dir.record(&["-c", "c.pb", "-t", "200ms", "-o", "t.pftrace"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let packets = packets(&dir.read("t.pftrace"));
    let echoed = packets.iter().find_map(|p| match &p.data {
        Some(Data::TraceConfig(c)) => Some(c),
        _ => None,
    });
    assert_eq!(echoed.unwrap().duration_ms(), 200);
}

#[test]
fn a_config_that_streams_into_the_file() {
    let dir = Dir::new();
    let config = format!("{TWO_BUFFERS} write_into_file: true file_write_period_ms: 100");
    let mut run = dir.spawn_with_input(&["-c", "-", "-t", "1h", "-o", "t.pftrace"], config.as_bytes());
    let mut size = 0;
    for _ in 0..3 {
        wait_until("the file grows during the recording", || dir.size("t.pftrace") > size);
        size = dir.size("t.pftrace");
    }
    assert!(run.is_running());
    run.signal(Signal::INT);
    let run = run.wait();
    assert_eq!(run.code, Some(130), "{}", run.stderr);
    assert!(sys_stats(&packets(&dir.read("t.pftrace"))).len() >= 2);
}

#[test]
fn a_config_that_names_the_file() {
    let dir = Dir::new();
    let named = r#"write_into_file: true file_write_period_ms: 100 output_path: "named.pftrace""#;
    let config = format!("{TWO_BUFFERS} {named}");
    let run = dir.record_with_input(&["-c", "-", "-t", "300ms"], config.as_bytes());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(dir.files(), ["named.pftrace"]);
    assert!(!sys_stats(&packets(&dir.read("named.pftrace"))).is_empty());

    let run = dir.record_with_input(&["-c", "-", "-t", "300ms", "-o", "t.pftrace"], config.as_bytes());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert_eq!(dir.files(), ["named.pftrace", "t.pftrace"], "-o wins");
    let packets = packets(&dir.read("t.pftrace"));
    let echoed = packets.iter().find_map(|p| match &p.data {
        Some(Data::TraceConfig(config)) => Some(config.output_path()),
        _ => None,
    });
    assert_eq!(echoed, Some("named.pftrace"), "the config goes into the trace as it is");
}

#[test]
fn unknown_data_sources() {
    let dir = Dir::new();
    let one = format!("{TWO_BUFFERS} data_sources {{ config {{ name: \"linux.nothing\" }} }}");
    let run = dir.record_with_input(&["-c", "-", "-t", "100ms", "-o", "t.pftrace"], one.as_bytes());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("linux.nothing") && run.stderr.contains("linux.sys_stats"), "{}", run.stderr);
    let none =
        "buffers { size_kb: 1024 } data_sources { config { name: \"linux.nothing\" } } duration_ms: 100";
    let run = dir.record_with_input(&["-c", "-", "-o", "u.pftrace"], none.as_bytes());
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("linux.nothing") && run.stderr.contains("linux.sys_stats"), "{}", run.stderr);
    assert_eq!(dir.files(), ["t.pftrace"]);
    // A slip of the pen is answered with what was probably meant, and with nothing else.
    let slip = none.replace("nothing", "sys_stat");
    let run = dir.record_with_input(&["-c", "-", "-o", "u.pftrace"], slip.as_bytes());
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("\"linux.sys_stat\" (did you mean \"linux.sys_stats\"?)"), "{}", run.stderr);
}

#[test]
fn fields_that_the_machine_cannot_serve_are_said() {
    let dir = Dir::new();
    let config = r#"buffers { size_kb: 1024 } duration_ms: 100
        data_sources { config { name: "linux.sys_stats" sys_stats_config {
            meminfo_period_ms: 1 meminfo_counters: MEMINFO_ION_HEAP } } }"#;
    let run = dir.record_with_input(&["-c", "-", "-o", "t.pftrace"], config.as_bytes());
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("raised to 10") && run.stderr.contains("MEMINFO_ION_HEAP"), "{}", run.stderr);
}

#[test]
fn outputs_that_cannot_be_created() {
    let dir = Dir::new();
    for out in ["none/t.pftrace", "."] {
        let run = dir.record(&["-t", "5s", "-o", out, "--", "touch", "ran"]);
        assert_eq!(run.code, Some(1), "{out}: {}", run.stderr);
        assert_eq!(dir.files(), [""; 0], "the command was not run: it fails before the recording starts");
    }
}

#[test]
fn to_standard_output() {
    let dir = Dir::new();
    // Behind what is there already, as whoever redirects it expects.
    let run = dir.shell(
        "echo before > t; \"$0\" record -t 300ms -o - >> t && \"$0\" record -t 100ms -o - | cat > piped",
    );
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("no data lost"), "the summary is on standard error: {}", run.stderr);
    let file = dir.read("t");
    assert!(packets(file.strip_prefix(b"before\n").unwrap()).len() > 5);
    assert!(packets(&dir.read("piped")).len() > 5);
    assert_eq!(dir.files(), ["piped", "t"], "no file of that name");

    let run = dir.record(&["-t", "1s", "-o", "-", "--", "touch", "ran"]);
    assert_eq!(run.code, Some(2), "{}", run.stderr);
    assert!(run.stderr.contains("the command's"), "{}", run.stderr);
    assert_eq!(dir.files(), ["piped", "t"], "the command was not run");
}

#[test]
fn a_full_disk() {
    let dir = Dir::new();
    let run = dir.record(&["-t", "300ms", "-o", "/dev/full"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    assert!(run.stderr.contains("/dev/full") && run.stderr.contains("No space left"), "{}", run.stderr);
    assert!(run.stderr.contains("lost: everything"), "{}", run.stderr);

    // A limit of 8 blocks of 1 KiB on the size of files, in the shell's units.
    let run = dir.shell("ulimit -f 8; exec \"$0\" record -t 500ms -o t.pftrace");
    assert_eq!(run.code, Some(1), "{}", run.stderr);
    let file = dir.read("t.pftrace");
    assert!((1..=8 * 1024).contains(&file.len()), "{}", file.len());
    let packets = packets(&file);
    assert!(packets.len() > 5, "what was written stays a valid trace");
    assert!(run.stderr.contains("t.pftrace") && run.stderr.contains("too large"), "{}", run.stderr);
}

#[test]
fn the_first_signal_finishes_the_trace() {
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143)] {
        let dir = Dir::new();
        let mut run = dir.spawn(&["-t", "1h", "-o", "t.pftrace"]);
        run.wait_until_it_catches(signal);
        std::thread::sleep(Duration::from_millis(300));
        run.signal(signal);
        let run = run.wait();
        assert_eq!(run.code, Some(code), "{}", run.stderr);
        assert!(run.stderr.contains("t.pftrace: ") && run.stderr.contains("no data lost"), "{}", run.stderr);
        assert!(sys_stats(&packets(&dir.read("t.pftrace"))).len() >= 2);
    }
}

#[test]
fn the_second_signal_stops_at_once() {
    let dir = Dir::new();
    // Nobody reads the pipe, so finishing the trace takes for ever.
    let _reader = dir.full_pipe("pipe");
    let mut run = dir.spawn(&["-t", "1h", "-o", "pipe"]);
    run.wait_until_it_catches(Signal::INT);
    run.wait_until_it_catches(Signal::TERM);
    run.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(700));
    assert!(run.is_running(), "it is still writing");
    // Without it the program would never end: nobody reads.
    run.signal(Signal::INT);
    let code = run.wait().code;
    // A machine so busy that both wait to be handled gives them in the order of their numbers.
    assert!(matches!(code, Some(130 | 143)), "{code:?}");
}

#[test]
fn a_command_is_recorded_and_its_code_passed_on() {
    let dir = Dir::new();
    let run = dir.record_with_input(
        &["-o", "t.pftrace", "--", "sh", "-c", "cat; echo out; echo err >&2; sleep 0.4; exit 7"],
        b"in\n",
    );
    assert_eq!(run.code, Some(7), "{}", run.stderr);
    assert_eq!(run.stdout, "in\nout\n");
    assert!(run.stderr.starts_with("err\n") && run.stderr.contains("t.pftrace: "), "{}", run.stderr);
    let packets = packets(&dir.read("t.pftrace"));
    assert!(
        process_names(&packets).values().any(|n| n.starts_with("sh -c cat; echo out")),
        "the command is in the tree"
    );
    let stats = sys_stats(&packets);
    assert!(stats[stats.len() - 1].num_forks > stats[0].num_forks);
}

#[test]
fn commands_that_end_otherwise() {
    let dir = Dir::new();
    let run = dir.record(&["-o", "t.pftrace", "--", "sh", "-c", "kill -KILL $$"]);
    assert_eq!(run.code, Some(137), "{}", run.stderr);
    let run = dir.record(&["-o", "t.pftrace", "--", "true"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let names = process_names(&packets(&dir.read("t.pftrace")));
    assert!(names.values().any(|name| name == "true"), "a command is told however short it lives");
    for missing in ["./none", "no-such-command"] {
        let run = dir.record(&["-o", "missing.pftrace", "--", missing]);
        assert_eq!(run.code, Some(127));
        assert!(run.stderr.contains(missing), "{}", run.stderr);
        assert_eq!(dir.files(), ["t.pftrace"]);
    }
    let run = dir.record(&["-o", "t.pftrace", "--", "/"]);
    assert_eq!(run.code, Some(1), "it is there and cannot be run: {}", run.stderr);
    // The time is up before the command: its code is still passed on.
    let started = Instant::now();
    let run = dir.record(&["-t", "200ms", "-o", "t.pftrace", "--", "sh", "-c", "sleep 1; exit 3"]);
    assert_eq!(run.code, Some(3), "{}", run.stderr);
    assert!(started.elapsed() > Duration::from_secs(1));
    // A recording that fails, however the command ended.
    let run = dir.record(&["-o", "/dev/full", "--", "true"]);
    assert_eq!(run.code, Some(1), "{}", run.stderr);
}

#[test]
fn a_signal_reaches_the_command_too() {
    let dir = Dir::new();
    let script = "trap 'touch told; exit 0' TERM; touch ready; while :; do sleep 0.1; done";
    let mut run = dir.spawn(&["-o", "t.pftrace", "--", "sh", "-c", script]);
    wait_until("the command is ready", || dir.files().contains(&"ready".to_owned()));
    run.signal(Signal::TERM);
    let run = run.wait();
    assert_eq!(run.code, Some(143), "{}", run.stderr);
    wait_until("the command is told", || dir.files().contains(&"told".to_owned()));
    assert_eq!(dir.files(), ["ready", "t.pftrace", "told"]);
}

#[test]
fn the_default_name_has_the_time() {
    let dir = Dir::new();
    let run = dir.record(&["-t", "50ms"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let files = dir.files();
    assert_eq!(files.len(), 1);
    assert!(files[0].starts_with("trace-") && files[0].ends_with(".pftrace"), "{files:?}");
    assert!(run.stderr.starts_with(&files[0]), "{}", run.stderr);
}

#[test]
fn recordings_of_one_second_do_not_replace_each_other() {
    let dir = Dir::new();
    // Whichever of these seconds the recording starts in, its name is taken.
    let now = jiff::Zoned::now();
    for second in 0..120 {
        let then = &now + jiff::SignedDuration::from_secs(second);
        dir.write(&then.strftime("trace-%Y%m%d-%H%M%S.pftrace").to_string(), "precious");
    }
    let taken = dir.files();
    let run = dir.record(&["-t", "50ms"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let (old, new): (Vec<_>, Vec<_>) = dir.files().into_iter().partition(|name| taken.contains(name));
    assert_eq!((old.len(), new.len()), (120, 1), "{new:?}");
    assert!(old.iter().all(|name| dir.read(name) == b"precious"));
    assert!(new[0].ends_with("-2.pftrace") && run.stderr.starts_with(&new[0]), "{}", run.stderr);
}

#[test]
fn a_small_ring_says_what_it_lost() {
    let dir = Dir::new();
    let config = r#"buffers { size_kb: 16 }
        data_sources { config { name: "linux.sys_stats" sys_stats_config {
            vmstat_period_ms: 10 meminfo_period_ms: 10 } } }"#;
    // As long as it takes for a dozen readings, by how busy the machine is.
    let overwrites = |time: &&str| {
        let run = dir.record_with_input(&["-c", "-", "-t", time, "-o", "t.pftrace"], config.as_bytes());
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        run.stderr.contains("overwritten") && !run.stderr.contains("no data lost")
    };
    assert!(["1s", "10s", "100s"].iter().any(overwrites));
    assert!(!sys_stats(&packets(&dir.read("t.pftrace"))).is_empty());
}
