//! Track events of a program through whole sessions in its own process, and what a reader that
//! shares no code makes of them.

mod idle_threads;
mod loss;
mod many;
mod reader;

use std::time::Duration;

use prost::Message as _;
use reader::{Read, Trace};
use watershed_client::in_process::{InProcess, InProcessOptions, Session, Sink};
use watershed_client::track_event::{self, Category, Counter, Track, Unit, debug, display};
use watershed_client::{begin, clock, counter, end, instant, slice};
use watershed_wire::protos::trace_config::{BufferConfig, DataSource, IncrementalStateConfig};
use watershed_wire::protos::track_event::Type;
use watershed_wire::protos::{DataSourceConfig, TraceConfig, TrackEventConfig};

/// What does not happen within this time never will, however busy the machine is.
const WATCHDOG: Duration = Duration::from_secs(300);

/// Says to a test that it has its process for itself.
const CROWD_PROCESS: &str = "WATERSHED_TEST_CROWD";

/// How far the time of an event may be from the system's clock.
const CLOCK_OFF_NS_MAX: u64 = 1000;

fn backend() -> InProcess {
    let backend = InProcess::new(InProcessOptions::default()).unwrap();
    backend.register(track_event::data_source());
    backend
}

fn config(events: TrackEventConfig) -> TraceConfig {
    let config = DataSourceConfig {
        name: Some(track_event::NAME.to_owned()),
        track_event_config: Some(events),
        ..Default::default()
    };
    TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(16 << 10), ..Default::default() }],
        data_sources: vec![DataSource { config: Some(config), ..Default::default() }],
        ..Default::default()
    }
}

/// The categories that tests name, and no others of the process.
fn only(categories: &[&str]) -> TrackEventConfig {
    TrackEventConfig {
        enabled_categories: categories.iter().map(|&name| name.to_owned()).collect(),
        disabled_categories: vec!["*".to_owned()],
        ..Default::default()
    }
}

fn start(backend: &InProcess, events: TrackEventConfig) -> Session {
    start_with(backend, &config(events))
}

fn start_with(backend: &InProcess, config: &TraceConfig) -> Session {
    let session = backend.start_session(&config.encode_to_vec(), Sink::Buffers).unwrap();
    assert!(session.wait_all_started(WATCHDOG));
    session
}

fn stop(session: &Session) -> Trace {
    // The flush of the end itself has five seconds only, and a busy machine may need more.
    assert!(session.flush_and_wait(WATCHDOG));
    session.stop();
    let end = session.wait_timeout(WATCHDOG).expect("it ends");
    assert_eq!(end.error, None);
    let mut trace = Vec::new();
    while session.read(&mut trace) {}
    reader::read(&trace)
}

fn of<'a>(trace: &'a Trace, category: &str) -> Vec<&'a Read> {
    trace.events.iter().filter(|event| event.category == category).collect()
}

/// On a thread of that name, which the trace has.
fn on_thread(name: &str, work: impl FnOnce() + Send) {
    std::thread::scope(|scope| {
        std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, work).unwrap();
    });
}

#[test]
fn each_kind_of_event_is_in_the_trace() {
    static KINDS: Category = Category::new("kinds");
    static LENGTH: Counter = Counter::new("length").with_unit(Unit::Count);
    let backend = backend();
    let session = start(&backend, only(&["kinds"]));
    let before_ns = clock::boottime_ns();
    on_thread("kinds-a", || {
        let request = Track::new("request 7", 7);
        begin!(KINDS, "request", on = &request, size = 3_u8; flow = 99);
        {
            let _outer = slice!(KINDS, "outer", answer = -42, yes = true, half = 0.5, text = "t");
            let _inner = slice!(KINDS, { &format!("inner {}", 1) });
            let path = std::path::Path::new("/x");
            instant!(KINDS, "point", path = display(path.display()), list = debug([1, 2]));
            instant!(KINDS, "point"; flow = 99);
        }
        counter!(KINDS, LENGTH, 5_usize);
        counter!(KINDS, LENGTH, 0.25);
        end!(KINDS, on = &request);
    });
    let after_ns = clock::boottime_ns();
    let trace = stop(&session);
    assert_eq!(trace.nesting("kinds-a"), "outer(inner 1())");
    assert_eq!(trace.nesting("request 7"), "request()");
    let named = |name: &str| trace.events.iter().filter(|event| event.name == name).collect::<Vec<_>>();
    assert_eq!(named("outer")[0].args, ["answer=-42", "yes=true", "half=0.5", "text=t"]);
    assert_eq!(
        (&*named("request")[0].args, &*named("request")[0].flows),
        (&["size=3".to_owned()][..], &[99][..])
    );
    let [first, second] = named("point")[..] else { panic!("two of them") };
    assert_eq!(
        (&*first.args, first.kind),
        (&["path=/x".to_owned(), "list=[1, 2]".to_owned()][..], Type::Instant)
    );
    assert_eq!((&*second.flows, &*second.track), (&[99][..], "kinds-a"));
    let counted: Vec<_> = trace.on("length");
    assert_eq!(counted.iter().map(|event| event.value.unwrap()).collect::<Vec<_>>(), [5.0, 0.25]);
    assert!(counted.iter().all(|event| event.kind == Type::Counter && event.category == "kinds"));
    let span = before_ns - CLOCK_OFF_NS_MAX..=after_ns + CLOCK_OFF_NS_MAX;
    assert!(trace.events.iter().all(|event| span.contains(&event.at_ns)));
    let unit = trace.tracks.values().find_map(|track| track.counter.as_ref()).unwrap();
    assert_eq!(unit.unit, Some(Unit::Count as i32));
    let process = trace.tracks.values().find_map(|track| track.process.as_ref()).unwrap();
    assert_eq!(process.pid, Some(std::process::id().cast_signed()));
}

