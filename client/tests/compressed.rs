//! Files that the config wants compressed, in one process.

use std::io::{self, Read as _, Seek as _, Write};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use prost::Message as _;
use watershed_client::in_process::{InProcess, InProcessOptions, Sink};
use watershed_client::{Context, DataSource, DataSourceFactory, Stop, TraceWriter, Wake};
use watershed_wire::protos::trace_config::{BufferConfig, CompressionType, DataSource as SourceConfig};
use watershed_wire::protos::{
    DataSourceConfig, DataSourceDescriptor, TestEvent, Trace, TraceConfig, TracePacket, trace_packet,
};

const NAME: &str = "test.source";
/// More than the memory between writers and service holds, and more than is compressed at once.
const PACKETS: u64 = 10_000;

/// Hands a writer to the test.
struct Factory(Sender<TraceWriter>);

struct Source;

impl DataSourceFactory for Factory {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor { name: Some(NAME.to_owned()), ..Default::default() }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        let _ = self.0.send(cx.create_writer());
        Ok(Box::new(Source))
    }
}

impl DataSource for Source {
    fn start(&mut self, _cx: &mut Context<'_>) -> Wake {
        Wake::Never
    }

    fn flush(&mut self, _cx: &mut Context<'_>) {}

    fn stop(&mut self, _cx: &mut Context<'_>) -> Stop {
        Stop::Done
    }
}

fn backend() -> (InProcess, Receiver<TraceWriter>) {
    let backend = InProcess::new(InProcessOptions::default()).unwrap();
    let (sender, writers) = mpsc::channel();
    backend.register(Box::new(Factory(sender)));
    (backend, writers)
}

/// Writes into its file each so many milliseconds.
fn config(file_write_period_ms: u32) -> Vec<u8> {
    let source = DataSourceConfig { name: Some(NAME.to_owned()), ..Default::default() };
    let config = TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(16 << 10), ..Default::default() }],
        data_sources: vec![SourceConfig { config: Some(source), ..Default::default() }],
        write_into_file: Some(true),
        file_write_period_ms: Some(file_write_period_ms),
        compression_type: Some(CompressionType::Deflate.into()),
        ..Default::default()
    };
    config.encode_to_vec()
}

fn write(writer: &mut TraceWriter, number: u64) {
    let event = TestEvent {
        counter: Some(number),
        str: Some("x".repeat(number as usize % 500)),
        ..Default::default()
    };
    let packet = TracePacket { data: Some(trace_packet::Data::ForTesting(event)), ..Default::default() };
    writer.write_message(&packet);
}

/// The numbers of our packets, all of which were compressed.
#[track_caller]
fn numbers(trace: &[u8]) -> Vec<u64> {
    let wrappers = Trace::decode(trace).unwrap().packet;
    let is_wrapper =
        |packet: &TracePacket| matches!(packet.data, Some(trace_packet::Data::CompressedPackets(_)));
    assert!(wrappers.iter().all(is_wrapper), "all is in packets of packets");
    let packets = watershed_wire::reader::packets(trace).map(|packet| packet.unwrap());
    let packets = packets.map(|packet| TracePacket::decode(&packet[..]).unwrap());
    let numbers = packets.filter_map(|packet| match packet.data {
        Some(trace_packet::Data::ForTesting(event)) => event.counter,
        _ => None,
    });
    numbers.collect()
}

#[test]
fn a_file_is_compressed_as_the_config_says() {
    for file_write_period_ms in [100, 3_600_000] {
        let (backend, writers) = backend();
        let mut file = tempfile::tempfile().unwrap();
        let sink = Sink::File(file.try_clone().unwrap());
        let session = backend.start_session(&config(file_write_period_ms), sink).unwrap();
        let mut writer = writers.recv().unwrap();
        for number in 0..PACKETS {
            write(&mut writer, number);
            if number % 100 == 0 {
                // So that memory does not run full, however slow the machine is.
                writer.flush();
                assert!(session.flush_and_wait(std::time::Duration::from_secs(300)));
            }
        }
        drop(writer);
        session.stop();
        let end = session.wait();
        assert!(end.error.is_none() && end.write_error.is_none(), "{end:?}");
        let mut bytes = Vec::new();
        file.rewind().unwrap();
        file.read_to_end(&mut bytes).unwrap();
        assert_eq!(bytes.len() as u64, end.bytes_written);
        assert_eq!(numbers(&bytes), (0..PACKETS).collect::<Vec<_>>());
    }
}

/// A sink that stops who writes into it, until the test drops its end. What it took comes out when
/// it is dropped.
struct Stopping {
    entered: Sender<()>,
    released: Receiver<()>,
    bytes: Vec<u8>,
    taken: Sender<Vec<u8>>,
}

impl Write for Stopping {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let _ = self.entered.send(());
        let _ = self.released.recv();
        self.bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Drop for Stopping {
    fn drop(&mut self) {
        let _ = self.taken.send(std::mem::take(&mut self.bytes));
    }
}

/// What a step of a file takes nobody else waits for, and a session that is given up meanwhile
/// has its last packets in the file.
#[test]
fn the_service_goes_on_while_a_file_is_compressed() {
    let (backend, writers) = backend();
    let (entered, is_in) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (taken, trace) = mpsc::channel();
    let sink = Sink::writer(Stopping { entered, released, bytes: Vec::new(), taken });
    let session = backend.start_session(&config(100), sink).unwrap();
    let mut writer = writers.recv().unwrap();
    write(&mut writer, 1);
    writer.flush();
    is_in.recv().unwrap();
    assert_eq!(backend.data_source_names(), [NAME], "the service answers");
    write(&mut writer, 2);
    writer.flush();
    assert!(session.flush_and_wait(std::time::Duration::from_secs(300)), "and it takes what is written");
    drop(writer);
    drop(session);
    assert_eq!(backend.data_source_names(), [NAME]);
    drop(release);
    assert_eq!(numbers(&trace.recv().unwrap()), [1, 2]);
}

/// The thread that compresses ends with the backend, behind what it has begun.
#[test]
fn the_end_of_the_backend_leaves_whole_packets() {
    let (backend, writers) = backend();
    let (entered, is_in) = mpsc::channel();
    let (release, released) = mpsc::channel::<()>();
    let (taken, trace) = mpsc::channel();
    let sink = Sink::writer(Stopping { entered, released, bytes: Vec::new(), taken });
    let session = backend.start_session(&config(100), sink).unwrap();
    drop(writers.recv().unwrap());
    is_in.recv().unwrap();
    let ended = Arc::new(Mutex::new(false));
    let ending = std::thread::spawn({
        let ended = Arc::clone(&ended);
        move || {
            drop(backend);
            *ended.lock().unwrap() = true;
        }
    });
    assert_eq!(session.wait().error.as_deref(), Some("the tracing service has ended"));
    assert!(!*ended.lock().unwrap(), "the file is still written");
    drop(release);
    ending.join().unwrap();
    assert_eq!(numbers(&trace.try_recv().unwrap()), []);
}
