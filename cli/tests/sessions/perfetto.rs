//! Command lines as users of the perfetto command type them.

use crate::service::{Service, config};

#[test]
fn detached_sessions() {
    let service = Service::start();
    service.write("config", &config("unique_session_name: \"own\" bugreport_score: 5"));
    service.ok("record --txt -c config --detach key");
    service.ok("record --is_detached key");
    assert_eq!(service.run("record --is_detached other").code, Some(2));
    service.ok("record --query");
    assert_eq!(service.run("record --query --json").stdout, service.run("query --json").stdout);
    for which in ["--clone-by-name own", "--save-for-bugreport"] {
        service.wait_until("there are readings", |service| {
            service.ok(&format!("record {which} -o clone"));
            service.readings_in("clone") > 0
        });
        std::fs::remove_file(service.path("clone")).unwrap();
        assert_eq!(service.run(&format!("record {which}")).code, Some(2), "-o is missing");
    }
    service.ok("record --attach key --stop -o trace");
    assert!(service.readings_in("trace") > 0);
    for wrong in ["--stop", "--detach a --attach b", "--attach a -c config", "--query -o x"] {
        assert_eq!(service.run(&format!("record {wrong}")).code, Some(2), "{wrong}");
    }
    for other in [
        "--detach k -c config",
        "--attach k -o x",
        "--is_detached k",
        "--clone-by-name own -o x",
        "--save-for-bugreport -o x",
        "--background",
    ] {
        let refused = service.run(&format!("record --json {other}"));
        assert!(refused.code == Some(2) && refused.stderr.contains("cannot be used with"), "{refused:?}");
    }
}

#[test]
fn in_background() {
    let service = Service::start();
    // Joined with another option it was taken for the child's, which began yet another process.
    let joined = service.run("record -dt100ms -o joined");
    assert_eq!(joined.code, Some(0), "{joined:?}");
    service.wait_until("it is written once", |service| {
        std::fs::metadata(service.path("joined")).is_ok_and(|file| file.len() > 0)
    });
    let ended = service.run("record --background -t 1s -b 32mb -o trace");
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert!(ended.stdout.trim().parse::<u32>().is_ok(), "{ended:?}");
    service.wait_until("the trace is there", |service| {
        std::fs::metadata(service.path("trace")).is_ok_and(|file| file.len() > 0)
    });
    service.wait_until("the recording has ended", |service| {
        !std::path::Path::new(&format!("/proc/{}/exe", ended.stdout.trim())).exists()
            && service.readings_in("trace") > 0
    });
}

/// Nobody could send it triggers.
#[test]
fn triggers_need_a_service() {
    let service = Service::start();
    for mode in ["START_TRACING", "STOP_TRACING", "CLONE_SNAPSHOT"] {
        let triggers = format!("trigger_config {{ trigger_mode: {mode} trigger_timeout_ms: 1000 }}");
        service.write("config", &config(&triggers));
        let ended = service.run("record --no-daemon -c config -o trace");
        assert_eq!(ended.code, Some(2), "{ended:?}");
        assert!(ended.stderr.contains("trigger_config"), "{ended:?}");
    }
}
