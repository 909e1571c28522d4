//! What the end of a session says: what was lost on the way into its sink, and what was not.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Condvar, Mutex};
use std::time::Duration;

use prost::Message;
use watershed_client::in_process::{InProcess, InProcessOptions, SessionEnd, Sink};
use watershed_client::{Context, DataSource, DataSourceFactory, Stop, TraceWriter, Wake};
use watershed_wire::protos::trace_config::{BufferConfig, DataSource as SourceConfig};
use watershed_wire::protos::{
    DataSourceConfig, DataSourceDescriptor, TestEvent, Trace, TraceConfig, TracePacket, trace_packet,
};

const NAME: &str = "test.source";

/// Holds up a data source while it is closed.
#[derive(Default)]
struct Gate {
    is_closed: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    fn set(&self, is_closed: bool) {
        *self.is_closed.lock().unwrap() = is_closed;
        self.opened.notify_all();
    }

    fn pass(&self) {
        drop(self.opened.wait_while(self.is_closed.lock().unwrap(), |is_closed| *is_closed).unwrap());
    }
}

/// Hands a writer to the test when it is set up, and passes the gate when it is flushed.
struct Factory {
    writers: Sender<TraceWriter>,
    flushes: Arc<Gate>,
}

struct Source {
    writer: TraceWriter,
    flushes: Arc<Gate>,
}

impl DataSourceFactory for Factory {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor {
            name: Some(NAME.to_owned()),
            will_notify_on_stop: Some(true),
            ..Default::default()
        }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        let _ = self.writers.send(cx.create_writer());
        Ok(Box::new(Source { writer: cx.create_writer(), flushes: self.flushes.clone() }))
    }
}

impl DataSource for Source {
    fn start(&mut self, _cx: &mut Context<'_>) -> Wake {
        Wake::Never
    }

    fn flush(&mut self, _cx: &mut Context<'_>) {
        self.flushes.pass();
    }

    fn stop(&mut self, _cx: &mut Context<'_>) -> Stop {
        self.writer.write_message(&packet("last"));
        Stop::Done
    }
}

fn packet(text: &str) -> TracePacket {
    let event = TestEvent { str: Some(text.to_owned()), ..Default::default() };
    TracePacket { data: Some(trace_packet::Data::ForTesting(event)), ..Default::default() }
}

struct Setup {
    backend: InProcess,
    writers: Receiver<TraceWriter>,
    flushes: Arc<Gate>,
}

fn backend() -> Setup {
    let backend = InProcess::new(InProcessOptions::default()).unwrap();
    let (sender, writers) = mpsc::channel();
    let flushes = Arc::<Gate>::default();
    backend.register(Box::new(Factory { writers: sender, flushes: flushes.clone() }));
    Setup { backend, writers, flushes }
}

fn config() -> TraceConfig {
    let config = DataSourceConfig { name: Some(NAME.to_owned()), ..Default::default() };
    TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(4096), ..Default::default() }],
        data_sources: vec![SourceConfig { config: Some(config), ..Default::default() }],
        ..Default::default()
    }
}

/// Records what `write` writes. What is in the file, and what the end says.
fn record(config: &TraceConfig, write: impl FnOnce(&mut TraceWriter)) -> (Vec<String>, Arc<SessionEnd>) {
    let Setup { backend, writers, .. } = backend();
    let mut file = tempfile::tempfile().unwrap();
    let session =
        backend.start_session(&config.encode_to_vec(), Sink::File(file.try_clone().unwrap())).unwrap();
    let mut writer = writers.recv().unwrap();
    write(&mut writer);
    drop(writer);
    session.stop();
    let end = session.wait();
    let mut bytes = Vec::new();
    std::io::Seek::rewind(&mut file).unwrap();
    std::io::Read::read_to_end(&mut file, &mut bytes).unwrap();
    assert_eq!(bytes.len() as u64, end.bytes_written);
    let texts =
        Trace::decode(&bytes[..]).unwrap().packet.into_iter().filter_map(|packet| match packet.data {
            Some(trace_packet::Data::ForTesting(event)) => event.str,
            _ => None,
        });
    (texts.collect(), end)
}

#[test]
fn a_full_file_says_how_much_is_left_out() {
    for max_file_size_bytes in [1, 2000, 10_000] {
        let config = TraceConfig {
            write_into_file: Some(true),
            file_write_period_ms: Some(3_600_000),
            max_file_size_bytes: Some(max_file_size_bytes),
            ..config()
        };
        let (texts, end) = record(&config, |writer| {
            (0..100).for_each(|_| writer.write_message(&packet(&"t".repeat(200))));
        });
        let left = end.left_out.expect("the file is full");
        // The last one is the data source's own.
        assert_eq!((texts.len() as u64 + left.packets, end.error.as_deref()), (101, None));
        assert!(left.packets > 40 && left.bytes > 200 * (left.packets - 1), "{left:?}");
        assert!(end.bytes_written < max_file_size_bytes);
        let nothing_else = end.stats.as_ref().unwrap().buffer_stats[0].chunks_overwritten();
        assert_eq!((nothing_else, end.flush_failed), (0, false));
    }
    // Nothing is left out where everything fits, and where there is no limit.
    let fits = TraceConfig {
        write_into_file: Some(true),
        file_write_period_ms: Some(3_600_000),
        max_file_size_bytes: Some(1 << 20),
        ..config()
    };
    for config in [fits, config()] {
        let (texts, end) = record(&config, |writer| writer.write_message(&packet("one")));
        assert_eq!((texts.as_slice(), end.left_out), (&["one".to_owned(), "last".to_owned()][..], None));
    }
}

/// What is found to be invalid only on its way out counts too.
#[test]
fn statistics_are_those_after_the_read() {
    let (texts, end) = record(&config(), |writer| {
        // A packet that claims to be of uid 1, which only the service may say.
        writer.write_packet(&[0x18, 1]);
        writer.write_message(&packet("valid"));
    });
    assert_eq!(texts, ["valid", "last"]);
    assert_eq!(end.stats.as_ref().unwrap().invalid_packets(), 1);
}

#[test]
fn a_last_flush_that_nobody_answers_is_told() {
    let Setup { backend, flushes, .. } = backend();
    let config =
        TraceConfig { flush_timeout_ms: Some(50), data_source_stop_timeout_ms: Some(50), ..config() };
    for duration_ms in [None, Some(1)] {
        let config = TraceConfig { duration_ms, ..config.clone() };
        let (_, answered) = record(&TraceConfig { flush_timeout_ms: None, ..config.clone() }, |_| {});
        assert!(!answered.flush_failed);
        flushes.set(true);
        let session = backend.start_session(&config.encode_to_vec(), Sink::writer(Vec::new())).unwrap();
        if duration_ms.is_none() {
            session.stop();
        }
        let end = session.wait_timeout(Duration::from_secs(300));
        // First, or a failure would wait for the producer's thread for ever.
        flushes.set(false);
        let end = end.expect("nobody is waited for");
        assert!(end.flush_failed, "{end:?}");
    }
}
