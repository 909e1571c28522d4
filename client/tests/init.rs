//! The one line, as a program of its own has it.

use std::path::Path;
use std::process::{Command, Output};

use prost::Message as _;
use watershed_client::instant;
use watershed_client::track_event::Category;
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{InternedData, TracePacket};

static PLAIN: Category = Category::new("plain");
static SLOW: Category = Category::new("heavy").with_tags(&["slow"]);

/// What a started process does. As a test of its own it does nothing.
#[test]
fn program() {
    if std::env::var_os("WATERSHED_TEST_PROGRAM").is_none() {
        return;
    }
    let _tracing = match watershed_client::init() {
        Ok(tracing) => tracing,
        Err(error) => {
            eprintln!("program: {error}");
            std::process::exit(2);
        }
    };
    instant!(PLAIN, "by a macro");
    instant!(SLOW, "seldom wanted");
    tracing::info!(target: "told", "by tracing");
}

fn run(environment: &[(&str, &str)]) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "program", "--nocapture"])
        .env("WATERSHED_TEST_PROGRAM", "1")
        .envs(environment.iter().copied())
        .output()
        .unwrap()
}

/// Names of events, as the trace explains them, and texts that it has in full.
fn names(path: &Path) -> Vec<String> {
    let trace = std::fs::read(path).unwrap();
    let packets = watershed_wire::reader::packets(&trace[..]);
    let packets = packets.map(|packet| TracePacket::decode(&packet.expect("no damage")[..]).unwrap());
    let mut names = Vec::new();
    for packet in packets {
        let InternedData { event_names, .. } = packet.interned_data.unwrap_or_default();
        names.extend(event_names.iter().map(|name| name.name().to_owned()));
        if let Some(Data::TrackEvent(event)) = &packet.data {
            names.extend(event.name().map(str::to_owned));
        }
    }
    names
}

trait DynamicName {
    fn name(&self) -> Option<&str>;
}

impl DynamicName for watershed_wire::protos::TrackEvent {
    fn name(&self) -> Option<&str> {
        use watershed_wire::protos::track_event::NameField;
        match &self.name_field {
            Some(NameField::Name(name)) => Some(name),
            _ => None,
        }
    }
}

#[test]
fn a_program_records_itself_into_a_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("of-%p.pftrace");
    let output = run(&[("WATERSHED_TRACE", path.to_str().unwrap())]);
    assert!(output.status.success(), "{output:?}");
    let files: Vec<_> = std::fs::read_dir(&folder).unwrap().map(|file| file.unwrap().path()).collect();
    let [file] = &files[..] else { panic!("{files:?}") };
    assert!(!file.to_str().unwrap().contains("%p"));
    let mut expected = vec!["by a macro"];
    if cfg!(feature = "tracing") {
        expected.push("by tracing");
    }
    assert_eq!(names(file), expected);
}

#[test]
fn the_environment_chooses_categories() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("trace");
    let output =
        run(&[("WATERSHED_TRACE", path.to_str().unwrap()), ("WATERSHED_TRACE_CATEGORIES", "tag:slow")]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(names(&path), ["seldom wanted"]);
}

#[test]
fn what_cannot_be_is_said() {
    let said = |environment: &[(&str, &str)]| {
        let output = run(environment);
        assert_eq!(output.status.code(), Some(2), "{output:?}");
        String::from_utf8(output.stderr).unwrap()
    };
    let text = said(&[("WATERSHED_TRACE", "/nowhere/trace")]);
    assert!(text.contains("program: WATERSHED_TRACE=/nowhere/trace: No such file or directory"), "{text}");
    let text = said(&[("WATERSHED_TRACE", "/dev/null"), ("WATERSHED_TRACE_BUFFER_KB", "much")]);
    assert!(text.contains("WATERSHED_TRACE_BUFFER_KB=much: not a size in KiB"), "{text}");
}

/// Without a daemon nothing happens, and the program does not wait for one.
#[test]
fn a_program_needs_no_daemon() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("nobody");
    let output = run(&[("PERFETTO_PRODUCER_SOCK_NAME", socket.to_str().unwrap())]);
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
}
