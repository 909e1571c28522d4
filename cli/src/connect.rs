//! The connection of a consumer to a tracing service in another process.

use watershed_client::consumer::{ConnectError, Consumer, ConsumerOptions};
use watershed_shell::address::{self, Address};
use watershed_wire::ipc::messages::{ServiceDataSource, TracingServiceState};

use crate::exit::Failure;

/// The socket that was asked for, or the one where consumers look.
pub(crate) fn socket(given: Option<&Address>) -> Result<Address, Failure> {
    match given {
        Some(socket) => Ok(socket.clone()),
        None => address::consumer_socket()
            .map_err(|error| Failure::usage(format_args!("{}: {error}", address::CONSUMER_VARIABLE))),
    }
}

/// A connection to a service that must be there.
pub(crate) fn connect(socket: &Address) -> Result<Consumer, Failure> {
    Consumer::connect(socket, &ConsumerOptions::default()).map_err(|error| failure(&error))
}

/// What to say when there has to be a connection.
pub(crate) fn failure(error: &ConnectError) -> Failure {
    match error {
        ConnectError::NotRunning { .. } => {
            Failure::failed(format_args!("{error}\n`watershed daemon` starts a tracing service."))
        }
        error => Failure::failed(error),
    }
}

/// The names of the data sources that producers offer to the service, each once.
pub(crate) fn data_source_names(state: &TracingServiceState) -> Vec<String> {
    let mut names: Vec<String> = state.data_sources.iter().map(ServiceDataSource::name).collect();
    names.sort();
    names.dedup();
    names
}
