//! The command that `watershed record` runs, as the trace shows it: within this process, and with a
//! tracing service in another one.

mod support;

use std::collections::BTreeMap;

use support::{Dir, packets, wait_until};
use watershed_wire::protos::debug_annotation::{NameField, Value};
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::track_descriptor::StaticOrDynamicName;
use watershed_wire::protos::track_event::{self, Type};
use watershed_wire::protos::{TrackDescriptor, TrackEvent};

const CONFIG: &str = r#"buffers { size_kb: 64 } data_sources { config { name: "linux.sys_stats"
    sys_stats_config { stat_period_ms: 50 stat_counters: STAT_FORK_COUNT } } }"#;

/// An event of a track, and when it was.
struct Event {
    at_ns: u64,
    event: TrackEvent,
}

impl Event {
    fn about(&self) -> BTreeMap<&str, &Value> {
        let annotations = self.event.debug_annotations.iter();
        annotations
            .map(|about| match (&about.name_field, &about.value) {
                (Some(NameField::Name(name)), Some(value)) => (name.as_str(), value),
                other => panic!("{other:?}"),
            })
            .collect()
    }
}

struct Marked {
    tracks: BTreeMap<u64, TrackDescriptor>,
    events: Vec<Event>,
}

impl Marked {
    fn read(dir: &Dir, name: &str) -> Self {
        let mut marked = Marked { tracks: BTreeMap::new(), events: Vec::new() };
        for packet in packets(&dir.read(name)) {
            let at_ns = packet.timestamp();
            match packet.data {
                Some(Data::TrackDescriptor(track)) => drop(marked.tracks.insert(track.uuid(), track)),
                Some(Data::TrackEvent(event)) => marked.events.push(Event { at_ns, event }),
                _ => {}
            }
        }
        marked
    }

