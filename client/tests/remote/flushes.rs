//! Flushes that an instance does not finish at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use watershed_client::data_source::{Context, DataSource, DataSourceFactory, Wake};
use watershed_wire::protos::DataSourceDescriptor;

use super::server::Server;
use super::{running, written};

const SLOW: &str = "test.slow";

/// A source that has flushed when it is told so.
#[derive(Clone, Default)]
struct Slow {
    is_done: Arc<AtomicBool>,
}

impl DataSourceFactory for Slow {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor { name: Some(SLOW.to_owned()), ..DataSourceDescriptor::default() }
    }

    fn setup(&mut self, _: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        Ok(Box::new(self.clone()))
    }
}

impl DataSource for Slow {
    fn start(&mut self, _: &mut Context<'_>) -> Wake {
        Wake::Never
    }

    fn flush(&mut self, cx: &mut Context<'_>) {
        cx.flush_later();
    }

    fn poll(&mut self, cx: &mut Context<'_>) -> Wake {
        match self.is_done.load(Ordering::Relaxed) {
            true => cx.flushed(),
            false => return Wake::After(Duration::from_millis(1)),
        }
        Wake::Never
    }
}

#[test]
fn a_flush_that_takes_long_is_answered_in_its_turn_and_holds_up_nothing_else() {
    let server = Server::new();
    let (program, mut client, writer) = running(&server);
    let own = writer.writer_id() + 1;
    let slow = Slow::default();
    program.producer.register(Box::new(slow.clone()));
    client.serve_until(|client| client.registered.len() == 2);
    client.set_up_instance(2, SLOW);
    client.flush(5, 2);
    client.flush(6, 1);
    client.serve_until(|client| written(client, own) == [b"flush"]);
    assert_eq!(client.flushed, [0; 0], "an answer to 6 would be one to 5 too");
    slow.is_done.store(true, Ordering::Relaxed);
    client.serve_until(|client| client.flushed == [5, 6]);

    // Nobody waits any more for what has been stopped.
    slow.is_done.store(false, Ordering::Relaxed);
    client.flush(7, 2);
    client.stop(2);
    client.serve_until(|client| client.flushed == [5, 6, 7]);
}
