//! Commands for the sessions of a running tracing service.

mod clones;
mod flags;
mod flight;
mod perfetto;
#[path = "../support/process.rs"]
mod process;
mod recipes;
mod service;

use rustix::process::Signal;
use service::{Service, config};

const CLONE_TRIGGER: &str = "trigger_config { trigger_mode: CLONE_SNAPSHOT trigger_timeout_ms: 600000 \
                             triggers { name: \"now\" } }";

#[test]
fn a_session_is_left_behind_cloned_and_stopped() {
    let service = Service::start();
    service.write("ring", &config("unique_session_name: \"ring\""));
    service.ok("detach key -c ring");
    let second = service.run("detach key -c ring");
    assert_eq!(second.code, Some(2), "its name is taken: {second:?}");
    service.ok("attach key --check");
    let other = service.run("attach other --check");
    assert_eq!(other.code, Some(1), "{other:?}");
    // Each way to say which.
    for (number, which) in ["", "--name ring", "--id 1"].into_iter().enumerate() {
        let name = format!("clone{number}");
        service.wait_until("there are readings", |service| {
            service.ok(&format!("clone {which} -o {name}"));
            service.readings_in(&name) > 0
        });
    }
    for which in ["--name nobody", "--id 99", "--for-bugreport"] {
        let ended = service.run(&format!("clone {which} -o no"));
        assert_eq!(ended.code, Some(1), "{which}: {ended:?}");
    }
    let without_out = service.run("stop key");
    assert_eq!(without_out.code, Some(2), "{without_out:?}");
    service.ok("stop key -o whole");
    assert!(service.readings_in("whole") >= service.readings_in("clone2"));
    assert_eq!(service.run("stop key -o again").code, Some(1), "it is over");
    assert_eq!(service.run("clone -o again").code, Some(1), "there is nothing to clone");
    let left = std::fs::read_dir(service.path("")).unwrap();
    let left: Vec<String> = left.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    assert!(left.iter().all(|name| !name.contains("partial") && name != "no" && name != "again"), "{left:?}");
}

#[test]
fn a_detached_session_writes_its_file_and_is_cloned_from_it() {
    let service = Service::start();
    service.write("config", &config("file_write_period_ms: 100"));
    service.ok("detach key -c config -o trace");
    service.wait_until("the file is written", |service| service.readings_in("trace") >= 3);
    service.ok("clone -o clone");
    assert!(service.readings_in("clone") >= 3);
    let with_out = service.run("stop key -o other");
    assert_eq!(with_out.code, Some(2), "{with_out:?}");
    let mut waiting = service.spawn("attach key");
    waiting.wait_for("attached");
    waiting.signal(Signal::INT);
    assert_eq!(waiting.code(), Some(0));
    assert!(service.readings_in("trace") >= service.readings_in("clone"));
    // After duration_ms nothing would be left of such a session.
    service.write("short", &config("duration_ms: 1000"));
    let ended = service.run("detach key -c short");
    assert_eq!(ended.code, Some(2), "{ended:?}");
    service.write("wrong", "buffers { size_kb: 0 }");
    let refused = service.run("detach key -c wrong");
    assert_eq!(refused.code, Some(2));
    assert!(refused.stderr.contains("size_kb"), "{refused:?}");
}

#[test]
fn triggers_say_whether_somebody_waits_for_them() {
    let service = Service::start();
    let nobody = service.run("trigger now");
    assert_eq!(nobody.code, Some(1));
    assert!(nobody.stderr.contains("no session takes the trigger \"now\""), "{nobody:?}");
    service.write("config", &config(CLONE_TRIGGER));
    service.ok("detach key -c config");
    service.ok("trigger now");
    let one_of_two = service.run("trigger now later");
    assert_eq!(one_of_two.code, Some(1));
    assert!(one_of_two.stderr.contains("\"later\"") && !one_of_two.stderr.contains("\"now\""));
    service.wait_until("there are readings", |service| {
        service.ok("clone -o clone");
        service.readings_in("clone") > 0
    });
}

#[test]
fn without_a_service_each_command_says_so() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("config"), config("")).unwrap();
    for line in ["clone -o x", "detach k -c config", "attach k -o x", "stop k -o x", "trigger t"] {
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_watershed"));
        command.args(line.split(' ')).current_dir(&folder);
        command.env("PERFETTO_PRODUCER_SOCK_NAME", folder.path().join("p"));
        command.env("PERFETTO_CONSUMER_SOCK_NAME", folder.path().join("c"));
        let output = command.output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{line}: {said}");
        assert!(said.contains("watershed daemon") && !folder.path().join("x").exists(), "{line}: {said}");
    }
}

#[test]
fn losses_can_be_failures() {
    let service = Service::start();
    let absent = "data_sources { config { name: \"of.nobody\" } } duration_ms: 300";
    service.write("all", &config("duration_ms: 300"));
    service.write("some", &config(absent));
    for daemon in ["--daemon", "--no-daemon"] {
        service.ok(&format!("record {daemon} -c all -o all.pftrace --fail-on-loss"));
        let lossy = service.run(&format!("record {daemon} -c some -o some.pftrace"));
        assert_eq!(lossy.code, Some(0), "{lossy:?}");
        assert!(lossy.stderr.matches("of.nobody").count() >= 2, "said again at the end: {lossy:?}");
        let failed = service.run(&format!("record {daemon} -c some -o some.pftrace --fail-on-loss"));
        assert_eq!(failed.code, Some(1), "{failed:?}");
        let inspected = service.run("inspect some.pftrace");
        assert_eq!(inspected.code, Some(0), "{inspected:?}");
        let said = "complete, no data lost, 1 data source that nobody offered";
        assert!(inspected.stdout.contains(said) && inspected.stdout.contains("of.nobody"), "{inspected:?}");
        let failed = service.run("inspect some.pftrace --fail-on-loss");
        assert_eq!(failed.code, Some(1), "{failed:?}");
    }
    service.ok("inspect all.pftrace --fail-on-loss");
}

#[test]
fn what_is_offered_later_is_not_lost() {
    let mut service = Service::without_probes();
    service.write("config", &config(""));
    let mut recording = service.spawn("record --daemon -c config -o trace --fail-on-loss");
    recording.wait_for("nobody offers \"linux.sys_stats\"");
    service.start_probes();
    service.wait_until("there are readings", |service| {
        service.run("clone -o clone").code == Some(0) && service.readings_in("clone") > 0
    });
    recording.signal(Signal::INT);
    assert_eq!(recording.code(), Some(130), "the signal's, and not that of a loss");
    service.ok("inspect trace --fail-on-loss");
    service.ok("inspect clone --fail-on-loss");
}