    /// Begin and end of the one slice that there is, on a track of the command's process.
    #[track_caller]
    fn slice(&self) -> (&Event, &Event) {
        let [begin, end] = &self.events[..] else { panic!("{} events", self.events.len()) };
        assert_eq!((begin.event.r#type(), end.event.r#type()), (Type::SliceBegin, Type::SliceEnd));
        assert_eq!(begin.event.track_uuid(), end.event.track_uuid());
        assert!(begin.at_ns < end.at_ns);
        let track = &self.tracks[&begin.event.track_uuid()];
        assert_eq!(track.static_or_dynamic_name, Some(StaticOrDynamicName::Name("command".to_owned())));
        let process = self.tracks[&track.parent_uuid()].process.as_ref().unwrap();
        assert_eq!(begin.about()["pid"], &Value::IntValue(process.pid().into()));
        // Readers of traces do not take a name from the arguments.
        assert_eq!(process.process_name.as_ref(), process.cmdline.first());
        (begin, end)
    }
}

#[track_caller]
fn assert_marked(dir: &Dir, args: &[&str], line: &str, code: i32, end: (&str, i64)) {
    let all = [args, &["-o", "t", "--"], &line.split(' ').collect::<Vec<_>>()].concat();
    let run = dir.record(&all);
    assert_eq!(run.code, Some(code), "{}", run.stderr);
    assert!(run.stderr.contains("no data lost") && !run.stderr.contains("warning"), "{}", run.stderr);
    let marked = Marked::read(dir, "t");
    let (begin, ended) = marked.slice();
    assert_eq!(begin.event.name_field, Some(track_event::NameField::Name(line.to_owned())));
    assert_eq!(begin.about()["command_line"], &Value::StringValue(line.to_owned()));
    let how = Value::IntValue(end.1);
    let mut about = begin.about();
    about.insert(end.0, &how);
    assert_eq!(ended.about(), about);
    let inspected = dir.program(&["inspect", "t"]).wait().stdout;
    let fact = inspected.lines().find(|line| line.trim_start().starts_with("command ")).unwrap();
    assert!(fact.contains(line), "{fact}");
    let said = match end {
        ("signal", number) => format!(", killed by signal {number}"),
        (_, code) => format!(", exit code {code}"),
    };
    assert!(fact.ends_with(&said), "{fact}");
}

#[test]
fn a_command_is_a_slice() {
    let dir = Dir::new();
    assert_marked(&dir, &[], "sleep 0.05", 0, ("exit_code", 0));
    assert_marked(&dir, &[], "false", 1, ("exit_code", 1));
    // As the shell that is told to kill itself sees its own end.
    dir.write("killed.sh", "kill -TERM $$\n");
    assert_marked(&dir, &[], "sh killed.sh", 128 + 15, ("signal", 15));
    dir.write("c", CONFIG);
    assert_marked(&dir, &["-c", "c"], "sleep 0.05", 0, ("exit_code", 0));
}

#[test]
fn a_command_is_a_slice_of_a_session_elsewhere() {
    let dir = Dir::new();
    let _daemon = dir.daemon();
    let _probes = dir.probes();
    assert_marked(&dir, &[], "sleep 0.05", 0, ("exit_code", 0));
    dir.write("c", format!("{CONFIG} write_into_file: true"));
    assert_marked(&dir, &["-c", "c"], "false", 1, ("exit_code", 1));
    // Two at once have one slice each.
    let mut first = dir.spawn(&["-o", "first", "--", "sleep", "1"]);
    let second = dir.record(&["-o", "second", "--", "sleep", "0.05"]);
    assert_eq!(second.code, Some(0), "{}", second.stderr);
    let first = first.wait();
    assert_eq!(first.code, Some(0), "{}", first.stderr);
    for name in ["first", "second"] {
        Marked::read(&dir, name).slice();
    }
    // Nothing of it is left in the service.
    wait_until("the producers are gone", || {
        !dir.program(&["query"]).wait().stdout.contains("watershed.record")
    });
}

#[test]
fn other_sessions_have_it_too() {
    let dir = Dir::new();
    let _daemon = dir.daemon();
    let _probes = dir.probes();
    let asks = "data_sources { config { name: \"watershed.command\" } }";
    dir.write("other", format!("{CONFIG} {asks}"));
    let detached = dir.program(&["detach", "other", "-c", "other"]).wait();
    assert_eq!(detached.code, Some(0), "{}", detached.stderr);
    assert_marked(&dir, &[], "sleep 0.05", 0, ("exit_code", 0));
    let stopped = dir.program(&["stop", "other", "-o", "of_other"]).wait();
    assert_eq!(stopped.code, Some(0), "{}", stopped.stderr);
    Marked::read(&dir, "of_other").slice();
}

/// What `inspect --verbose` shows of it, to record with once more.
fn config_of(dir: &Dir, name: &str) -> String {
    let report = dir.program(&["inspect", "--json", name]).wait().stdout;
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    report["session"]["config"].as_str().unwrap().to_owned()
}

#[test]
fn the_config_of_a_trace_records_another_command() {
    let dir = Dir::new();
    let again = |dir: &Dir| {
        dir.write("c", CONFIG);
        assert_marked(dir, &["-c", "c"], "sleep 0.05", 0, ("exit_code", 0));
        let copied = config_of(dir, "t");
        assert!(copied.contains("watershed.command"), "{copied}");
        dir.write("copied", copied);
        assert_marked(dir, &["-c", "copied", "--fail-on-loss"], "false", 1, ("exit_code", 1));
        assert_eq!(config_of(dir, "t").matches("watershed.command").count(), 1);
        let run = dir.record(&["-c", "copied", "--fail-on-loss", "-t", "100ms", "-o", "t"]);
        assert_eq!(run.code, Some(0), "{}", run.stderr);
        assert!(!run.stderr.contains("warning"), "{}", run.stderr);
    };
    again(&dir);
    let _daemon = dir.daemon();
    let _probes = dir.probes();
    again(&dir);
}

#[test]
fn a_command_that_goes_on_has_no_end() {
    let dir = Dir::new();
    // It goes on until the trace is written.
    let command = "until [ -s t ]; do sleep 0.05; done";
    let run = dir.record(&["-t", "200ms", "-o", "t", "--", "sh", "-c", command]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let marked = Marked::read(&dir, "t");
    let kinds: Vec<Type> = marked.events.iter().map(|event| event.event.r#type()).collect();
    assert_eq!(kinds, [Type::SliceBegin]);
    let inspected = dir.program(&["inspect", "t"]).wait().stdout;
    assert!(inspected.contains("its end is not in the trace"), "{inspected}");
}

#[test]
fn a_service_without_producers_is_no_obstacle() {
    let dir = Dir::new();
    let _daemon = dir.daemon();
    std::fs::remove_file(dir.socket("producer")).unwrap();
    let run = dir.record(&["-t", "10s", "-o", "t", "--", "true"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stderr.contains("warning: the command is not marked in the trace: "), "{}", run.stderr);
    assert_eq!(Marked::read(&dir, "t").events.len(), 0);
}
