//! `watershed flightrecorder`, and the recipes of docs/flight-recorder.md.

use std::fs;

use rustix::process::Signal;

use crate::recipes::{self, until};
use crate::service::{Service, config};

/// Names of the traces in a folder, the oldest first.
fn traces(service: &Service, folder: &str) -> Vec<String> {
    let entries = fs::read_dir(service.path(folder)).into_iter().flatten();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|name| name.ends_with(".pftrace")).collect();
    names.sort();
    names
}

#[test]
fn each_event_makes_a_trace_and_the_oldest_goes() {
    let service = Service::start();
    fs::create_dir(service.path("out")).unwrap();
    service.write("out/flight-left-over.pftrace.1.partial", "");
    service.write("out/of-others.pftrace", "stays");
    let mut recorder = service.spawn("flightrecorder -b 8MB --keep 2 --on-trigger a/b --on-trigger c -o out");
    recorder.wait_for("recording");
    let mut seen: Vec<String> = Vec::new();
    let newest = |service: &Service| {
        traces(service, "out").into_iter().rfind(|name| name.starts_with("flight-")).unwrap_or_default()
    };
    for why in ["a/b", "signal", "c"] {
        match why {
            "signal" => recorder.signal(Signal::USR1),
            trigger => service.ok(&format!("trigger {trigger}")),
        }
        let ending = format!("-{}.pftrace", why.replace('/', "_"));
        service.wait_until(&ending, |service| newest(service).ends_with(&ending));
        seen.push(newest(&service));
    }
    service.wait_until("the oldest is removed", |service| traces(service, "out").len() == 3);
    assert_eq!(traces(&service, "out"), [&seen[1], &seen[2], "of-others.pftrace"]);
    service.wait_until("there are readings", |service| {
        service.ok("clone --name flightrecorder -o clone");
        service.readings_in("clone") > 0
    });
    assert_eq!(service.run("trigger other").code, Some(1));
    let second = service.run("flightrecorder -o other");
    assert_eq!(second.code, Some(2), "its name is taken: {second:?}");
    recorder.signal(Signal::TERM);
    assert_eq!(recorder.code(), Some(0));
    assert!(!service.path("out/flight-left-over.pftrace.1.partial").exists());
}

#[test]
fn a_session_that_others_stop_is_begun_again() {
    let service = Service::start();
    let limit =
        "trigger_config { trigger_mode: CLONE_SNAPSHOT trigger_timeout_ms: 1500 triggers { name: \"t\" } }";
    service.write("config", &config(limit));
    let mut recorder = service.spawn("flightrecorder -c config -o out");
    recorder.wait_for("another one records");
    service.ok("trigger t");
    service.wait_until("a trace", |service| !traces(service, "out").is_empty());
    recorder.signal(Signal::INT);
    assert_eq!(recorder.code(), Some(0));
}

#[test]
fn configs_of_other_sessions_are_refused() {
    let service = Service::start();
    for (more, said) in [
        ("duration_ms: 1000", "duration_ms"),
        ("write_into_file: true", "write_into_file"),
        ("trigger_config { trigger_mode: STOP_TRACING trigger_timeout_ms: 1000 }", "CLONE_SNAPSHOT"),
        ("deferred_start: 7", "line 3"),
    ] {
        service.write("config", &config(more));
        let ended = service.run("flightrecorder -c config -o out");
        assert_eq!(ended.code, Some(2), "{more}: {ended:?}");
        assert!(ended.stderr.contains(said), "{more}: {ended:?}");
    }
    assert_eq!(service.run("flightrecorder --keep 0 -o out").code, Some(2));
}

#[test]
fn the_recipes_work() {
    let shown = [
        until("watershed query | grep -q ' flightrecorder$'"),
        until("ls traces/flight-*-oops.pftrace"),
        until("ls traces/flight-*-signal.pftrace"),
        "test -s now.pftrace".to_owned(),
        String::new(),
        until("watershed query | grep -q ' requests$'"),
        until("ls requests/flight-*-slow-request.pftrace") + "\nkill $recorder; wait $recorder",
    ];
    let service = Service::start();
    assert!(recipes::run("../docs/flight-recorder.md", &service.path(""), &shown).is_empty());
}
