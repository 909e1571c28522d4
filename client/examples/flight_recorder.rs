//! A flight recorder: the program always traces into a ring in its own memory, and what happened
//! before a panic is written into a file by its panic hook.
//!
//! ```sh
//! cargo run --release -p watershed-client --example flight_recorder
//! watershed inspect flight.pftrace
//! ```

use std::sync::Arc;

use watershed_client::in_process::{InProcess, InProcessOptions, Session, Sink};
use watershed_client::protos::trace_config::{BufferConfig, DataSource, IncrementalStateConfig};
use watershed_client::protos::{DataSourceConfig, TraceConfig};
use watershed_client::track_event::{self, Category};
use watershed_client::{Encode as _, instant, slice};

static STEPS: Category = Category::new("steps");

/// What is kept: the newest so many KiB.
const RING_KB: u32 = 128;
const FILE: &str = "flight.pftrace";

fn start(backend: &InProcess) -> Result<Session, Box<dyn std::error::Error>> {
    backend.register(track_event::data_source());
    let config = DataSourceConfig { name: Some(track_event::NAME.to_owned()), ..Default::default() };
    let config = TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(RING_KB), ..Default::default() }],
        data_sources: vec![DataSource { config: Some(config), ..Default::default() }],
        // What a reader needs is said anew four times a second: the ring forgets the begin.
        incremental_state_config: Some(IncrementalStateConfig { clear_period_ms: Some(250) }),
        ..Default::default()
    };
    Ok(backend.start_session(&config.encode_to_vec(), Sink::Buffers)?)
}

fn write_snapshot(session: &Session) -> std::io::Result<()> {
    session.stop();
    let _ = session.wait();
    let mut trace = Vec::new();
    while session.read(&mut trace) {}
    std::fs::write(FILE, trace)
}

fn step(number: u64) {
    let _slice = slice!(STEPS, "step", number);
    instant!(STEPS, "half", number);
    std::thread::sleep(std::time::Duration::from_micros(100));
    assert!(number < 10_000, "the program has a fault at its ten thousandth step");
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = InProcess::new(InProcessOptions::default())?;
    let session = Arc::new(start(&backend)?);
    let _ = session.wait_all_started(std::time::Duration::from_secs(10));
    let of_hook = Arc::clone(&session);
    let default_hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        default_hook(panic);
        instant!(STEPS, "panic", what = track_event::display(panic));
        match write_snapshot(&of_hook) {
            Ok(()) => eprintln!("what happened before is in {FILE}"),
            Err(error) => eprintln!("{FILE}: {error}"),
        }
    }));
    let steps = std::thread::Builder::new().name("steps".to_owned()).spawn(|| (0..=10_000).for_each(step))?;
    // The panic is the end of this example, and has been reported.
    let _ = steps.join();
    Ok(())
}
