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
