//! Flushes in pieces, over a made-up tracefs of two CPUs.

use std::fs;
use std::io::Seek as _;
use std::path::Path;

use prost::Message as _;
use watershed_client::in_process::{InProcess, InProcessOptions, Sink};
use watershed_client::writer::TraceWriter;
use watershed_client::{Context, DataSource, DataSourceFactory, Stop};
use watershed_wire::protos::ftrace_stats::Phase;
use watershed_wire::protos::trace_config::{BufferConfig, DataSource as SourceConfig};
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{
    DataSourceConfig, DataSourceDescriptor, FtraceConfig, FtraceStats, TraceConfig, TracePacket,
};

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
    hub_with(dir, &TraceWriter::discarding)
}

fn hub_with(dir: &Path, make_writer: &dyn Fn() -> TraceWriter) -> Hub {
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
        write(&format!("per_cpu/cpu{cpu}/stats"), b"entries: 70\noverrun: 8\n");
    }
    let roots = Roots { proc: dir.join("proc"), sys: dir.join("sys") };
    let mut hub = Hub::new(roots, Notices::new(), OnDemand::new());
    hub.pass_max_ns = 0;
    let config = FtraceConfig { ftrace_events: vec!["ftrace/print".to_owned()], ..Default::default() };
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

/// A data source that answers no flush in time.
struct Slow {
    dir: std::path::PathBuf,
    answers: bool,
}

struct SlowInstance {
    hub: Hub,
    answers: bool,
}

impl DataSourceFactory for Slow {
    fn descriptor(&self) -> DataSourceDescriptor {
        let name = Some("slow".to_owned());
        DataSourceDescriptor { name, will_notify_on_stop: Some(true), ..Default::default() }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        let hub = hub_with(&self.dir, &|| cx.create_writer());
        Ok(Box::new(SlowInstance { hub, answers: self.answers }))
    }
}

impl DataSource for SlowInstance {
    fn start(&mut self, _: &mut Context<'_>) -> Wake {
        Wake::Never
    }

    fn flush(&mut self, cx: &mut Context<'_>) {
        assert!(!self.hub.flush(1));
        while self.answers && !self.hub.end_flush(1) {
            self.hub.poll();
        }
        if !self.answers {
            cx.flush_later();
        }
    }

    fn stop(&mut self, _: &mut Context<'_>) -> Stop {
        self.hub.stop(1);
        Stop::Done
    }
}

/// What the kernel counted in the end, each time that the trace tells.
fn counted_at_end(answers: bool) -> Vec<(Option<u64>, Option<u64>)> {
    let dir = tempfile::tempdir().unwrap();
    let backend = InProcess::new(InProcessOptions::default()).unwrap();
    backend.register(Box::new(Slow { dir: dir.path().to_owned(), answers }));
    let source = DataSourceConfig { name: Some("slow".to_owned()), ..Default::default() };
    let config = TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(1024), ..Default::default() }],
        data_sources: vec![SourceConfig { config: Some(source), ..Default::default() }],
        flush_timeout_ms: Some(if answers { 300_000 } else { 1 }),
        duration_ms: Some(1),
        ..Default::default()
    };
    let path = dir.path().join("trace");
    let sink = Sink::File(fs::File::create_new(&path).unwrap());
    let end = backend.start_session(&config.encode_to_vec(), sink).unwrap().wait();
    assert_eq!(end.flush_failed, !answers);
    let trace = fs::read(&path).unwrap();
    let packets =
        watershed_wire::reader::packets(&trace).map(|packet| TracePacket::decode(&packet.unwrap()[..]));
    let stats = packets.filter_map(|packet| match packet.unwrap().data {
        Some(Data::FtraceStats(stats)) if stats.phase() == Phase::EndOfTrace => Some(stats),
        _ => None,
    });
    let first = |stats: FtraceStats| (stats.cpu_stats[0].entries, stats.cpu_stats[0].overrun);
    stats.map(first).collect()
}

#[test]
fn a_stop_tells_what_a_flush_has_not_told() {
    let counted = (Some(70), Some(8));
    assert_eq!(counted_at_end(true), [counted; 2]);
    assert_eq!(counted_at_end(false), [counted]);
}
