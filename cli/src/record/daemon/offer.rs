//! This process as a producer of the service: it offers what marks the command.

use std::hash::{BuildHasher as _, RandomState};
use std::sync::mpsc;
use std::time::Duration;

use watershed_client::consumer::Consumer;
use watershed_client::remote::{Reconnect, RemoteEvent, RemoteOptions, RemoteProducer};

use super::super::mark::Mark;

/// How long the service may take to accept a producer and its data source.
const ACCEPT_TIMEOUT: Duration = Duration::from_secs(5);

/// Offers the data source of `mark` to the service of `consumer`. Returns the producer and its
/// name, or why there is none.
pub(super) fn offer(mark: &Mark, consumer: &mut Consumer) -> Result<(RemoteProducer, String), String> {
    let mut options = RemoteOptions::from_environment().map_err(|error| error.to_string())?;
    // In another PID namespace a process may have the same number.
    let random = RandomState::new().hash_one(());
    let name = format!("watershed.record.{}.{random:016x}", std::process::id());
    options.producer_name.clone_from(&name);
    options.reconnect = Reconnect::Never;
    options.accept_timeout = ACCEPT_TIMEOUT;
    let (events, first) = mpsc::channel();
    let producer = RemoteProducer::connect(options, move |event| {
        let connected = match event {
            RemoteEvent::Connected { .. } => Ok(()),
            RemoteEvent::NotConnected { reason, .. } | RemoteEvent::Disconnected { reason, .. } => {
                Err(reason)
            }
            _ => return,
        };
        // Nobody waits for more than the first.
        let _ = events.send(connected);
    })
    .map_err(|error| error.to_string())?;
    let late = || "the tracing service does not accept a producer in time".to_owned();
    first.recv_timeout(ACCEPT_TIMEOUT).map_err(|_| late())??;
    producer.register(mark.factory());
    if !producer.sync(ACCEPT_TIMEOUT) {
        return Err(late());
    }
    // The sockets of producers and of consumers may be those of two services.
    let state = consumer.query_state(false).map_err(|error| error.to_string())?;
    match state.producers.iter().any(|producer| producer.name() == name) {
        true => Ok((producer, name)),
        false => Err("the socket of the producers is that of another tracing service".to_owned()),
    }
}