/// Packets of each length, at each place of a chunk: in their place, copied, and cut in two.
#[test]
fn events_of_any_length_are_whole() {
    static ANY: Category = Category::new("any length");
    const LEN_MAX: usize = 400;
    let text: String = (0..LEN_MAX).map(|at| char::from(b'a' + (at % 26) as u8)).collect();
    let backend = backend();
    let session = start(&backend, only(&["any length"]));
    for len in 0..LEN_MAX {
        instant!(ANY, "one", text = text[..len], number = len);
        instant!(ANY, { &text[..len] }, formatted = display(&text[..LEN_MAX - len]), float = 0.5);
    }
    let trace = stop(&session);
    let events = of(&trace, "any length");
    assert_eq!(events.len(), 2 * LEN_MAX);
    for (len, pair) in events.chunks(2).enumerate() {
        assert_eq!(pair[0].args, [format!("text={}", &text[..len]), format!("number={len}")]);
        let formatted = format!("formatted={}", &text[..LEN_MAX - len]);
        assert_eq!((&*pair[1].name, &*pair[1].args), (&text[..len], &[formatted, "float=0.5".into()][..]));
    }
}

#[test]
fn sessions_have_what_they_ask_for_and_no_more() {
    static ONE: Category = Category::new("choice.one");
    static TWO: Category = Category::new("choice.two").with_tags(&["slow"]);
    let backend = backend();
    let event = |name: &'static str| {
        instant!(ONE, { name }, arg = 1);
        instant!(TWO, { name }, arg = 1);
    };
    event("nobody");
    assert!(!ONE.is_enabled() && !TWO.is_enabled(), "no session wants them");
    let first = start(&backend, only(&["choice.one"]));
    event("first");
    let both = TrackEventConfig { filter_debug_annotations: Some(true), ..only(&["choice.*"]) };
    let both = TrackEventConfig {
        filter_dynamic_event_names: Some(true),
        enabled_tags: vec!["slow".to_owned()],
        ..both
    };
    let second = start(&backend, both);
    event("both");
    let first = stop(&first);
    event("second");
    let second = stop(&second);
    event("nobody");
    let names = |trace: &Trace, category: &str| -> Vec<String> {
        of(trace, category).iter().map(|event| format!("{}{}", event.name, event.args.len())).collect()
    };
    assert_eq!(names(&first, "choice.one"), ["first1", "both1"]);
    assert_eq!(names(&first, "choice.two"), [""; 0]);
    assert_eq!(names(&second, "choice.one"), ["FILTERED0", "FILTERED0"]);
    assert_eq!(names(&second, "choice.two"), ["FILTERED0", "FILTERED0"]);
    assert!(!TWO.is_enabled());
}

/// Alone in a process: other tests have sessions, too.
#[test]
fn one_session_too_many_gets_nothing() {
    static CROWD: Category = Category::new("crowd");
    if std::env::var_os(CROWD_PROCESS).is_none() {
        let program = std::env::current_exe().unwrap();
        let arguments = ["--exact", "one_session_too_many_gets_nothing"];
        let output = std::process::Command::new(program).args(arguments).env(CROWD_PROCESS, "1").output();
        let output = output.unwrap();
        assert!(output.status.success(), "{output:?}");
        return;
    }
    let (tell, told) = std::sync::mpsc::channel();
    // Each lets a user have five.
    let backends = [tell.clone(), tell].map(|tell| {
        let on_event = move |event| tell.send(format!("{event:?}")).unwrap();
        let backend = InProcess::with_events(InProcessOptions::default(), on_event).unwrap();
        backend.register(track_event::data_source());
        backend
    });
    let sessions: Vec<_> = (0..9).map(|session| start(&backends[session % 2], only(&["crowd"]))).collect();
    assert!(told.recv_timeout(WATCHDOG).unwrap().contains("8 sessions have it already"));
    instant!(CROWD, "event");
    let num_events: Vec<_> = sessions.iter().map(|session| stop(session).events.len()).collect();
    assert_eq!(num_events, [1, 1, 1, 1, 1, 1, 1, 1, 0]);
    let again = start(&backends[1], only(&["crowd"]));
    instant!(CROWD, "event");
    assert_eq!(stop(&again).events.len(), 1, "there is room again");
}

