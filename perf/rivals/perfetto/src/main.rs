//! The suite `session`'s rival: Perfetto's own client library, service and trace buffer in one
//! process.
//!
//! `watershed-rival-perfetto PACKETS EACH THREADS`: PACKETS is a file of packets, each behind its
//! length in four bytes, little endian. For every line on standard input a session of a buffer that
//! nothing is overwritten in is started, each thread writes EACH packets, and the trace is read
//! out. The line in answer has the nanoseconds until the threads have written, the nanoseconds from
//! then until the whole trace was read, and the number of packets in it that have a track event.
//! Writers wait for memory rather than drop.

#![forbid(unsafe_code)]

use perfetto_sdk::data_source::{
    DataSource, DataSourceArgsBuilder, DataSourceBufferExhaustedPolicy, TraceContext,
};
use perfetto_sdk::heap_buffer::HeapBuffer;
use perfetto_sdk::pb_decoder::{PbDecoder, PbDecoderField};
use perfetto_sdk::pb_msg::{PbMsg, PbMsgWriter};
use perfetto_sdk::producer::{Backends, Producer, ProducerInitArgsBuilder};
use perfetto_sdk::protos::config::data_source_config::DataSourceConfig;
use perfetto_sdk::protos::config::trace_config::{
    TraceConfig, TraceConfigBufferConfig, TraceConfigDataSource,
};
use perfetto_sdk::protos::trace::trace_packet::TracePacket;
use perfetto_sdk::tracing_session::TracingSession;
use std::error::Error;
use std::io::{BufRead, Write};
use std::sync::{Arc, Barrier, Mutex};
use std::time::{Duration, Instant};

const NAME: &str = "perf.session";
/// As the suite's own: larger than what any lap writes.
const BUFFER_KB: u32 = 128 << 10;
const FLUSH: Duration = Duration::from_secs(10);
/// The field of a packet that holds a track event, and that of a trace that holds a packet.
const TRACK_EVENT: u32 = 11;
const PACKET: u32 = 1;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [packets, each, threads] = arguments.as_slice() else {
        return Err("usage: watershed-rival-perfetto PACKETS EACH THREADS".into());
    };
    let (packets, each, threads) = (read_packets(packets)?, each.parse()?, threads.parse()?);
    Producer::init(ProducerInitArgsBuilder::new().backends(Backends::IN_PROCESS).build());
    let mut source = DataSource::new();
    let arguments =
        DataSourceArgsBuilder::new().buffer_exhausted_policy(DataSourceBufferExhaustedPolicy::StallAndAbort);
    source.register(NAME, arguments.build())?;
    let trace = Arc::new(Mutex::new(Vec::new()));
    for line in std::io::stdin().lock().lines() {
        line?;
        let (writing, ending) = lap(&source, &packets, each, threads, &trace)?;
        let mut trace = trace.lock().map_err(|_| "a reader panicked")?;
        println!("{} {} {}", writing.as_nanos(), ending.as_nanos(), count(&trace)?);
        std::io::stdout().flush()?;
        trace.clear();
    }
    Ok(())
}

fn read_packets(path: &str) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let bytes = std::fs::read(path)?;
    let (mut rest, mut packets) = (&bytes[..], Vec::new());
    while let Some((length, behind)) = rest.split_first_chunk() {
        let length = u32::from_le_bytes(*length) as usize;
        let (packet, behind) = behind.split_at_checked(length).ok_or("a packet without an end")?;
        packets.push(packet.to_vec());
        rest = behind;
    }
    Ok(packets)
}

/// The time until the threads have written, and from then until the trace is complete.
fn lap(
    source: &DataSource,
    packets: &[Vec<u8>],
    each: usize,
    threads: usize,
    trace: &Arc<Mutex<Vec<u8>>>,
) -> Result<(Duration, Duration), Box<dyn Error>> {
    let mut session = TracingSession::in_process()?;
    session.setup(&config()?);
    session.start_blocking();
    let barrier = Barrier::new(threads + 1);
    let start = std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                barrier.wait();
                for packet in packets.iter().cycle().take(each) {
                    source.trace(|context: &mut TraceContext| {
                        context.add_packet(|message: &mut TracePacket| message.msg.append_bytes(packet));
                    });
                }
                // What this thread's writer still holds belongs to the trace.
                source.trace(|context: &mut TraceContext| context.flush(|| {}));
            });
        }
        barrier.wait();
        Instant::now()
    });
    let writing = start.elapsed();
    session.flush_blocking(FLUSH);
    session.stop_blocking();
    let trace = Arc::clone(trace);
    session.read_trace_blocking(move |data, _end| {
        if let Ok(mut trace) = trace.lock() {
            trace.extend_from_slice(data);
        }
    });
    Ok((writing, start.elapsed() - writing))
}

fn config() -> Result<Vec<u8>, Box<dyn Error>> {
    let writer = PbMsgWriter::new();
    let buffer = HeapBuffer::new(writer.stream_writer());
    let mut message = PbMsg::new(&writer).map_err(|_| "no message")?;
    let mut config = TraceConfig { msg: &mut message };
    config.set_buffers(|buffer: &mut TraceConfigBufferConfig| {
        buffer.set_size_kb(BUFFER_KB);
    });
    config.set_data_sources(|source: &mut TraceConfigDataSource| {
        source.set_config(|config: &mut DataSourceConfig| {
            config.set_name(NAME);
        });
    });
    message.finalize();
    let mut bytes = vec![0; writer.stream_writer().get_written_size()];
    buffer.copy_into(&mut bytes);
    Ok(bytes)
}

/// Packets of a trace that have a track event.
fn count(trace: &[u8]) -> Result<usize, Box<dyn Error>> {
    let mut events = 0;
    for field in PbDecoder::new(trace) {
        let (number, value) = field.map_err(|_| "the trace is damaged")?;
        if let (PACKET, PbDecoderField::Delimited(packet)) = (number, value) {
            let has_event = PbDecoder::new(packet)
                .any(|field| matches!(field, Ok((TRACK_EVENT, PbDecoderField::Delimited(_)))));
            events += usize::from(has_event);
        }
    }
    Ok(events)
}
