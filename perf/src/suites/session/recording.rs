//! One recording: a session in this process whose threads write given packets, and its trace.

use super::Parts;
use crate::measure::WrongAnswer;
use prost::Message as _;
use std::fs::File;
use std::io::Write;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::time::{Duration, Instant};
use watershed_client::in_process::{InProcess, InProcessOptions, Session, Sink};
use watershed_client::{Context, DataSource, DataSourceFactory, TraceWriter, Wake};
use watershed_wire::protos::trace_config::{BufferConfig, DataSource as SourceConfig};
use watershed_wire::protos::{DataSourceConfig, DataSourceDescriptor, TraceConfig};
use watershed_wire::raw::Fields;
use watershed_wire::reader;

/// Larger than what any lap writes: nothing is overwritten.
const BUFFER_KB: u32 = 128 << 10;
/// `BUFFER_EXHAUSTED_STALL_THEN_DROP`: writers wait for memory.
const WAIT_FOR_MEMORY: i32 = 3;
/// The field of a packet that holds a track event.
const TRACK_EVENT: u32 = 11;
const NAME: &str = "perf.session";

/// The target of traces: memory that is kept from lap to lap, as a file's pages are.
#[derive(Clone)]
pub(super) struct Collected(Arc<Mutex<Trace>>);

struct Trace {
    bytes: Vec<u8>,
    file: Option<File>,
}

impl Collected {
    /// A target whose memory has been touched.
    pub(super) fn with_capacity(bytes: usize) -> Self {
        let mut memory = vec![1; bytes];
        memory.clear();
        Self(Arc::new(Mutex::new(Trace { bytes: memory, file: None })))
    }

    /// Checks that the last trace has so many packets of ours with so many bytes, and forgets it.
    pub(super) fn check(&self, packets: u64, bytes: u64, in_file: bool) -> Result<(), WrongAnswer> {
        let mut trace = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if in_file {
            let file = trace.file.take().ok_or("there is no file")?;
            trace.bytes = read_back(file).map_err(|error| error.to_string())?;
        }
        let mut found = (0, 0);
        for packet in reader::packets(&trace.bytes) {
            let packet = packet.map_err(|damage| damage.to_string())?;
            let event = Fields::new(&packet).filter_map(Result::ok).find(|field| field.number == TRACK_EVENT);
            if let Some(body) = event.and_then(|event| event.value.bytes()) {
                // The timestamp, its key, and the event's key and two bytes of length.
                found = (found.0 + 1, found.1 + body.len() as u64 + 13);
            }
        }
        trace.bytes.clear();
        if found == (packets, bytes) {
            Ok(())
        } else {
            Err(format!("(packets, bytes) are {found:?}, not {:?}", (packets, bytes)))
        }
    }
}

fn read_back(mut file: File) -> std::io::Result<Vec<u8>> {
    use std::io::{Read as _, Seek as _};
    let mut bytes = Vec::new();
    file.rewind()?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

impl Write for Collected {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).bytes.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A data source that passes its writers on.
struct Source {
    writers: Sender<TraceWriter>,
    threads: usize,
}

impl DataSourceFactory for Source {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor {
            name: Some(NAME.into()),
            will_notify_on_start: Some(true),
            ..Default::default()
        }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        for _ in 0..self.threads {
            self.writers.send(cx.create_writer()).map_err(|gone| gone.to_string())?;
        }
        Ok(Box::new(Idle))
    }
}

/// The writers' threads do all of the work.
struct Idle;

impl DataSource for Idle {
    fn start(&mut self, _cx: &mut Context<'_>) -> Wake {
        Wake::Never
    }
}

/// A session that has started, and its writers.
pub(super) struct Recording {
    backend: InProcess,
    session: Session,
    writers: Vec<TraceWriter>,
}

impl Recording {
    /// Starts one whose trace goes to `trace`, by way of a file (that is not waited for to reach
    /// the disk) or not.
    pub(super) fn start(threads: usize, to_file: bool, trace: &Collected) -> Result<Self, WrongAnswer> {
        let text = |error: &dyn std::error::Error| error.to_string();
        let (sender, writers) = mpsc::channel();
        let backend = InProcess::new(InProcessOptions::default()).map_err(|error| text(&error))?;
        backend.register(Box::new(Source { writers: sender, threads }));
        let sink = if to_file {
            let file = tempfile::tempfile().map_err(|error| text(&error))?;
            let kept = file.try_clone().map_err(|error| text(&error))?;
            trace.0.lock().unwrap_or_else(PoisonError::into_inner).file = Some(kept);
            Sink::File(file)
        } else {
            Sink::writer(trace.clone())
        };
        let session = backend.start_session(&config(), sink).map_err(|error| text(&error))?;
        if !session.wait_all_started(Duration::from_secs(10)) {
            return Err("the session did not start".into());
        }
        let writers: Vec<TraceWriter> = writers.try_iter().collect();
        if writers.len() != threads {
            return Err(format!("{} writers for {threads} threads", writers.len()));
        }
        Ok(Self { backend, session, writers })
    }

    /// Every thread writes `each` of the packets, then the session is ended.
    pub(super) fn write_and_end(mut self, texts: &[Vec<u8>], each: usize) -> Result<Parts, WrongAnswer> {
        let barrier = Barrier::new(self.writers.len() + 1);
        let start = std::thread::scope(|scope| {
            for mut writer in self.writers.drain(..) {
                let barrier = &barrier;
                scope.spawn(move || {
                    barrier.wait();
                    texts.iter().cycle().take(each).for_each(|packet| writer.write_packet(packet));
                });
            }
            barrier.wait();
            Instant::now()
        });
        let writing = start.elapsed();
        self.session.stop();
        let end = self.session.wait();
        let ending = start.elapsed() - writing;
        if let Some(error) = end.error.clone().or(end.write_error.as_ref().map(ToString::to_string)) {
            return Err(error);
        }
        match self.backend.arbiter_stats().packets_dropped {
            0 => Ok(Parts { writing, ending }),
            dropped => Err(format!("{dropped} packets were dropped by writers that wait")),
        }
    }
}

fn config() -> Vec<u8> {
    let source = DataSourceConfig {
        name: Some(NAME.into()),
        buffer_exhausted_policy: Some(WAIT_FOR_MEMORY),
        ..Default::default()
    };
    let config = TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(BUFFER_KB), ..Default::default() }],
        data_sources: vec![SourceConfig { config: Some(source), ..Default::default() }],
        ..Default::default()
    };
    config.encode_to_vec()
}
