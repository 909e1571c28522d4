//! Commands that `record` ran, in traces made by hand.

use serde_json::{Value, json};
use watershed_wire::protos::debug_annotation::{NameField, Value as Annotated};
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::track_event::Type;
use watershed_wire::protos::{DebugAnnotation, TracePacket, TrackEvent};

use crate::trace::{SECOND_NS, TraceBuilder, producer, stats};
use crate::{Bench, fine, parts};

fn annotation(name: &str, value: Annotated) -> DebugAnnotation {
    DebugAnnotation {
        name_field: Some(NameField::Name(name.to_owned())),
        value: Some(value),
        ..Default::default()
    }
}

/// One end of the slice of `make`, at so many seconds of a clock.
fn end_of_slice(kind: Type, seconds: u64, clock_id: u32) -> TracePacket {
    let mut about = vec![
        annotation("command_line", Annotated::StringValue("make -j2".to_owned())),
        annotation("pid", Annotated::IntValue(9)),
    ];
    if kind == Type::SliceEnd {
        about.push(annotation("exit_code", Annotated::IntValue(2)));
    }
    let event = TrackEvent {
        r#type: Some(kind as i32),
        track_uuid: Some(5),
        categories: vec!["watershed.command".to_owned()],
        debug_annotations: about,
        ..Default::default()
    };
    TracePacket {
        timestamp_clock_id: Some(clock_id),
        ..producer(2, seconds * SECOND_NS, Data::TrackEvent(event))
    }
}

const BOOTTIME: u32 = 6;
/// In the trace it is ten seconds behind.
const MONOTONIC: u32 = 3;
const UNKNOWN: u32 = 77;

/// Begin, end and exit code in JSON, and what the text says after the process.
#[track_caller]
fn command(ends: &[TracePacket]) -> (Value, String) {
    let trace = TraceBuilder::default().beginning().data();
    let trace = ends.iter().cloned().fold(trace, TraceBuilder::packet).end(stats());
    let json = fine(&trace);
    let [command] = &json["session"]["commands"].as_array().unwrap()[..] else { panic!("{json}") };
    assert_eq!((&command["command_line"], &command["pid"]), (&json!("make -j2"), &json!(9)));
    let bench = Bench::new();
    bench.file("t", &trace.bytes);
    let (_, text, _) = parts(&bench.run(&["inspect", "t"]));
    let said = text.lines().find_map(|line| line.split_once("make -j2, pid 9, ")).unwrap().1;
    (json!([command["begin_ns"], command["end_ns"], command["exit_code"]]), said.to_owned())
}

#[test]
fn a_command_with_both_ends() {
    for (clock_id, begin, end) in [(BOOTTIME, 101, 103), (MONOTONIC, 91, 93)] {
        let ends =
            [end_of_slice(Type::SliceBegin, begin, clock_id), end_of_slice(Type::SliceEnd, end, clock_id)];
        let (json, said) = command(&ends);
        assert_eq!(json, json!([101 * SECOND_NS, 103 * SECOND_NS, 2]));
        assert_eq!(said, "2.000 s, exit code 2");
    }
}

#[test]
fn a_command_of_which_an_end_is_missing() {
    let (json, said) = command(&[end_of_slice(Type::SliceBegin, 101, BOOTTIME)]);
    assert_eq!(json, json!([101 * SECOND_NS, null, null]));
    assert_eq!(said, "its end is not in the trace");
    let (json, said) = command(&[end_of_slice(Type::SliceEnd, 103, BOOTTIME)]);
    assert_eq!(json, json!([null, 103 * SECOND_NS, 2]));
    assert_eq!(said, "its begin is not in the trace, exit code 2");
}

#[test]
fn a_command_at_no_known_time() {
    let ends = [Type::SliceBegin, Type::SliceEnd].map(|kind| end_of_slice(kind, 101, UNKNOWN));
    let (json, said) = command(&ends);
    assert_eq!(json, json!([null, null, 2]));
    assert_eq!(said, "at an unknown time, exit code 2");
}
