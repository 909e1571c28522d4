//! Every flag of the perfetto command, and docs/perfetto-command.md, which says which work.

use std::collections::BTreeMap;

use prost::Message as _;
use watershed_wire::protos;

use crate::service::{Ended, Service, config};

/// What a command line comes to.
enum Outcome {
    /// Exit code 0.
    Works,
    /// Another exit code, for a flag that works.
    Code(i32),
    /// Exit code 2, and these words.
    Refused(&'static str),
}
use Outcome::{Code, Refused, Works};

/// The flags that the help of Perfetto 56.0 lists, in its order, and a command line with each. They
/// run one after the other.
const FLAGS: &[(&[&str], &str, Outcome)] = &[
    (&["--background", "-d"], "--background -t 100ms -o background", Works),
    (&["--background-wait", "-D"], "-D -c short -o waited", Works),
    (&["--notify-fd"], "--notify-fd 1 -c short -o notified", Works),
    (&["--clone"], "--clone 1 -o by-number", Works),
    (&["--clone-by-name"], "--clone-by-name ring -o by-name", Works),
    (&["--clone-for-bugreport"], "--clone-by-name ring --clone-for-bugreport -o unfiltered", Works),
    (&["--config", "-c"], "-c short -o configured", Works),
    (&["--out", "-o"], "-c short --out named", Works),
    (&["--no-clobber"], "-c short --no-clobber -o named", Code(1)),
    (&["--txt"], "--txt -c short -o text", Works),
    (&["--query"], "--query", Works),
    (&["--long"], "--query --long", Works),
    (&["--query-raw"], "--query-raw", Works),
    (&["--add-note"], "-c short --add-note key=a=b --add-note alone -o noted", Works),
    (&["--help", "-h"], "--help", Works),
    (&["--time", "-t"], "-t 100ms -o timed", Works),
    (&["--buffer", "-b"], "-t 100ms -b 32mb -o sized", Works),
    (&["--size", "-s"], "-t 100ms -s 32mb -o limited", Works),
    (&["--app", "-a"], "-a some.app -t 1s -o x", Refused("atrace")),
    (&["--alert-id"], "--alert-id 1 -c short -o x", Refused("statsd")),
    (&["--config-id"], "--config-id 1 -c short -o x", Refused("statsd")),
    (&["--config-uid"], "--config-uid 1 -c short -o x", Refused("statsd")),
    (&["--subscription-id"], "--subscription-id 1 -c short -o x", Refused("statsd")),
    (&["--upload"], "--upload -c short", Refused("-o")),
    (&["--dropbox"], "--dropbox perfetto -c short", Refused("-o")),
    (&["--save-for-bugreport"], "--save-for-bugreport -o for-bugreport", Works),
    (&["--no-guardrails"], "--no-guardrails -c short -o guarded", Works),
    (&["--reset-guardrails"], "--reset-guardrails", Works),
    (&["--detach"], "--detach=second -c short-in-file -o detached", Works),
    (&["--attach"], "--attach=second", Works),
    (&["--stop"], "--attach=ring --stop -o stopped", Works),
    (&["--is_detached"], "--is_detached=ring", Code(2)),
];

/// What the table of the document says of each flag.
fn documented() -> BTreeMap<String, bool> {
    let document = include_str!("../../../docs/perfetto-command.md");
    let rows = document.lines().filter(|line| line.starts_with("| `"));
    let mut flags = BTreeMap::new();
    for row in rows {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let works = match cells[2] {
            "yes" => true,
            "no" => false,
            other => panic!("{row}: {other}"),
        };
        flags.extend(cells[1].split(", ").map(|flag| (flag.trim_matches('`').to_owned(), works)));
    }
    flags
}

#[test]
fn every_flag_does_what_the_document_says() {
    let documented = documented();
    let of_help: Vec<&str> = FLAGS.iter().flat_map(|(names, ..)| names.iter().copied()).collect();
    assert_eq!(documented.len(), of_help.len(), "flags that are not perfetto's: {documented:?}");
    let service = Service::start();
    service.write("short", &config("duration_ms: 300 notes { key: \"own\" }"));
    service.write("short-in-file", &config("duration_ms: 1000 write_into_file: true"));
    service.write("ring", &config("unique_session_name: \"ring\" bugreport_score: 5"));
    service.ok("detach ring -c ring");
    for (names, line, outcome) in FLAGS {
        let ended = service.run(&format!("record {line}"));
        let (code, works) = match outcome {
            Works => (0, true),
            Code(code) => (*code, true),
            Refused(_) => (2, false),
        };
        assert_eq!(ended.code, Some(code), "{line}: {ended:?}");
        if let Refused(words) = outcome {
            let said = &ended.stderr;
            assert!(said.contains(words) && !said.contains("unexpected argument"), "{line}: {said}");
        }
        for name in *names {
            assert_eq!(documented.get(*name), Some(&works), "{name} in the document");
        }
        check(&service, names[0], &ended);
    }
    let atrace = service.run("record -t 1s -o x wm");
    assert!(atrace.code == Some(2) && atrace.stderr.contains("\"wm\""), "{atrace:?}");
    assert!(!service.path("x").exists(), "what is refused leaves no file");
}

fn trace(service: &Service, name: &str) -> protos::Trace {
    protos::Trace::decode(&std::fs::read(service.path(name)).unwrap()[..]).expect("a valid trace")
}

fn trace_config(service: &Service, name: &str) -> protos::TraceConfig {
    let packets = trace(service, name).packet;
    let mut configs = packets.into_iter().filter_map(|packet| match packet.data {
        Some(protos::trace_packet::Data::TraceConfig(config)) => Some(config),
        _ => None,
    });
    configs.next().expect("a trace has its config")
}

/// What a flag is for, beyond an exit code.
fn check(service: &Service, flag: &str, ended: &Ended) {
    match flag {
        "--background" | "--background-wait" => {
            let name = if flag == "--background" { "background" } else { "waited" };
            assert!(ended.stdout.trim().parse::<u32>().is_ok(), "{ended:?}");
            service.wait_until("it is written in background", |service| {
                std::fs::metadata(service.path(name)).is_ok_and(|file| file.len() > 0)
            });
        }
        "--notify-fd" => assert_eq!(ended.stdout, "\0", "all data sources have started"),
        "--no-clobber" => assert!(service.readings_in("named") > 0, "it is still there"),
        "--query-raw" => {
            // The reader of what scripts get: the raw output is no text.
            assert!(ended.stdout.contains("linux.sys_stats"), "{ended:?}");
        }
        "--query" | "--long" => assert!(ended.stdout.contains("linux.sys_stats"), "{ended:?}"),
        "--add-note" => {
            let notes = trace_config(service, "noted").notes;
            let notes: Vec<_> = notes.iter().map(|note| (note.key(), note.value())).collect();
            assert_eq!(notes, [("own", ""), ("key", "a=b"), ("alone", "")]);
        }
        "--buffer" => assert_eq!(trace_config(service, "sized").buffers[0].size_kb(), 32 << 10),
        "--size" => {
            let config = trace_config(service, "limited");
            assert_eq!((config.write_into_file(), config.max_file_size_bytes()), (true, 32 << 20));
        }
        "--time" => assert_eq!(trace_config(service, "timed").duration_ms(), 100),
        "--stop" => assert!(service.readings_in("stopped") > 0),
        _ => {}
    }
}

#[test]
fn a_wait_for_what_never_starts_fails() {
    let service = Service::start();
    let never = "trigger_config { trigger_mode: START_TRACING trigger_timeout_ms: 500 \
                 triggers { name: \"never\" } }";
    service.write("never", &config(never));
    for line in ["-D -c never -o never.pftrace", "-d -c never -o -"] {
        let ended = service.run(&format!("record {line}"));
        assert_ne!(ended.code, Some(0), "{line}: {ended:?}");
    }
    for option in ["-d", "-D"] {
        let wrong = service.run(&format!("record {option} -c nothing -o x"));
        assert!(wrong.code == Some(2) && wrong.stderr.contains("nothing"), "{wrong:?}");
        assert_eq!(wrong.stdout, "", "nothing is begun");
    }
    let told = service.run("record --notify-fd 1 -c never -o never.pftrace");
    assert_eq!(told.stdout, "\u{1}", "{told:?}");
    let closed = service.run("record --notify-fd 999 -c never -o x");
    assert!(closed.code == Some(2) && closed.stderr.contains("notify-fd"), "{closed:?}");
}

#[test]
fn triggers_of_configs() {
    let service = Service::start();
    service.write("activate", "activate_triggers: \"now\"");
    let nobody = service.run("record -c activate -o x");
    assert!(nobody.code == Some(1) && nobody.stderr.contains("\"now\""), "{nobody:?}");
    let stop = "trigger_config { trigger_mode: STOP_TRACING trigger_timeout_ms: 60000 \
                triggers { name: \"now\" stop_delay_ms: 1 } }";
    service.write("stop", &config(stop));
    let mut recording = service.spawn("record --daemon -c stop -o stopped");
    service.wait_until("it is recorded", |service| service.run("query").stdout.contains("STARTED"));
    service.ok("record -c activate");
    assert_eq!(recording.code(), Some(0));
    assert!(service.path("stopped").exists() && !service.path("x").exists());
}
