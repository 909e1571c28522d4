//! How a producer connects, and what it tells its program.

use std::time::Duration;

use watershed_shell::address::{Address, AddressError, producer_sockets};
use watershed_smb::SmbSize;

use crate::arbiter::{ArbiterOptions, ArbiterStats};
use crate::producer::{ProducerEvent, program_name};
#[cfg(doc)]
use crate::remote::RemoteProducer;

/// When to try again after a connection ended or could not be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reconnect {
    /// Not at all: the producer stays without a service.
    Never,
    /// After `step`, then after twice, three times `step` and so on, up to `longest`. A connection
    /// that the service has accepted starts over.
    Growing {
        /// The first delay, and what is added for each attempt.
        step: Duration,
        /// The longest delay.
        longest: Duration,
    },
}

impl Default for Reconnect {
    /// 1 s, 2 s, and so on, up to 30 s, as other producers of this format do.
    fn default() -> Self {
        Self::Growing { step: Duration::from_secs(1), longest: Duration::from_secs(30) }
    }
}

impl Reconnect {
    /// The delay before attempt `attempt`, which counts from 1; `None`: never.
    pub(super) fn delay(self, attempt: u32) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::Growing { step, longest } => Some(step.saturating_mul(attempt).min(longest)),
        }
    }
}

/// How a producer connects.
#[derive(Clone, Debug)]
pub struct RemoteOptions {
    /// Where the service may listen. The first that answers is taken.
    pub sockets: Vec<Address>,
    /// Name of the producer: the program's by default.
    pub producer_name: String,
    /// Sizes of the memory between writers and service that are asked for, unless a session's
    /// config asks for others before the first instance is made: 1 MiB in pages of 4 KiB by
    /// default.
    pub smb_size: SmbSize,
    /// The producer makes that memory itself, as a sealed memory file, and offers it: then it can
    /// trace before there is a service ([`RemoteProducer::trace_startup`]). Off by default. Of the
    /// sizes only these count, not a session's. A service that does not take the memory makes its
    /// own, and what was traced by then is lost.
    pub own_memory: bool,
    /// The arbiter's options. Full chunks wait 5 ms for others by default. Whether chunks are
    /// patched in place is not taken from here: the service says whether it supports that.
    pub arbiter: ArbiterOptions,
    /// When to try again.
    pub reconnect: Reconnect,
    /// How long the service may take to accept the producer: 10 s by default. A service that takes
    /// longer is left, which ends the attempt.
    pub accept_timeout: Duration,
}

impl RemoteOptions {
    /// The options of a producer that connects where the environment says
    /// ([`producer_sockets`]).
    ///
    /// # Errors
    ///
    /// [`AddressError`] of what the environment says.
    pub fn from_environment() -> Result<Self, AddressError> {
        Ok(Self::for_sockets(producer_sockets()?))
    }

    /// The options of a producer that connects to one of `sockets`.
    #[must_use]
    pub fn for_sockets(sockets: Vec<Address>) -> Self {
        let batch_commits_duration = crate::producer::BATCH_COMMITS;
        Self {
            sockets,
            producer_name: program_name(),
            smb_size: SmbSize::negotiate(4096, 1 << 20),
            own_memory: false,
            arbiter: ArbiterOptions { batch_commits_duration, ..ArbiterOptions::default() },
            reconnect: Reconnect::default(),
            accept_timeout: Duration::from_secs(10),
        }
    }
}

/// What a producer tells its program.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteEvent {
    /// The service has accepted the producer; its data sources are offered.
    Connected {
        /// Where it listens.
        address: Address,
    },
    /// There is no service, or it does not take this producer.
    NotConnected {
        /// Why.
        reason: String,
        /// When the next attempt is made; `None`: never.
        retry_after: Option<Duration>,
    },
    /// A connection ended. The instances of the data sources are gone, and what their writers are
    /// given is dropped.
    Disconnected {
        /// Why.
        reason: String,
        /// When the next attempt is made; `None`: never.
        retry_after: Option<Duration>,
    },
    /// There is no memory for tracing at startup. The producer goes on with the service's.
    NoOwnMemory {
        /// What the system or the service said.
        reason: String,
    },
    /// A data source's.
    Producer(ProducerEvent),
}

/// What a producer has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteStats {
    /// The arbiter's; zeros before the connection's first instance is made.
    pub arbiter: ArbiterStats,
    /// Times that a service accepted the producer.
    pub connections: u64,
    /// Commands that made no sense, such as memory for the second time.
    pub commands_ignored: u64,
    /// Frames of the service that answered nothing or could not be read.
    pub frames_ignored: u64,
    /// Calls that were not made, since no frame could hold them: a descriptor of 128 KiB.
    pub calls_too_long: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_to_their_limit() {
        let delays = [1, 2, 29, 30, 31, u32::MAX].map(|attempt| Reconnect::default().delay(attempt));
        assert_eq!(delays.map(|delay| delay.unwrap().as_secs()), [1, 2, 29, 30, 30, 30]);
        assert_eq!(Reconnect::Never.delay(1), None);
    }
}
