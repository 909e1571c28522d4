//! A data source of one's own, with packets of one's own schema: a sensor that is read with the
//! period that the session asks for.
//!
//! ```sh
//! cargo run --release -p watershed-client --example custom_source
//! watershed inspect sensor.pftrace
//! ```
//!
//! Packets have a field that the published schema does not have; readers that do not know it leave
//! it out. The example reads its own trace back, by the same schema.

use std::time::Duration;

use prost::Message as _;
use watershed_client::in_process::{InProcess, InProcessOptions, Sink};
use watershed_client::protos::trace_config::{BufferConfig, DataSource as SourceConfig};
use watershed_client::protos::{DataSourceConfig, DataSourceDescriptor, TraceConfig};
use watershed_client::{Context, DataSource, DataSourceFactory, Stop, TraceWriter, Wake};

const NAME: &str = "com.example.sensor";
const FILE: &str = "sensor.pftrace";

/// `TracePacket` as this program extends it. Source of the first number: Perfetto's schema.
#[derive(prost::Message)]
struct SensorPacket {
    /// `TracePacket.timestamp`.
    #[prost(uint64, optional, tag = "8")]
    timestamp_ns: Option<u64>,
    #[prost(message, optional, tag = "9700")]
    reading: Option<Reading>,
}

#[derive(prost::Message)]
struct Reading {
    #[prost(string, tag = "1")]
    sensor: String,
    #[prost(double, tag = "2")]
    celsius: f64,
}

struct Factory;

/// One session's instance.
struct Sensor {
    period: Duration,
    writer: TraceWriter,
    num_readings: u32,
}

impl DataSourceFactory for Factory {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor {
            name: Some(NAME.to_owned()),
            will_notify_on_start: Some(true),
            will_notify_on_stop: Some(true),
            ..Default::default()
        }
    }

    /// A session with a wrong config does not start.
    fn check(&self, config: &DataSourceConfig) -> Result<(), String> {
        period(config).map(drop)
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        let period = period(cx.config())?;
        Ok(Box::new(Sensor { period, writer: cx.create_writer(), num_readings: 0 }))
    }
}

/// The source's own part of the config is a text: `period_ms=10`.
fn period(config: &DataSourceConfig) -> Result<Duration, String> {
    let text = config.legacy_config();
    let period_ms = text.strip_prefix("period_ms=").and_then(|number| number.parse().ok());
    let wrong = || format!("legacy_config: {text:?} is not `period_ms=` and a number of milliseconds");
    period_ms.filter(|&period_ms| period_ms > 0).map(Duration::from_millis).ok_or_else(wrong)
}

impl DataSource for Sensor {
    fn start(&mut self, _: &mut Context<'_>) -> Wake {
        Wake::EveryNext(self.period)
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Wake {
        self.num_readings += 1;
        let celsius = 20.0 + f64::from(self.num_readings % 10) / 10.0;
        let reading = Reading { sensor: "board".to_owned(), celsius };
        let packet = SensorPacket { timestamp_ns: Some(cx.boottime_ns()), reading: Some(reading) };
        self.writer.write_packet(&packet.encode_to_vec());
        Wake::EveryNext(self.period)
    }

    fn flush(&mut self, _: &mut Context<'_>) {
        self.writer.flush();
    }

    fn stop(&mut self, _: &mut Context<'_>) -> Stop {
        Stop::Done
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let backend = InProcess::new(InProcessOptions::default())?;
    backend.register(Box::new(Factory));
    let source = DataSourceConfig {
        name: Some(NAME.to_owned()),
        legacy_config: Some("period_ms=10".to_owned()),
        ..Default::default()
    };
    let config = TraceConfig {
        buffers: vec![BufferConfig { size_kb: Some(1024), ..Default::default() }],
        data_sources: vec![SourceConfig { config: Some(source), ..Default::default() }],
        ..Default::default()
    };
    let file = std::fs::File::create(FILE)?;
    let session = backend.start_session(&config.encode_to_vec(), Sink::File(file))?;
    std::thread::sleep(Duration::from_millis(300));
    session.stop();
    let end = session.wait();
    if let Some(error) = &end.write_error {
        return Err(format!("{FILE}: {error}").into());
    }
    let trace = std::fs::read(FILE)?;
    let mut num_readings = 0;
    for packet in watershed_client::reader::packets(&trace[..]) {
        num_readings += u32::from(SensorPacket::decode(&packet?[..])?.reading.is_some());
    }
    println!("{num_readings} readings are in {FILE}");
    Ok(())
}
