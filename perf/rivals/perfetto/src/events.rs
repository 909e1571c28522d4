//! The suite `client`'s rival: track events through Perfetto's own client library into its own
//! service, in one process.
//!
//! `watershed-rival-perfetto-events TRACE`: for every line `KIND THREADS WARM EACH` on standard
//! input a session is started, each thread does WARM events of that kind and then, timed, EACH, and
//! the whole trace replaces the file TRACE. The line in answer has the nanoseconds of a thread's
//! EACH events, the mean of the threads. Kinds are those of the suite: `instant`, `slice`,
//! `disabled` and `empty`.
//!
//! Ring, shared memory and policy are the suite's: 64 MiB, 4 MiB, and the default, which drops. The
//! library reads the same clock by default, `CLOCK_BOOTTIME`.

#![forbid(unsafe_code)]

#[path = "../../race.rs"]
mod race;

use perfetto_sdk::heap_buffer::HeapBuffer;
use perfetto_sdk::pb_msg::{PbMsg, PbMsgWriter};
use perfetto_sdk::producer::{Backends, Producer, ProducerInitArgsBuilder};
use perfetto_sdk::protos::config::data_source_config::DataSourceConfig;
use perfetto_sdk::protos::config::trace_config::{
    TraceConfig, TraceConfigBufferConfig, TraceConfigDataSource,
};
use perfetto_sdk::protos::config::track_event::track_event_config::TrackEventConfig;
use perfetto_sdk::tracing_session::TracingSession;
use perfetto_sdk::track_event::{EventContext, TrackEvent, TrackEventDebugArg};
use perfetto_sdk::{track_event_begin, track_event_categories, track_event_end, track_event_instant};
use race::{Events, race};
use std::error::Error;
use std::hint::black_box;
use std::io::{BufRead, Write};
use std::sync::{Arc, Mutex};
use std::time::Duration;

track_event_categories! {
    pub mod categories {
        ( "on", "Events that are recorded", [] ),
        ( "off", "Events that are not", [] ),
    }
}

use categories as perfetto_te_ns;

const RING_KB: u32 = 64 << 10;
const SHARED_MEMORY_KB: u32 = 4 << 10;
const FLUSH: Duration = Duration::from_secs(10);

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: watershed-rival-perfetto-events TRACE")?;
    let arguments = ProducerInitArgsBuilder::new().backends(Backends::IN_PROCESS);
    Producer::init(arguments.shmem_size_hint_kb(SHARED_MEMORY_KB).build());
    TrackEvent::init();
    categories::register()?;
    let trace = Arc::new(Mutex::new(Vec::new()));
    for line in std::io::stdin().lock().lines() {
        let line = line?;
        let words: Vec<&str> = line.split_whitespace().collect();
        let &[kind, threads, warm, each] = words.as_slice() else {
            return Err("a line is KIND THREADS WARM EACH".into());
        };
        let run = events(kind)?;
        let took = lap(run, threads.parse()?, warm.parse()?, each.parse()?, &trace)?;
        let mut trace = trace.lock().map_err(|_| "a reader panicked")?;
        std::fs::write(&path, &*trace)?;
        trace.clear();
        println!("{}", took.as_nanos());
        std::io::stdout().flush()?;
    }
    Ok(())
}

/// A loop of so many events.
fn events(kind: &str) -> Result<Events, Box<dyn Error>> {
    Ok(match kind {
        "instant" => |count| (0..count).for_each(|_| track_event_instant!("on", "instant")),
        "slice" => |count| {
            for i in 0..count {
                track_event_begin!("on", "slice", |event: &mut EventContext| {
                    event.add_debug_arg("number", TrackEventDebugArg::Uint64(i));
                    event.add_debug_arg("text", TrackEventDebugArg::String("a string of twenty b"));
                });
                track_event_end!("on");
            }
        },
        "disabled" => |count| {
            for i in 0..count {
                track_event_instant!("off", "instant", |event: &mut EventContext| {
                    event.add_debug_arg("number", TrackEventDebugArg::Uint64(i));
                });
                black_box(i);
            }
        },
        "empty" => |count| {
            (0..count).for_each(|i| {
                black_box(i);
            });
        },
        _ => return Err(format!("no kind of events: {kind:?}").into()),
    })
}

fn lap(
    run: Events,
    threads: u32,
    warm: u64,
    each: u64,
    trace: &Arc<Mutex<Vec<u8>>>,
) -> Result<Duration, Box<dyn Error>> {
    let mut session = TracingSession::in_process()?;
    session.setup(&config()?);
    session.start_blocking();
    let took = race(threads, run, warm, each)?;
    session.flush_blocking(FLUSH);
    session.stop_blocking();
    let trace = Arc::clone(trace);
    session.read_trace_blocking(move |data, _end| {
        if let Ok(mut trace) = trace.lock() {
            trace.extend_from_slice(data);
        }
    });
    Ok(took)
}

fn config() -> Result<Vec<u8>, Box<dyn Error>> {
    let writer = PbMsgWriter::new();
    let buffer = HeapBuffer::new(writer.stream_writer());
    let mut message = PbMsg::new(&writer).map_err(|_| "no message")?;
    let mut config = TraceConfig { msg: &mut message };
    config.set_buffers(|buffer: &mut TraceConfigBufferConfig| {
        buffer.set_size_kb(RING_KB);
    });
    config.set_data_sources(|source: &mut TraceConfigDataSource| {
        source.set_config(|config: &mut DataSourceConfig| {
            config.set_name("track_event");
            config.set_track_event_config(|events: &mut TrackEventConfig| {
                events.set_enabled_categories("on");
                events.set_disabled_categories("*");
            });
        });
    });
    message.finalize();
    let mut bytes = vec![0; writer.stream_writer().get_written_size()];
    buffer.copy_into(&mut bytes);
    Ok(bytes)
}
