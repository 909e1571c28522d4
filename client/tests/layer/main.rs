//! What programs do with `tracing`, and what a session in the same process has of it.

#[path = "../track_events/reader.rs"]
mod reader;

use std::time::Duration;

use prost::Message as _;
use reader::Trace;
use tracing::{Level, debug, error, info, info_span, span, trace};
use tracing_subscriber::layer::SubscriberExt as _;
use watershed_client::in_process::{InProcess, InProcessOptions, Session, Sink};
use watershed_client::track_event;
use watershed_wire::protos::trace_config::{BufferConfig, DataSource};
use watershed_wire::protos::track_event::Type;
use watershed_wire::protos::{DataSourceConfig, TraceConfig, TrackEventConfig};

/// What does not happen within this time never will, however busy the machine is.
const WATCHDOG: Duration = Duration::from_secs(300);

fn backend() -> InProcess {
    let backend = InProcess::new(InProcessOptions::default()).unwrap();
    backend.register(track_event::data_source());
    backend
}

fn start(backend: &InProcess, enabled_tags: &[&str]) -> Session {
    let enabled_tags = enabled_tags.iter().map(|&tag| tag.to_owned()).collect();
    start_with(backend, TrackEventConfig { enabled_tags, ..Default::default() })
}

fn start_with(backend: &InProcess, events: TrackEventConfig) -> Session {
    let config = DataSourceConfig {
        name: Some(track_event::NAME.to_owned()),
        track_event_config: Some(events),
        ..Default::default()
    };
    let config = TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(8 << 10), ..Default::default() }],
        data_sources: vec![DataSource { config: Some(config), ..Default::default() }],
        ..Default::default()
    };
    let session = backend.start_session(&config.encode_to_vec(), Sink::Buffers).unwrap();
    assert!(session.wait_all_started(WATCHDOG));
    session
}

fn stop(session: &Session) -> Trace {
    assert!(session.flush_and_wait(WATCHDOG));
    session.stop();
    assert!(session.wait_timeout(WATCHDOG).expect("it ends").error.is_none());
    let mut trace = Vec::new();
    while session.read(&mut trace) {}
    reader::read(&trace)
}

/// On a thread of that name, whose spans and events the layer gets.
fn on_thread<R: Send>(name: &str, work: impl FnOnce() -> R + Send) -> R {
    let subscribed = || {
        let subscriber = tracing_subscriber::registry().with(watershed_client::layer());
        tracing::subscriber::with_default(subscriber, work)
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new().name(name.to_owned()).spawn_scoped(scope, subscribed);
        thread.unwrap().join().unwrap()
    })
}

#[test]
fn spans_are_slices_and_events_are_instants() {
    let backend = backend();
    let session = start(&backend, &[]);
    on_thread("spans", || {
        let outer =
            info_span!(target: "net", "outer", size = 7_u64, peer = "here", late = tracing::field::Empty);
        let _outer = outer.enter();
        info!(target: "net", count = -3, ok = true, "sent {} bytes", 12);
        span!(target: "disk", Level::WARN, "inner").in_scope(|| outer.record("late", 0.5));
        error!(target: "disk", code = ?Some(5));
        debug!(target: "net", "nobody wants this");
        trace!(target: "net", "nor this");
    });
    let trace = stop(&session);
    assert_eq!(trace.nesting("spans"), "outer(inner())");
    let events = trace.on("spans");
    let names: Vec<_> = events.iter().map(|event| (&*event.category, &*event.name)).collect();
    assert_eq!(names[..3], [("net", "outer"), ("net", "sent 12 bytes"), ("disk", "inner")]);
    assert_eq!((names[3].0, names[4].0, names.len()), ("", "disk", 6));
    assert!(names[4].1.starts_with("event client/tests/layer/main.rs"), "{names:?}");
    assert_eq!(events[0].args, ["size=7", "peer=here"]);
    assert_eq!(events[1].args, ["count=-3", "ok=true"]);
    assert_eq!(events[4].args, ["code=Some(5)"]);
    assert_eq!((events[5].kind, &*events[5].args), (Type::SliceEnd, &["late=0.5".to_owned()][..]));
}

