//! In process a thread that writes makes no system call, wakes nobody and waits for nobody: the
//! kernel ends the process at its first one.
#![cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]

use std::collections::BTreeMap;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{Command, ExitStatus};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};

use prost::Message as _;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter};
use watershed_client::in_process::{InProcess, InProcessOptions, Sink};
use watershed_client::track_event::{self, Category};
use watershed_client::{Context, DataSource, DataSourceFactory, TraceWriter, Wake, clock, instant, slice};
use watershed_wire::protos::trace_config::{BufferConfig, DataSource as SourceConfig};
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{
    DataSourceConfig, DataSourceDescriptor, TestEvent, TraceConfig, TracePacket, track_event::Type,
};

/// Says in a child what its thread does.
const ROLE: &str = "WATERSHED_TEST_ROLE";
/// What does not happen within this time never will, however busy the machine is.
const WATCHDOG: Duration = Duration::from_secs(300);
/// The ring goes round some times.
const EVENTS: u64 = 100_000;
const RING_KB: u32 = 512;

/// Packets by a writer of the program's own, and track events.
const ROLES: [(&str, Role); 4] =
    [("packets", packets), ("events", events), ("clock", reads_clock), ("wakes", wakes)];

type Role = fn(&mut TraceWriter, u64);

static ON: Category = Category::new("on");

fn packets(writer: &mut TraceWriter, i: u64) {
    let mut packet = writer.new_packet();
    packet.varint(8, i + 1);
    let mut event = packet.nested(900);
    event.varint(3, i).string(1, "counted");
}

fn events(_: &mut TraceWriter, i: u64) {
    instant!(ON, "counted", number = i);
    drop(slice!(ON, "slice", text = "a string"));
}

fn reads_clock(_: &mut TraceWriter, _: u64) {
    std::hint::black_box(clock::boottime_ns());
}

/// What the test is to find.
fn wakes(_: &mut TraceWriter, i: u64) {
    if i == EVENTS / 2 {
        std::thread::current().unpark();
        std::thread::yield_now();
    }
}

struct Writers(mpsc::Sender<TraceWriter>);

impl DataSourceFactory for Writers {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor {
            name: Some("writers".to_owned()),
            will_notify_on_start: Some(true),
            ..Default::default()
        }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        self.0.send(cx.create_writer()).map_err(|gone| gone.to_string())?;
        Ok(Box::new(Idle))
    }
}

struct Idle;

impl DataSource for Idle {
    fn start(&mut self, _cx: &mut Context<'_>) -> Wake {
        Wake::Never
    }
}

fn config() -> TraceConfig {
    let source = |name: &str| SourceConfig {
        config: Some(DataSourceConfig { name: Some(name.to_owned()), ..Default::default() }),
        ..Default::default()
    };
    TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(RING_KB), ..Default::default() }],
        data_sources: vec![source("writers"), source(track_event::NAME)],
        ..Default::default()
    }
}

/// From here on the kernel ends the process at this thread's next system call.
fn forbid_system_calls() {
    let arch = std::env::consts::ARCH.try_into().expect("an architecture with filters");
    let none = BTreeMap::new();
    let filter = SeccompFilter::new(none, SeccompAction::KillProcess, SeccompAction::Allow, arch);
    let program: BpfProgram = filter.and_then(TryInto::try_into).expect("a filter");
    seccompiler::apply_filter(&program).expect("the system takes filters");
}

/// Traces, with a thread that must do without system calls after a while, and checks that what it
/// wrote last is there.
fn trace(role: Role) {
    let (sender, writers) = mpsc::channel();
    let backend = InProcess::new(InProcessOptions::default()).expect("a backend");
    backend.register(Box::new(Writers(sender)));
    backend.register(track_event::data_source());
    let session = backend.start_session(&config().encode_to_vec(), Sink::Buffers).expect("a session");
    assert!(session.wait_all_started(WATCHDOG));
    let mut writer = writers.recv_timeout(WATCHDOG).expect("a writer");
    let is_done = Arc::new(AtomicBool::new(false));
    let done = Arc::clone(&is_done);
    std::thread::spawn(move || {
        // Memory is touched, names are known, the ring is full.
        (0..EVENTS).for_each(|i| role(&mut writer, i));
        forbid_system_calls();
        (0..EVENTS).for_each(|i| role(&mut writer, i));
        // Release: pairs with the Acquire below, what was written is there to be flushed.
        done.store(true, Ordering::Release);
        // Its end would need the system. It goes with the process.
        loop {
            std::hint::spin_loop();
        }
    });
    let started = Instant::now();
    while !is_done.load(Ordering::Acquire) {
        assert!(started.elapsed() < WATCHDOG, "the thread never ends");
        std::thread::sleep(Duration::from_millis(1));
    }
    session.stop();
    assert!(session.wait().error.is_none());
    assert_eq!(backend.arbiter_stats().packets_dropped, 0);
    let mut bytes = Vec::new();
    while session.read(&mut bytes) {}
    let packets = watershed_wire::reader::packets(&bytes);
    let packets =
        packets.map(|packet| TracePacket::decode(&packet.expect("no damage")[..]).expect("a packet"));
    let is_counted = |packet: &TracePacket| match &packet.data {
        Some(Data::ForTesting(TestEvent { counter: Some(_), .. })) => true,
        Some(Data::TrackEvent(event)) => event.r#type() == Type::Instant,
        _ => false,
    };
    let counted = packets.filter(is_counted).count();
    println!("{counted} packets in the ring");
}

fn run(role: &str) -> (ExitStatus, String) {
    let program = std::env::current_exe().expect("this program");
    let child = Command::new(program).arg("--nocapture").env(ROLE, role).output().expect("a child");
    let said = String::from_utf8_lossy(&child.stdout) + String::from_utf8_lossy(&child.stderr);
    (child.status, said.into_owned())
}

/// How many packets the child's ring had, if it was not ended by its filter.
fn packets_of(role: &str) -> Option<u64> {
    let (status, said) = run(role);
    if status.signal() == Some(libc::SIGSYS) {
        return None;
    }
    assert!(status.success(), "{role}: {status}\n{said}");
    let line = said.lines().find_map(|line| line.strip_suffix(" packets in the ring"));
    let number = line.and_then(|line| line.rsplit(' ').next()?.parse().ok());
    Some(number.unwrap_or_else(|| panic!("{role} says nothing: {said}")))
}

#[test]
fn a_thread_that_writes_makes_no_system_call() {
    if let Some(role) = std::env::var_os(ROLE) {
        let role = ROLES.into_iter().find(|(name, _)| role == *name).expect("a role").1;
        return trace(role);
    }
    assert_eq!(packets_of("wakes"), None, "a system call is found");
    assert!(packets_of("packets").expect("no system call") > 1000);
    // On some machines the clock is one.
    match packets_of("clock") {
        Some(_) => assert!(packets_of("events").expect("no system call") > 1000),
        None => println!("events were not tried: this machine's clock takes system calls"),
    }
}
