//! Traces from the first moment of a program on, whether there is a tracing service by then or not:
//!
//! ```sh
//! cargo run -p watershed-client --example startup &
//! watershed daemon &
//! echo 'buffers { size_kb: 64 } data_sources { config { name: "com.example.startup" } }
//!     duration_ms: 2000' | watershed record --daemon -c - -o startup.pftrace
//! watershed inspect startup.pftrace
//! ```
//!
//! The trace has what the program wrote before the daemon was there. The program ends when its
//! session has, or after a minute without one.

use std::sync::mpsc::{self, Sender};
use std::time::Duration;

use watershed_client::clock::boottime_ns;
use watershed_client::producer::ProducerEvent;
use watershed_client::protos::trace_packet::Data;
use watershed_client::protos::{DataSourceConfig, DataSourceDescriptor, TestEvent, TracePacket};
use watershed_client::remote::{Reconnect, RemoteEvent, RemoteOptions, RemoteProducer};
use watershed_client::{Context, DataSource, DataSourceFactory, Stop, TraceWriter, Wake};

const NAME: &str = "com.example.startup";

/// Gives the program a writer for each instance, and says when one has ended.
struct Factory {
    writers: Sender<TraceWriter>,
    over: Sender<()>,
}

struct Running(Sender<()>);

impl DataSourceFactory for Factory {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor {
            name: Some(NAME.to_owned()),
            will_notify_on_stop: Some(true),
            ..Default::default()
        }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        self.writers.send(cx.create_writer()).map_err(|_| "the program has ended".to_owned())?;
        Ok(Box::new(Running(self.over.clone())))
    }
}

impl DataSource for Running {
    fn start(&mut self, _: &mut Context<'_>) -> Wake {
        Wake::Never
    }

    fn stop(&mut self, _: &mut Context<'_>) -> Stop {
        let _ = self.0.send(());
        Stop::Done
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let step = Duration::from_millis(100);
    let options = RemoteOptions {
        own_memory: true,
        reconnect: Reconnect::Growing { step, longest: step },
        ..RemoteOptions::from_environment()?
    };
    let (writers, new_writers) = mpsc::channel();
    let (over, is_over) = mpsc::channel();
    let lost = over.clone();
    let producer = RemoteProducer::connect(options, move |event| {
        if let RemoteEvent::Producer(ProducerEvent::StartupLost { reason, .. }) = event {
            eprintln!("what was written is lost: {reason}");
            let _ = lost.send(());
        }
    })?;
    producer.register(Box::new(Factory { writers, over }));
    let config = DataSourceConfig { name: Some(NAME.to_owned()), ..Default::default() };
    producer.trace_startup(config, Duration::from_secs(60))?;
    let mut writer = new_writers.recv()?;
    for number in 0_u32.. {
        writer.write_message(&TracePacket {
            timestamp: Some(boottime_ns()),
            data: Some(Data::ForTesting(TestEvent { counter: Some(number.into()), ..Default::default() })),
            ..Default::default()
        });
        if is_over.recv_timeout(Duration::from_millis(20)).is_ok() {
            println!("{} packets written, {} dropped", number + 1, writer.packets_dropped());
            break;
        }
    }
    Ok(())
}
