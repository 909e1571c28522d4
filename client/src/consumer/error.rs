//! What can go wrong on a connection to the service.

use std::io;

use thiserror::Error;
use watershed_wire::ipc::{ConsumerMethod, Failure, InvokeError};

/// Why a call to the service failed. After [`Self::Gone`], [`Self::Protocol`] and
/// [`Self::NoConsumerPort`] the connection is of no more use.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConsumerError {
    /// The service has closed the connection, or has ended.
    #[error("the tracing service is gone{}", .0.as_ref().map_or(String::new(), |error| format!(": {error}")))]
    Gone(Option<io::Error>),
    /// There was no reply in time. It may still come, and is passed over then.
    #[error("the tracing service did not answer {method:?} in time")]
    TimedOut {
        /// What was called.
        method: ConsumerMethod,
    },
    /// Somebody listens and says nothing.
    #[error("whoever listens there does not answer")]
    NoAnswer,
    /// The service does not take what is sent to it.
    #[error("the tracing service does not read what is sent to it")]
    NotReading,
    /// The call failed.
    #[error("{method:?} failed: {failure}")]
    Failed {
        /// What was called.
        method: ConsumerMethod,
        /// Why.
        failure: Failure,
    },
    /// The service does not do what was asked, and says why in its own words.
    #[error("the tracing service refuses: {0}")]
    Refused(String),
    /// The request cannot be sent.
    #[error("the request cannot be sent: {0}")]
    NotSent(#[from] InvokeError),
    /// Whoever listens there has no port for consumers.
    #[error("no port for consumers there: is it the socket of the producers?")]
    NoConsumerPort,
    /// What the service sent is not what the protocol allows, or beyond a limit of this side.
    #[error("the tracing service broke the protocol: {0}")]
    Protocol(String),
    /// What was read could not be written.
    #[error("{0}")]
    Write(#[source] io::Error),
}
