//! An idle session costs no processor time. Alone in its file, and so in its process: it counts
//! threads by name.
#![cfg(target_os = "linux")]

use std::time::{Duration, Instant};

use prost::Message as _;
use watershed_client::in_process::{InProcess, InProcessOptions, Sink};
use watershed_client::{Context, DataSource, DataSourceFactory, Wake};
use watershed_wire::protos::trace_config::{BufferConfig, DataSource as SourceConfig};
use watershed_wire::protos::{DataSourceConfig, DataSourceDescriptor, TraceConfig};

/// What does not happen within this time never will, however busy the machine is.
const WATCHDOG: Duration = Duration::from_secs(300);

struct Quiet;

impl DataSourceFactory for Quiet {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor {
            name: Some("quiet".to_owned()),
            will_notify_on_start: Some(true),
            ..Default::default()
        }
    }

    fn setup(&mut self, _cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        Ok(Box::new(Quiet))
    }
}

impl DataSource for Quiet {
    fn start(&mut self, _cx: &mut Context<'_>) -> Wake {
        Wake::Never
    }
}

/// How often the threads of the backend have gone to sleep.
fn sleeps() -> u64 {
    let mut sum = 0;
    let mut threads = 0;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let folder = task.unwrap().path();
        let name = std::fs::read_to_string(folder.join("comm")).unwrap();
        if matches!(name.trim(), "trace-service" | "trace-producer") {
            threads += 1;
            let status = std::fs::read_to_string(folder.join("status")).unwrap();
            let switches =
                status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:")).unwrap();
            sum += switches.trim().parse::<u64>().unwrap();
        }
    }
    assert_eq!(threads, 2);
    sum
}

#[test]
fn an_idle_session_wakes_nobody() {
    let backend = InProcess::new(InProcessOptions::default()).unwrap();
    backend.register(Box::new(Quiet));
    let source = DataSourceConfig { name: Some("quiet".to_owned()), ..Default::default() };
    let config = TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(1 << 20), ..Default::default() }],
        data_sources: vec![SourceConfig { config: Some(source), ..Default::default() }],
        // Snapshots of clocks are the only thing that a session does by itself: every ten seconds.
        ..Default::default()
    };
    let session = backend.start_session(&config.encode_to_vec(), Sink::Buffers).unwrap();
    assert!(session.wait_all_started(WATCHDOG));
    wait_until("all is set up and asleep", || {
        let before = sleeps();
        std::thread::sleep(Duration::from_millis(200));
        sleeps() == before
    });
    let (before, started) = (sleeps(), Instant::now());
    std::thread::sleep(Duration::from_secs(1));
    // One of the ten-second timers may fall into the second, or more if it took longer.
    assert!(sleeps() - before <= 1 + started.elapsed().as_secs() / 10);
    let before = sleeps();
    assert!(session.stats().is_some());
    wait_until("a thread that is woken is counted", || sleeps() > before);
}

fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let started = Instant::now();
    while !is_so() {
        assert!(started.elapsed() < WATCHDOG, "never: {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