#[test]
fn a_session_can_have_what_is_for_debugging() {
    let backend = backend();
    let session = start(&backend, &["trace"]);
    on_thread("levels", || {
        debug!("of level debug");
        trace!("of level trace");
        info!("of level info");
    });
    let trace = stop(&session);
    let names: Vec<_> = trace.on("levels").iter().map(|event| event.name.clone()).collect();
    assert_eq!(names, ["of level trace", "of level info"]);
}

/// What the `log` crate logs, as `tracing-log` passes it on.
#[test]
fn log_has_its_own_targets() {
    let backend = backend();
    let session = start(&backend, &[]);
    on_thread("log", || {
        // Another test may have set it. The level is for what `log` itself leaves out.
        let _ = tracing_log::LogTracer::init();
        log::set_max_level(log::LevelFilter::Trace);
        log::info!(target: "library", "it is {}", 5);
        log::debug!(target: "library", "nobody wants this");
        log::warn!(target: "library::part", "it ends");
    });
    let trace = stop(&session);
    let events = trace.on("log");
    let logged: Vec<_> = events.iter().map(|event| (&*event.category, &*event.name)).collect();
    assert_eq!(logged, [("library", "it is 5"), ("library::part", "it ends")]);
    assert!(events.iter().all(|event| event.args.is_empty()));
}

/// As a task of an async program: each poll enters the span, on any thread.
#[test]
fn a_span_that_is_entered_again_is_one_flow() {
    let backend = backend();
    let session = start(&backend, &[]);
    on_thread("task", || {
        let spans = [info_span!("first", number = 1), info_span!("second", number = 2)];
        for _ in 0..3 {
            spans.iter().for_each(|span| span.in_scope(|| ()));
        }
    });
    let trace = stop(&session);
    let begins: Vec<_> =
        trace.on("task").into_iter().filter(|event| event.kind == Type::SliceBegin).collect();
    let flows = |name: &str| -> Vec<u64> {
        begins.iter().filter(|event| event.name == name).flat_map(|event| event.flows.clone()).collect()
    };
    let (first, second) = (flows("first"), flows("second"));
    assert_eq!((first.len(), second.len()), (3, 3));
    assert!(first.iter().all(|&flow| flow == first[0]) && second.iter().all(|&flow| flow == second[0]));
    assert_ne!(first[0], second[0]);
    assert!(begins.iter().all(|event| event.args.len() == 1), "fields are there each time");
}

/// Two sessions have the same slices, of which one must not see the fields.
#[test]
fn a_session_without_fields_has_all_else() {
    let backend = backend();
    let filtered = TrackEventConfig { filter_debug_annotations: Some(true), ..Default::default() };
    let (all, without) = (start(&backend, &[]), start_with(&backend, filtered));
    on_thread("both", || {
        for number in 0..3 {
            let span = info_span!("kept", number, text = "of some words");
            span.in_scope(|| ());
            span.in_scope(|| ());
            info_span!("elsewhere", text = "x".repeat(200)).in_scope(|| ());
        }
    });
    let (all, without) = (stop(&all), stop(&without));
    let (all, without) = (all.on("both"), without.on("both"));
    assert_eq!((all.len(), without.len()), (3 * 6, 3 * 6));
    for (one, other) in all.iter().zip(&without) {
        assert_eq!((one.kind, &one.name, &one.flows), (other.kind, &other.name, &other.flows));
        assert!(one.args.is_empty() == (one.kind == Type::SliceEnd) && other.args.is_empty());
    }
}

/// What `enter` tells of a span is with whoever enters it, on any thread, and so is what was
/// recorded until then.
#[test]
fn a_span_has_its_fields_on_other_threads() {
    let backend = backend();
    let session = start(&backend, &[]);
    on_thread("first", || {
        let empty = tracing::field::Empty;
        let span = info_span!("shared", number = 1, late = empty, later = empty);
        span.in_scope(|| ());
        span.record("late", 2);
        let dispatch = tracing::dispatcher::get_default(Clone::clone);
        std::thread::scope(|scope| {
            let other = std::thread::Builder::new().name("other".to_owned());
            let enter = || {
                tracing::dispatcher::with_default(&dispatch, || span.in_scope(|| span.record("later", 3)));
            };
            other.spawn_scoped(scope, enter).unwrap().join().unwrap();
        });
    });
    let trace = stop(&session);
    let (first, other) = (trace.on("first"), trace.on("other"));
    assert_eq!(first[0].args, ["number=1"]);
    assert_eq!(other[0].args, ["number=1", "late=2"]);
    assert_eq!(first[0].flows, other[0].flows);
    assert_eq!((first.len(), other.len()), (2, 2));
    assert!(first[1].args.is_empty());
    assert_eq!(other[1].args, ["later=3"]);
}

