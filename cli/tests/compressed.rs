//! Compressed trace files of `watershed record`, with its own service and with the daemon.

#[path = "support/mod.rs"]
mod support;

use support::{Dir, Ended, packets};
use watershed_wire::protos::trace_packet::Data;

const CONFIG: &str = r#"buffers { size_kb: 1024 } data_sources { config { name: "linux.sys_stats"
    sys_stats_config { stat_period_ms: 20 stat_counters: STAT_FORK_COUNT } } }
    write_into_file: true file_write_period_ms: 100 "#;

const COMPRESSIONS: [&str; 3] =
    ["compression_type: COMPRESSION_TYPE_DEFLATE", "compression { deflate {} }", "compression { zstd {} }"];

#[track_caller]
fn recorded(dir: &Dir, compression: &str, args: &[&str]) -> Ended {
    dir.write("c", format!("{CONFIG}{compression}"));
    let run = dir.record(&[&["-c", "c", "-o", "t", "-t", "500ms"], args].concat());
    assert_eq!(run.code, Some(0), "{compression}: {}", run.stderr);
    assert!(!run.stderr.contains("warning"), "{compression}: {}", run.stderr);
    let is_wrapper = |data: &Option<Data>| {
        matches!(data, Some(Data::CompressedPackets(_) | Data::ZstdCompressedPackets(_)))
    };
    let outer = packets(&dir.read("t"));
    assert!(outer.iter().all(|packet| is_wrapper(&packet.data)), "{compression}: all is compressed");
    run
}

#[test]
fn files_are_compressed_as_the_config_says() {
    let dir = Dir::new();
    for compression in COMPRESSIONS {
        recorded(&dir, compression, &["--no-daemon"]);
        let inspected = dir.program(&["inspect", "t"]).wait();
        assert_eq!(inspected.code, Some(0), "{compression}: {}", inspected.stderr);
        assert!(inspected.stdout.contains("complete, no data lost"), "{}", inspected.stdout);
    }
}

/// The summary is about what is in the trace, however it is packed.
#[track_caller]
fn assert_counted(dir: &Dir, compression: &str, args: &[&str]) {
    let json = |text: &str| -> serde_json::Value { serde_json::from_str(text).unwrap() };
    let summary = json(&recorded(dir, compression, &[args, &["--json"]].concat()).stdout);
    let inspected = json(&dir.program(&["inspect", "t", "--json"]).wait().stdout);
    assert_eq!(summary["packets"], inspected["packets"]["count"], "{compression}");
    assert_eq!(summary["sequences"], inspected["sequences"].as_array().unwrap().len(), "{compression}");
    assert_eq!(summary["bytes"], inspected["file"]["read_bytes"], "{compression}");
    assert_eq!(summary["losses"], serde_json::json!([]), "{compression}");
}

#[test]
fn the_summary_counts_what_was_compressed() {
    let dir = Dir::new();
    COMPRESSIONS.iter().for_each(|compression| assert_counted(&dir, compression, &["--no-daemon"]));
    let _daemon = dir.daemon();
    let _probes = dir.probes();
    COMPRESSIONS.iter().for_each(|compression| assert_counted(&dir, compression, &["--daemon"]));
}
