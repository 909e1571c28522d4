//! The official consumer.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use perfetto_sdk::tracing_session::TracingSession;
use watershed_wire::protos::TraceConfig;

use crate::trace::Trace;
use crate::{config, producer, wait_until};

const FLUSH_TIMEOUT: Duration = Duration::from_secs(10);

pub(crate) struct Session(TracingSession);

impl Session {
    /// Starts a session and waits until the library says that it has started.
    pub(crate) fn start(config: &TraceConfig) -> Session {
        let mut session = TracingSession::system().expect("it is made");
        session.setup(&config::encode(config));
        session.start_blocking();
        Session(session)
    }

    /// Hands the config over. Does not wait: a trigger starts the session.
    pub(crate) fn prepare(config: &TraceConfig) -> Session {
        let mut session = TracingSession::system().expect("it is made");
        session.setup(&config::encode(config));
        session.start_async();
        Session(session)
    }

    /// Starts a session and waits until this process' producer is recorded.
    pub(crate) fn record(config: &TraceConfig) -> Session {
        let session = Session::start(config);
        wait_until("this process is recorded", producer::is_recorded);
        session
    }

    /// Whether every producer answered.
    pub(crate) fn flush(&mut self) -> bool {
        let (tell, told) = std::sync::mpsc::channel();
        let tell = Mutex::new(tell);
        self.0.flush_async(FLUSH_TIMEOUT, move |success| {
            // Nobody waits any more if this fails.
            let _ = tell.lock().expect("no one panics").send(success);
        });
        told.recv_timeout(2 * FLUSH_TIMEOUT).expect("a flush is answered")
    }

    /// Stops it, without reading.
    pub(crate) fn stop(&mut self) {
        self.0.stop_blocking();
    }

    /// What was recorded, after [`Session::stop`].
    pub(crate) fn read(&mut self) -> Trace {
        let bytes = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&bytes);
        self.0.read_trace_blocking(move |piece, _| {
            sink.lock().expect("no one panics").extend_from_slice(piece);
        });
        let bytes = bytes.lock().expect("no one panics");
        Trace::decode(&bytes)
    }

    /// Flushes, stops and reads.
    pub(crate) fn finish(mut self) -> Trace {
        self.0.flush_blocking(FLUSH_TIMEOUT);
        self.stop();
        self.read()
    }
}
