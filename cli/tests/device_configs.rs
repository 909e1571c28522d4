//! The configs for Android's own data sources, as `ci/device-kit` packs them: understood, and taken
//! by a service that has no such source.

mod support;

use std::fs;
use std::path::Path;

use support::{Dir, packets};
use watershed_wire::protos::trace_packet::Data;

#[test]
fn a_service_takes_the_configs_for_devices() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../packaging/android");
    let dir = Dir::new();
    let _daemon = dir.daemon();
    let mut configs = 0;
    for entry in fs::read_dir(&folder).expect("they are there") {
        let path = entry.expect("readable").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let config = fs::read_to_string(&path).expect("text");
        let run = dir.record_with_input(&["-c", "-", "-t", "100ms", "-o", "t"], config.as_bytes());
        assert_eq!(run.code, Some(0), "{name}: {}", run.stderr);
        assert!(run.stderr.contains("nobody offers"), "{name}: {}", run.stderr);
        // What only Android's producers understand reaches them.
        let of_trace = packets(&dir.read("t")).into_iter().find_map(|packet| match packet.data {
            Some(Data::TraceConfig(config)) => Some(config),
            _ => None,
        });
        let sources = of_trace.expect("the config is in the trace").data_sources;
        let asked = config.matches("data_sources {").count();
        assert_eq!(sources.len(), asked, "{name}");
        let inspected = dir.program(&["inspect", "--verbose", "t"]).wait().stdout;
        for field in ["collect_power_rails: true", "min_prio: PRIO_INFO", "poll_ms: 250"] {
            assert_eq!(config.contains(field), inspected.contains(field), "{name}: {field}");
        }
        configs += 1;
    }
    assert_eq!(configs, 4);
}