/// More spans than the layer keeps places for, fields that are too long for one, and two registries
/// whose spans have the same ids.
#[test]
fn spans_have_their_fields_wherever_they_are_kept() {
    const SPANS: u64 = 10_000;
    let backend = backend();
    let session = start(&backend, &[]);
    let make = |first: u64| -> Vec<_> {
        let text = |number: u64| "x".repeat(if number.is_multiple_of(100) { 200 } else { 2 });
        (first..first + SPANS).map(|number| info_span!("many", number, text = text(number))).collect()
    };
    on_thread("one", || {
        let one = make(0);
        on_thread("two", || make(SPANS).iter().for_each(|span| span.in_scope(|| ())));
        one.iter().for_each(|span| span.in_scope(|| ()));
    });
    let trace = stop(&session);
    for (thread, first) in [("one", 0), ("two", SPANS)] {
        let events = trace.on(thread);
        let begins = events.iter().filter(|event| event.kind == Type::SliceBegin);
        let numbers: Vec<_> = begins.map(|event| event.args[0].clone()).collect();
        let expected: Vec<_> = (first..first + SPANS).map(|number| format!("number={number}")).collect();
        assert!(numbers == expected, "{} on {thread}", numbers.len());
        let lengths: Vec<_> = events.iter().step_by(2).map(|event| event.args[1].len()).collect();
        assert_eq!((lengths[0], lengths[1], lengths[100]), (205, 7, 205));
    }
}

/// A value whose `Debug` makes a span: nothing of the outer one is locked meanwhile.
#[test]
fn a_value_that_is_recorded_may_trace() {
    struct Traces(tracing::Span);
    impl std::fmt::Debug for Traces {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            info_span!("inner", number = 2).in_scope(|| self.0.in_scope(|| f.write_str("traced")))
        }
    }
    let backend = backend();
    let session = start(&backend, &[]);
    on_thread("traces", || {
        let outer = info_span!("outer", number = 1, late = tracing::field::Empty);
        let _outer = outer.clone().entered();
        outer.record("late", tracing::field::debug(Traces(outer.clone())));
    });
    let trace = stop(&session);
    assert_eq!(trace.nesting("traces"), "outer(inner(outer()))");
    let events = trace.on("traces");
    let args: Vec<_> = events.iter().map(|event| event.args.join(" ")).collect();
    assert_eq!(args, ["number=1", "number=2", "number=1", "", "", "late=traced"]);
}

/// Likewise a value of a span that is being made, which is formatted between two that are not.
#[test]
fn a_value_of_a_new_span_may_trace() {
    struct Traces(tracing::Span);
    impl std::fmt::Debug for Traces {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            self.0.in_scope(|| f.write_str("traced"))
        }
    }
    let backend = backend();
    let session = start(&backend, &[]);
    on_thread("makes", || {
        let inside = Traces(info_span!("inside", number = 2));
        info_span!("made", number = -1, value = ?inside, yes = true).in_scope(|| ());
    });
    let trace = stop(&session);
    assert_eq!(trace.nesting("makes"), "inside()made()");
    let begins = trace.on("makes").into_iter().step_by(2);
    let args: Vec<_> = begins.map(|event| event.args.join(" ")).collect();
    assert_eq!(args, ["number=2", "number=-1 value=traced yes=true"]);
}

#[test]
fn a_span_that_is_older_than_the_session_is_seen_from_then_on() {
    let backend = backend();
    let session = on_thread("older", || {
        let span = info_span!("old", number = 1);
        let entered = span.enter();
        let session = start(&backend, &[]);
        drop(entered);
        span.in_scope(|| info!("inside"));
        session
    });
    let trace = stop(&session);
    assert_eq!(trace.nesting("older"), "old()");
    assert_eq!(trace.on("older").len(), 3);
}
