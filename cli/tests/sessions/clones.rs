//! `watershed record` of a config whose triggers make a trace each.

use std::fs;

use prost::Message as _;
use rustix::process::Signal;
use watershed_wire::protos::Trace;
use watershed_wire::protos::trace_packet::Data;

use crate::service::{Ended, Service, config};

fn clones(timeout_ms: u32, more: &str) -> String {
    config(&format!(
        "trigger_config {{ trigger_mode: CLONE_SNAPSHOT trigger_timeout_ms: {timeout_ms} \
         triggers {{ name: \"now\" }} triggers {{ name: \"later\" stop_delay_ms: 300 }} }} {more}"
    ))
}

fn names(service: &Service) -> Vec<String> {
    let entries = fs::read_dir(service.path("")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let is_whole = |name: &String| name.starts_with('t') && !name.ends_with(".partial");
    let mut names: Vec<String> = names.filter(is_whole).collect();
    names.sort();
    names
}

/// The triggers that a trace was made for, as it says.
fn triggers(service: &Service, name: &str) -> Vec<String> {
    let trace = Trace::decode(&fs::read(service.path(name)).unwrap()[..]).expect("a valid trace");
    let named = trace.packet.iter().filter_map(|packet| match &packet.data {
        Some(Data::CloneSnapshotTrigger(trigger)) => Some(trigger.trigger_name().to_owned()),
        _ => None,
    });
    named.collect()
}

fn wait_recording(service: &Service) {
    service.wait_until("it is recorded", |service| service.run("query").stdout.contains("STARTED"));
}

fn assert_code(ended: &Ended, code: i32) {
    assert_eq!(ended.code, Some(code), "{ended:?}");
}

#[test]
fn each_trigger_makes_a_trace() {
    let service = Service::start();
    service.write("config", &clones(600_000, ""));
    let mut recording = service.spawn("record --txt -c config -o t.pftrace");
    wait_recording(&service);
    // Those that come while a trace is written wait for it.
    service.ok("trigger now later");
    service.ok("trigger now");
    service.wait_until("three traces", |service| names(service).len() == 3);
    assert_eq!(names(&service), ["t.pftrace.0", "t.pftrace.1", "t.pftrace.2"]);
    let mut of: Vec<String> = names(&service).iter().flat_map(|name| triggers(&service, name)).collect();
    of.sort();
    assert_eq!(of, ["later", "now", "now"]);
    let first = recording.wait_for("t.pftrace.0: ");
    assert!(first.contains("trigger \"now\", ") && first.ends_with("no data lost"), "{first}");
    service.wait_until("there are readings", |service| {
        let number = names(service).len();
        service.ok("trigger now");
        let name = format!("t.pftrace.{number}");
        service.wait_until("one more", |service| service.path(&name).exists());
        service.readings_in(&name) > 0
    });
    service.ok("inspect t.pftrace.3 --fail-on-loss");
    recording.signal(Signal::INT);
    let said = recording.wait_for("triggers in");
    assert!(said.contains(": ") && said.contains("traces in t.pftrace.0 to t.pftrace."), "{said}");
    assert_eq!(recording.code(), Some(130));
    assert!(!service.path("t.pftrace").exists(), "nothing is written without a trigger");
}

#[test]
fn the_summary_of_each_is_a_line_of_json() {
    let service = Service::start();
    // The other way to say it.
    let stop = "trigger_config { trigger_mode: STOP_TRACING use_clone_snapshot_if_available: true \
                trigger_timeout_ms: 2500 triggers { name: \"now\" } }";
    service.write("config", &config(stop));
    let program = env!("CARGO_BIN_EXE_watershed");
    // A trigger that comes right before the end has its trace.
    let ended = service.run(&format!("record --json -c config -o t -- {program} trigger now"));
    assert_code(&ended, 0);
    let lines: Vec<&str> = ended.stdout.lines().collect();
    let [line] = lines[..] else { panic!("{ended:?}") };
    let summary: serde_json::Value = serde_json::from_str(line).unwrap();
    assert_eq!((&summary["file"], &summary["trigger"]), (&"t.0".into(), &"now".into()));
    assert_eq!(summary["bytes"], fs::metadata(service.path("t.0")).unwrap().len());
    assert_eq!(summary["losses"], serde_json::json!([]));
    assert!(ended.stderr.contains("1 trigger in ") && !ended.stderr.contains("t.0: "), "{ended:?}");
}

#[test]
fn without_a_trigger_nothing_is_written() {
    let service = Service::start();
    service.write("config", &clones(500, ""));
    let ended = service.run("record --daemon -c config -o t");
    assert_code(&ended, 0);
    assert!(ended.stderr.contains("no trigger came within"), "{ended:?}");
    service.write("absent", &clones(500, "data_sources { config { name: \"of.nobody\" } }"));
    let ended = service.run("record --daemon -c absent -o t --fail-on-loss");
    assert_code(&ended, 1);
    assert_eq!(ended.stderr.matches("of.nobody").count(), 2, "{ended:?}");
    service.write("file", &clones(500, "write_into_file: true"));
    for (line, code, said) in [
        ("-c config", 2, "-o FILE"),
        ("-c config -o -", 2, "name a file"),
        ("-c config -o none/t", 1, "none/t.0"),
        ("-c file -o t", 2, "write_into_file"),
        ("-c config -t 1s -o t", 2, "duration_ms"),
        ("--no-daemon -c config -o t", 2, "nobody can send triggers"),
    ] {
        let ended = service.run(&format!("record {line}"));
        assert_code(&ended, code);
        assert!(ended.stderr.contains(said), "{line}: {ended:?}");
    }
    assert_eq!(names(&service), [] as [&str; 0]);
}

#[test]
fn what_cannot_be_written_is_said_and_the_others_are() {
    let service = Service::start();
    service.write("config", &clones(600_000, "data_sources { config { name: \"of.nobody\" } }"));
    fs::create_dir(service.path("t.1")).unwrap();
    let mut recording = service.spawn("record -c config -o t --fail-on-loss");
    wait_recording(&service);
    (0..3).for_each(|_| service.ok("trigger now"));
    let lossy = recording.wait_for("what nobody offered: of.nobody");
    assert!(lossy.starts_with("  lost: "), "{lossy}");
    let failed = recording.wait_for("no trace for trigger \"now\"");
    assert!(failed.contains("t.1"), "{failed}");
    service.wait_until("the third is written", |service| service.path("t.2").exists());
    recording.signal(Signal::TERM);
    recording.wait_for("3 triggers in ");
    recording.wait_for("1 of 3 traces could not be written");
    assert_eq!(recording.code(), Some(1));
    let left = fs::read_dir(service.path("")).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(left.into_iter().all(|name| !name.to_string_lossy().ends_with(".partial")));
    assert_eq!(names(&service), ["t.0", "t.1", "t.2"], "t.1 is the folder that was in the way");

    service.write("small", &clones(600_000, ""));
    let mut recording = service.spawn("record -c small -o t --no-clobber");
    recording.wait_for("t.0 is there already");
    assert_eq!(recording.code(), Some(1));
}

#[test]
fn in_background() {
    let service = Service::start();
    service.write("config", &clones(1_500, ""));
    let started = service.run("record -D -c config -o t");
    assert_code(&started, 0);
    service.ok("trigger now");
    let process = format!("/proc/{}/exe", started.stdout.trim());
    service.wait_until("it has ended", |_| !std::path::Path::new(&process).exists());
    assert_eq!(triggers(&service, "t.0"), ["now"]);
}

#[test]
fn the_end_of_the_service_is_a_failure() {
    let mut service = Service::start();
    service.write("config", &clones(600_000, ""));
    let mut recording = service.spawn("record -c config -o t");
    wait_recording(&service);
    service.ok("trigger now");
    recording.wait_for("t.0: ");
    service.stop();
    recording.wait_for("the recording failed: the tracing service is gone");
    assert_eq!(recording.code(), Some(1));
    assert_eq!(triggers(&service, "t.0"), ["now"], "what was written stays");
}