#[test]
fn slices_around_a_session_leave_no_ends() {
    static AROUND: Category = Category::new("around");
    let backend = backend();
    on_thread("around", || {
        let outer = slice!(AROUND, "outer");
        let session = start(&backend, only(&["around"]));
        let inner = slice!(AROUND, "inner");
        let innermost = slice!(AROUND, "innermost");
        drop(innermost);
        let (second, first) = (start(&backend, only(&["around"])), stop(&session));
        drop(inner);
        drop(outer);
        drop(slice!(AROUND, "later"));
        assert_eq!(first.nesting("around"), "inner(innermost()?)");
        assert_eq!(stop(&second).nesting("around"), "later()");
    });
}

#[test]
fn times_are_as_the_session_wants_them() {
    static TIMES: Category = Category::new("times");
    let backend = backend();
    for (absolute, unit_ns) in [(false, None), (true, None), (false, Some(1000)), (true, Some(1000))] {
        let events = TrackEventConfig {
            disable_incremental_timestamps: Some(absolute),
            timestamp_unit_multiplier: unit_ns,
            ..only(&["times"])
        };
        let session = start(&backend, events);
        let mut spans = Vec::new();
        for _ in 0..50 {
            let before_ns = clock::boottime_ns();
            instant!(TIMES, "event");
            spans.push(before_ns..=clock::boottime_ns());
            std::thread::sleep(Duration::from_micros(100));
        }
        let trace = stop(&session);
        let times: Vec<_> = of(&trace, "times").iter().map(|event| event.at_ns).collect();
        let unit_ns = unit_ns.unwrap_or(1);
        assert_eq!(times.len(), spans.len());
        for (at_ns, span) in times.iter().zip(spans) {
            let span = (span.start() - CLOCK_OFF_NS_MAX) / unit_ns * unit_ns..=span.end() + CLOCK_OFF_NS_MAX;
            assert!(span.contains(at_ns), "{at_ns} in {span:?}");
        }
    }
}

/// Each period everything is explained anew: a reader that begins there has all it needs.
#[test]
fn incremental_state_is_cleared_for_the_session() {
    static CLEARED: Category = Category::new("cleared");
    let backend = backend();
    let clears = IncrementalStateConfig { clear_period_ms: Some(50) };
    let config = TraceConfig { incremental_state_config: Some(clears), ..config(only(&["cleared"])) };
    let session = start_with(&backend, &config);
    let started = std::time::Instant::now();
    let mut num_events = 0;
    while started.elapsed() < Duration::from_millis(400) {
        let _slice = slice!(CLEARED, "slice", number = num_events);
        num_events += 1;
        std::thread::sleep(Duration::from_millis(1));
    }
    session.stop();
    assert!(session.wait_timeout(WATCHDOG).is_some());
    let mut trace = Vec::new();
    while session.read(&mut trace) {}
    let packets: Vec<_> =
        watershed_wire::reader::packets(&trace[..]).map(|packet| packet.unwrap().to_vec()).collect();
    let is_clear = |packet: &Vec<u8>| {
        let packet = watershed_wire::protos::TracePacket::decode(&packet[..]).unwrap();
        packet.sequence_flags.unwrap_or(0) & 1 != 0
    };
    assert!(packets.iter().filter(|packet| is_clear(packet)).count() >= 3);
    let all = reader::read(&trace);
    assert_eq!(of(&all, "cleared").len(), num_events);
    // From the last clear on.
    let last = packets.iter().rposition(is_clear).unwrap();
    let framed: Vec<u8> = packets[last..].iter().flat_map(|packet| framed(packet)).collect();
    let rest = reader::read(&framed);
    assert_eq!(rest.num_unreadable, 0);
    assert!(!rest.events.is_empty());
}

/// A packet as it lies in a file.
fn framed(packet: &[u8]) -> Vec<u8> {
    let mut framed = vec![0x0a];
    prost::encoding::encode_varint(packet.len() as u64, &mut framed);
    framed.extend_from_slice(packet);
    framed
}
