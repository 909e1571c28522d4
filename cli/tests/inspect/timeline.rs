//! `watershed inspect --timeline` on traces made by hand.

use std::fs;

use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::track_event::{CounterValueField, NameField, Type};
use watershed_wire::protos::{
    EventName, InternedData, ThreadDescriptor, TracePacket, TracePacketDefaults, TrackDescriptor, TrackEvent,
    TrackEventDefaults,
};

use crate::top::{bundle, packet};
use crate::trace::{SECOND_NS, TraceBuilder, producer, stats};
use crate::{Bench, parts};

/// At so many milliseconds of the trace.
fn event(sequence_id: u32, at_ms: u64, event: TrackEvent) -> TracePacket {
    producer(sequence_id, 100 * SECOND_NS + at_ms * 1_000_000, Data::TrackEvent(event))
}

fn of(kind: Type, track_uuid: u64, name: Option<&str>) -> TrackEvent {
    TrackEvent {
        r#type: Some(kind as i32),
        track_uuid: Some(track_uuid),
        name_field: name.map(|name| NameField::Name(name.to_owned())),
        ..Default::default()
    }
}

fn begin(sequence_id: u32, at_ms: u64, track: u64, name: &str) -> TracePacket {
    event(sequence_id, at_ms, of(Type::SliceBegin, track, Some(name)))
}

fn end(sequence_id: u32, at_ms: u64, track: u64) -> TracePacket {
    event(sequence_id, at_ms, of(Type::SliceEnd, track, None))
}

fn trace(packets: impl IntoIterator<Item = TracePacket>) -> TraceBuilder {
    let trace = TraceBuilder::default().beginning().data();
    packets.into_iter().fold(trace, TraceBuilder::packet).end(stats())
}

/// The picture of a trace, and what is said of it.
#[track_caller]
fn drawn(trace: &TraceBuilder, options: &str) -> (String, String) {
    let bench = Bench::new();
    bench.file("t.pftrace", &trace.bytes);
    let options = options.split_whitespace();
    let args: Vec<&str> =
        ["inspect", "t.pftrace", "--timeline", "t.svg"].into_iter().chain(options).collect();
    let (code, stdout, stderr) = parts(&bench.run(&args));
    assert_eq!((code, &stderr[..]), (0, ""), "{stdout}");
    let svg = fs::read_to_string(bench.dir.path().join("t.svg")).unwrap();
    assert!(svg.starts_with("<svg xmlns") && svg.ends_with("</svg>\n"));
    for element in ["g", "text", "title", "style"] {
        let opened =
            svg.matches(&format!("<{element}>")).count() + svg.matches(&format!("<{element} ")).count();
        assert_eq!(opened, svg.matches(&format!("</{element}>")).count(), "{element}: {svg}");
    }
    (svg, stdout)
}

/// Titles of slices and instants, in the order of the picture.
fn titles(svg: &str) -> Vec<&str> {
    let shapes = svg.split("<title>").skip(1).map(|rest| rest.split("</title>").next().unwrap());
    shapes.filter(|title| title.contains('\n')).collect()
}

#[test]
fn slices_of_a_thread_nest() {
    let thread = ThreadDescriptor {
        pid: Some(4321),
        tid: Some(4322),
        thread_name: Some("a & <b>".to_owned()),
        ..Default::default()
    };
    let track = TrackDescriptor { uuid: Some(5), thread: Some(thread), ..Default::default() };
    let counter = TrackEvent {
        counter_value_field: Some(CounterValueField::CounterValue(7)),
        ..of(Type::Counter, 6, None)
    };
    let trace = trace([
        producer(4, 100 * SECOND_NS, Data::TrackDescriptor(track)),
        begin(4, 100, 5, "outer"),
        begin(4, 200, 5, "<script>alert(1)</script>"),
        event(4, 250, of(Type::Instant, 5, Some("ding"))),
        end(4, 300, 5),
        event(4, 350, counter),
        end(4, 400, 5),
        begin(4, 500, 5, "open"),
    ]);
    let (svg, said) = drawn(&trace, "");
    assert_eq!(
        titles(&svg),
        [
            "ding\nat 250.000 ms",
            "outer\n300.000 ms from 100.000 ms",
            "open\nfrom 500.000 ms, its end is not in the trace",
            "&lt;script&gt;alert(1)&lt;/script&gt;\n100.000 ms from 200.000 ms",
        ]
    );
    assert!(!svg.contains("<script"));
    assert!(svg.contains(">a &amp; &lt;b&gt; 4322</text>") && svg.contains(">probes 4321</text>"), "{svg}");
    assert!(svg.contains("from 0 to 7"), "the counter");
    assert!(
        said.starts_with("t.svg: 2 rows, ") && said.contains("t.pftrace, 0.000000 s to 3.000000 s"),
        "{said}"
    );
    // A window has what is in it, and cuts what is not wholly in it.
    let (svg, _) = drawn(&trace, "--from 260ms --to 320ms");
    assert_eq!(titles(&svg).len(), 2);
    assert!(svg.contains(">280 ms</text>") && !svg.contains("ding"), "{svg}");
}

