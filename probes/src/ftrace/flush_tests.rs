//! Flushes in pieces, over a made-up tracefs of two CPUs.

use std::fs;
use std::io::Seek as _;
use std::path::Path;

use watershed_client::writer::TraceWriter;
use watershed_wire::protos::FtraceConfig;

use super::*;

const PAGES: u64 = 100;
/// What a pass reads at least.
const BATCH: u64 = 32;
const PRINT: &str = include_str!("../../tests/formats/6.18-x86_64/print");

/// Pages without a gap, of records that nobody asked for.
fn pages() -> Vec<u8> {
    let mut page = vec![0; 4096];
    page[8..12].copy_from_slice(&4080_u32.to_le_bytes());
    // One record over all of it.
    page[20..24].copy_from_slice(&4076_u32.to_le_bytes());
    page.repeat(PAGES as usize)
}

/// A hub with a session that has started, number 1. Its passes end with the first batch.
fn hub(dir: &Path) -> Hub {
    let root = dir.join("sys/kernel/tracing");
    let write = |file: &str, content: &[u8]| {
        let path = root.join(file);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    };
    fs::create_dir_all(root.join("instances")).unwrap();
    write("trace_clock", b"[boot]");
    write("tracing_on", b"1");
    write("events/ftrace/print/format", PRINT.as_bytes());
    write("events/header_page", include_bytes!("../../tests/pages/6.18-x86_64/whole/header_page"));
    for cpu in 0..2 {
        write(&format!("per_cpu/cpu{cpu}/trace_pipe_raw"), &pages());
    }
    let roots = Roots { proc: dir.join("proc"), sys: dir.join("sys") };
    let mut hub = Hub::new(roots, Notices::new(), OnDemand::new());
    hub.pass_max_ns = 0;
    let config = FtraceConfig { ftrace_events: vec!["ftrace/print".to_owned()], ..Default::default() };
    let make_writer = &TraceWriter::discarding;
    let request = Request { config: &config, tracing_session: 1, make_writer };
    assert_eq!(hub.add(request), Ok(1));
    hub.sessions[0].is_started = true;
    hub
}

/// Pages of each CPU that were read.
fn read(hub: &Hub) -> Vec<u64> {
    let ring = hub.kernel.as_ref().unwrap().top.as_ref().unwrap();
    ring.pipes.iter().map(|pipe| (&pipe.file).stream_position().unwrap() / 4096).collect()
}

#[test]
fn a_flush_takes_as_many_passes_as_it_needs_and_cpus_have_their_turn() {
    let dir = tempfile::tempdir().unwrap();
    let mut hub = hub(dir.path());
    assert!(!hub.flush(1), "there is more than a pass may take");
    assert_eq!(read(&hub), [BATCH, 0]);
    let mut polls = 0;
    while !hub.end_flush(1) {
        assert_eq!(hub.poll(), Wake::After(Duration::ZERO));
        polls += 1;
        assert!(polls != 1 || read(&hub) == [BATCH, BATCH], "the other CPU's turn");
        assert!(polls < 100, "it does not end");
    }
    assert_eq!(read(&hub), [PAGES, PAGES]);
    hub.pass_max_ns = PASS_MAX_NS;
    assert!(hub.flush(1), "nothing is left");
}

#[test]
fn nothing_is_read_any_more_when_no_session_is_left() {
    let dir = tempfile::tempdir().unwrap();
    let mut hub = hub(dir.path());
    assert!(!hub.flush(1));
    hub.remove(1);
    assert!(hub.end_flush(1));
    assert_eq!(hub.poll(), Wake::Never);
    assert!(hub.kernel.is_none());
}
