//! Ids of writers in process: a writer commits before the service has heard of it, so an id is
//! given to another one only when the service has handled the end of the first.

#[path = "support/stopping.rs"]
mod stopping;

use std::sync::mpsc::{self, Sender};
use std::time::{Duration, Instant};

use prost::Message as _;
use stopping::Stopping;
use watershed_client::in_process::{InProcess, InProcessOptions, Sink};
use watershed_client::{Context, DataSource, DataSourceFactory, Wake, WriterSource};
use watershed_wire::protos::trace_config::{BufferConfig, DataSource as SourceConfig};
use watershed_wire::protos::{DataSourceConfig, DataSourceDescriptor, TraceConfig};

const NAME: &str = "test.source";
/// Ids that there are.
const IDS: usize = 32_767;
/// What does not happen within this time never will, however busy the machine is.
const WATCHDOG: Duration = Duration::from_secs(300);

struct Factory(Sender<WriterSource>);

impl DataSourceFactory for Factory {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor {
            name: Some(NAME.to_owned()),
            will_notify_on_start: Some(true),
            ..Default::default()
        }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        self.0.send(cx.writer_source()).map_err(|gone| gone.to_string())?;
        Ok(Box::new(Idle))
    }
}

struct Idle;

impl DataSource for Idle {
    fn start(&mut self, _cx: &mut Context<'_>) -> Wake {
        Wake::Never
    }
}

#[test]
fn an_id_comes_back_when_the_service_has_handled_its_end() {
    let backend = InProcess::new(InProcessOptions::default()).unwrap();
    let (sender, sources) = mpsc::channel();
    backend.register(Box::new(Factory(sender)));
    let source = DataSourceConfig { name: Some(NAME.to_owned()), ..Default::default() };
    let config = TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(4096), ..Default::default() }],
        data_sources: vec![SourceConfig { config: Some(source), ..Default::default() }],
        write_into_file: Some(true),
        file_write_period_ms: Some(100),
        ..Default::default()
    };
    let (entered, writing) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let sink = Sink::writer(Stopping { entered, released });
    let session = backend.start_session(&config.encode_to_vec(), sink).unwrap();
    let source = sources.recv_timeout(WATCHDOG).expect("an instance");
    writing.recv_timeout(WATCHDOG).expect("the file is written");

    for number in 0..IDS {
        assert_ne!(source.create().writer_id(), 0, "writer {number}");
    }
    // The producer's thread has sent what it could.
    let _ = backend.arbiter_stats();
    assert_eq!(source.create().writer_id(), 0, "the service has handled no end");

    drop(release);
    let started = Instant::now();
    while source.create().writer_id() == 0 {
        assert!(started.elapsed() < WATCHDOG, "no id comes back");
        std::thread::yield_now();
    }
    session.stop();
    assert!(session.wait_timeout(WATCHDOG).is_some(), "it was stopped");
}