#[test]
fn names_by_number_and_writers_out_of_order() {
    let defaults = TracePacketDefaults {
        track_event_defaults: Some(TrackEventDefaults { track_uuid: Some(9), ..Default::default() }),
        ..Default::default()
    };
    let names = InternedData {
        event_names: vec![EventName { iid: Some(3), name: Some("interned".to_owned()) }],
        ..Default::default()
    };
    let by_number = |at_ms| {
        let name_field = Some(NameField::NameIid(3));
        let of_default = TrackEvent { name_field, track_uuid: None, ..of(Type::SliceBegin, 0, None) };
        TracePacket { sequence_flags: Some(2), ..event(4, at_ms, of_default) }
    };
    let first = TracePacket {
        sequence_flags: Some(3),
        interned_data: Some(names),
        trace_packet_defaults: Some(defaults),
        ..by_number(100)
    };
    let lossy = TracePacket { previous_packet_dropped: Some(1), ..by_number(400) };
    // One thread ends what another has begun, and its packets are first in the trace.
    let trace = trace([end(5, 300, 9), end(5, 200, 9), first, by_number(150), lossy]);
    let (svg, said) = drawn(&trace, "");
    assert_eq!(titles(&svg), ["interned\n200.000 ms from 100.000 ms", "interned\n50.000 ms from 150.000 ms"]);
    assert!(said.contains("1 event left out, whose time or name is not in the trace"), "{said}");
}

#[test]
fn which_thread_ran_on_each_cpu() {
    let at = |ms: u64| 100 * SECOND_NS + ms * 1_000_000;
    let switches = |first: i32, second: i32| {
        [(at(500), 0, 0, first), (at(1000), 0, 0, 0), (at(1500), 0, 0, second), (at(2500), 0, 1, 0)]
    };
    let lossy = |mut bundle: watershed_wire::protos::FtraceEventBundle| {
        bundle.lost_events = Some(true);
        bundle
    };
    let trace = trace([
        packet(bundle(0, &switches(7, 8), &[])),
        packet(bundle(1, &switches(9, 7)[..3], &[])),
        // Who ran since the switch before is not known.
        packet(lossy(bundle(1, &[(at(2900), 0, 0, 0)], &[]))),
    ]);
    let (svg, _) = drawn(&trace, "");
    assert_eq!(
        titles(&svg),
        [
            "thread-7 7\n500.000 ms from 500.000 ms",
            "thread-8 8\n1.000 s from 1.500 s",
            "thread-9 9\n500.000 ms from 500.000 ms",
        ]
    );
    assert!(svg.contains(">CPU 0</text>") && svg.contains(">CPU 1</text>"), "{svg}");
}

#[test]
fn a_picture_has_limits() {
    let tracks = (0..7).flat_map(|track| [begin(4, 100, 50 + track, "x"), end(4, 200, 50 + track)]);
    let (svg, said) = drawn(&trace(tracks), "--rows 3");
    assert_eq!(titles(&svg).len(), 3);
    assert!(said.contains("3 rows") && said.contains("4 rows left out, --rows has more"), "{said}");
    assert!(svg.contains("4 rows left out"), "the picture says so, too");
    // Far more slices than pixels.
    let many = (0..30_000).flat_map(|at| [begin(4, at / 10, 5, "x"), end(4, at / 10, 5)]);
    let (svg, _) = drawn(&trace(many), "");
    assert!(svg.len() < 10_000, "{}", svg.len());
    assert!(svg.contains("slices, most: x\n"), "{svg}");
}

#[test]
fn what_cannot_be_drawn_is_said() {
    let bench = Bench::new();
    let whole = trace([begin(4, 100, 5, "x"), end(4, 200, 5)]);
    bench.file("t", &whole.bytes);
    bench.file("nothing", &TraceBuilder::complete().bytes);
    bench.file("none", b"no trace");
    let session_twice = whole.clone().append(&whole);
    bench.file("twice", &session_twice.bytes);
    for (line, code, said) in [
        ("- --timeline o", 2, "name a file"),
        ("t --timeline o --from 2s --to 1s", 2, "--from must be before --to"),
        ("t --timeline o --from 1h", 2, "nothing of the trace is between them, which takes 3.000 s"),
        ("t --timeline o --to 0s", 2, "nothing of the trace is between them"),
        ("t --timeline o --from 1", 2, "needs a unit"),
        ("t --timeline o --json", 2, "cannot be used with"),
        ("t --from 1s", 2, "--timeline"),
        ("nothing --timeline o", 1, "nothing to draw in nothing"),
        ("t --timeline o --from 1s", 1, "nothing to draw in t"),
        ("none --timeline o", 1, "no trace"),
        ("t --timeline no/o", 1, "cannot write no/o"),
    ] {
        let args: Vec<&str> = ["inspect"].into_iter().chain(line.split_whitespace()).collect();
        let (is, _, stderr) = parts(&bench.run(&args));
        assert_eq!(is, code, "{line}: {stderr}");
        assert!(stderr.contains(said), "{line}: {stderr}");
        assert!(!bench.dir.path().join("o").exists(), "{line}");
    }
    let (code, stdout, _) = parts(&bench.run(&["inspect", "t", "--timeline", "-"]));
    assert!(code == 0 && stdout.starts_with("<svg"), "{stdout}");
    let (code, stdout, _) = parts(&bench.run(&["inspect", "twice", "--timeline", "o"]));
    assert!(code == 0 && stdout.contains("the first of 2 sessions"), "{stdout}");
}

/// What is before the damage is drawn.
#[test]
fn a_damaged_trace_is_drawn_and_fails() {
    let bench = Bench::new();
    let whole = trace([begin(4, 100, 5, "x"), end(4, 200, 5)]);
    let cut = [&whole.bytes[..whole.bytes.len() - 30], &[0x0a, 0xff, 0xff]].concat();
    bench.file("cut", &cut);
    let (code, _, stderr) = parts(&bench.run(&["inspect", "cut", "--timeline", "o.svg"]));
    assert!(code == 1 && stderr.contains("damaged"), "{stderr}");
    assert!(fs::read_to_string(bench.dir.path().join("o.svg")).unwrap().contains("x\n100.000 ms"));
    // Garbage in the place of contents never stops the program.
    for at in (0..whole.bytes.len()).step_by(7) {
        let mut bytes = whole.bytes.clone();
        bytes[at] ^= 0xff;
        bench.file("garbled", &bytes);
        let (code, _, stderr) = parts(&bench.run(&["inspect", "garbled", "--timeline", "g.svg"]));
        assert!(code <= 2 && !stderr.contains("panicked"), "byte {at}: {stderr}");
    }
}

/// `ci/pictures` draws them.
#[test]
fn the_guide_has_its_pictures() {
    let documents = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let guide = fs::read_to_string(documents.join("guide.md")).unwrap();
    let embedded: Vec<&str> =
        guide.split("](pictures/").skip(1).map(|rest| rest.split(')').next().unwrap()).collect();
    let mut names: Vec<String> = Vec::new();
    for entry in fs::read_dir(documents.join("pictures")).unwrap() {
        let (path, name) =
            (entry.as_ref().unwrap().path(), entry.unwrap().file_name().into_string().unwrap());
        let svg = fs::read_to_string(path).unwrap();
        assert!(svg.len() <= 60_000 && svg.starts_with("<svg xmlns"), "{name}");
        assert!(embedded.contains(&&name[..]), "{name} is not in the guide");
        // The times of the command that drew it are those of the picture.
        let command =
            guide.lines().find(|line| line.ends_with(&name) || line.contains(&format!("{name} --from")));
        let command = command.unwrap_or_else(|| panic!("no command draws {name}"));
        if let Some((_, times)) = command.split_once("--from ") {
            let seconds = |time: &str| match time.split_once("us") {
                Some((us, _)) => us.parse::<f64>().unwrap() / 1e6,
                None => time.strip_suffix("ms").unwrap().parse::<f64>().unwrap() / 1e3,
            };
            let (from, to) = times.split_once(" --to ").unwrap();
            let said = format!(", {:.6} s to {:.6} s", seconds(from), seconds(to));
            assert!(svg.contains(&said), "{name}: {said}");
        }
        names.push(name);
    }
    assert_eq!(names.len(), 3, "{names:?}");
}
