//! The consumer side: sessions of a tracing service that runs in another process.
//!
//! ```text
//!   connect ──> enable_tracing ──> start ──> flush ──> disable ──> wait_end ──> read_packets ──> free
//!    │ who owns the      │ config, and a file                         │ also ends    │ not with a file,
//!    │ socket, who       │ if the config has                          │ by itself    │ which the service
//!    │ listens           │ write_into_file                            │              │ writes itself
//! ```
//!
//! Calls block, each for a limited time. What the service sends is not trusted: it ends in an error
//! and never in a panic, and what is kept of it has a limit.
//!
//! ```no_run
//! # use std::io::Write as _;
//! # use std::time::Duration;
//! # use watershed_client::consumer::{Consumer, ConsumerOptions, FLUSH_AT_STOP};
//! # use watershed_wire::framing::Preamble;
//! # fn run(config: &[u8]) -> Result<(), Box<dyn std::error::Error>> {
//! let address = watershed_shell::address::consumer_socket()?;
//! let mut consumer = Consumer::connect(&address, &ConsumerOptions::default())?;
//! consumer.enable_tracing(config, None)?;
//! std::thread::sleep(Duration::from_secs(10));
//! consumer.flush(Duration::from_secs(5), FLUSH_AT_STOP)?;
//! consumer.disable()?;
//! consumer.wait_end(None)?;
//! let mut file = std::io::BufWriter::new(std::fs::File::create("trace.pftrace")?);
//! consumer.read_packets(|packet| {
//!     file.write_all(Preamble::new(packet.len()).as_bytes())?;
//!     file.write_all(packet)
//! })?;
//! # Ok(())
//! # }
//! ```

mod connect;
mod error;
mod events;
mod link;
mod packets;
mod sessions;
mod state;

use std::fs::File;
use std::time::{Duration, Instant};

use watershed_service::FlushFlags;
use watershed_wire::ipc::messages::{EnableTracingRequest, TracingServiceState};
use watershed_wire::ipc::{ConsumerMethod, Event, Failure};
use watershed_wire::protos;
use watershed_wire::{Decode, Encode};

pub use connect::{ConnectError, ConsumerOptions, Trust};
pub use error::ConsumerError;
use events::Observed;
pub use events::{EVENTS_KEPT_MAX, Notice};
pub use link::WakeHandle;
use link::{Arrived, Link};
pub use packets::PACKET_SIZE_BYTES_MAX;
use packets::PacketJoiner;
pub use sessions::{CloneOf, Cloned};
pub use state::STATE_SIZE_BYTES_MAX;
use state::StateJoiner;

/// Flags of the flush before a consumer stops its session: reason 2 (the trace stops), initiator 3
/// (a program's consumer side).
pub const FLUSH_AT_STOP: FlushFlags = FlushFlags(3 << 4 | 2);

/// What a wait for the end of a session has come to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wait {
    /// The session has ended, or it did not start.
    Ended {
        /// What the service has to say if that is on account of an error. Its own text.
        error: Option<String>,
    },
    /// Somebody used the [`WakeHandle`].
    Woken,
    /// Nothing of that happened in time.
    TimedOut,
}

/// A connection to a tracing service, with one session at most. When it is dropped the service
/// frees the session, and with it what was not read.
#[derive(Debug)]
pub struct Consumer {
    link: Link,
    reply_timeout: Duration,
    /// The call that is answered when the session ends.
    session: Option<u64>,
    /// The answer, until somebody asks for it.
    ended: Option<Option<String>>,
    observed: Observed,
}

/// One reply to a call.
struct Reply {
    bytes: Vec<u8>,
    has_more: bool,
}

impl Consumer {
    fn new(link: Link, reply_timeout: Duration) -> Self {
        Consumer { link, reply_timeout, session: None, ended: None, observed: Observed::default() }
    }

    /// Starts a session, or with `deferred_start` makes one ready. `config` is a binary
    /// `TraceConfig`. With `write_into_file`, and without `output_path`, it takes the `file` that
    /// the service writes the trace into, from its present position on.
    ///
    /// Does not wait: a config that the service refuses shows in [`Consumer::wait_end`], at once.
    ///
    /// # Errors
    ///
    /// [`ConsumerError`]. A config that does not fit a frame of 128 KiB cannot be sent.
    pub fn enable_tracing(&mut self, config: &[u8], file: Option<File>) -> Result<(), ConsumerError> {
        let request = EnableTracingRequest::new(config.to_vec());
        let id = self.link.invoke(ConsumerMethod::EnableTracing, &request, file.map(Into::into))?;
        self.session = Some(id);
        self.ended = None;
        self.link.send_all(self.deadline())
    }

    /// Starts a session that was made with `deferred_start`; others are left as they are.
    ///
    /// # Errors
    ///
    /// [`ConsumerError`].
    pub fn start(&mut self) -> Result<(), ConsumerError> {
        self.call(ConsumerMethod::StartTracing, &protos::StartTracingRequest {}).map(drop)
    }

    /// Asks all data sources to hand over what they have, and waits for them. False if one did not
    /// within `timeout` (of 1 ms to 49 days; other values are taken to the nearest), or if the
    /// session is not running.
    ///
    /// # Errors
    ///
    /// [`ConsumerError`].
    pub fn flush(&mut self, timeout: Duration, flags: FlushFlags) -> Result<bool, ConsumerError> {
        let timeout_ms = u32::try_from(timeout.as_millis()).unwrap_or(u32::MAX).max(1);
        let request = protos::FlushRequest { timeout_ms: Some(timeout_ms), flags: Some(flags.0) };
        let deadline = self.deadline() + Duration::from_millis(timeout_ms.into());
        let id = self.link.invoke(ConsumerMethod::Flush, &request, None)?;
        match self.reply(id, ConsumerMethod::Flush, deadline) {
            Ok(_) => Ok(true),
            Err(ConsumerError::Failed { failure: Failure::Rejected, .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Asks for the session's end. Data sources may take time to stop: see [`Consumer::wait_end`].
    ///
    /// # Errors
    ///
    /// [`ConsumerError`].
    pub fn disable(&mut self) -> Result<(), ConsumerError> {
        self.call(ConsumerMethod::DisableTracing, &protos::DisableTracingRequest {}).map(drop)
    }

    /// Waits until the session has ended, for `timeout` at most, or until somebody uses the
    /// [`WakeHandle`]. The end is told once; without a session there is none.
    ///
    /// # Errors
    ///
    /// [`ConsumerError`].
    pub fn wait_end(&mut self, timeout: Option<Duration>) -> Result<Wait, ConsumerError> {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        loop {
            if let Some(error) = self.ended.take() {
                return Ok(Wait::Ended { error });
            }
            match self.link.event(deadline, true)? {
                Arrived::Event(event) => drop(self.take(event, None)?),
                Arrived::Woken => return Ok(Wait::Woken),
                Arrived::TimedOut => return Ok(Wait::TimedOut),
            }
        }
    }

    /// What another thread ends [`Consumer::wait_end`] with.
    #[must_use]
    pub fn wake_handle(&self) -> WakeHandle {
        self.link.wake_handle()
    }

    /// Takes out of the session's buffers what is there by now, and gives it to `on_packet`, packet
    /// by packet, without the preamble that they have in a file. Sessions that write into a file
    /// have nothing to read.
    ///
    /// # Errors
    ///
    /// [`ConsumerError`]; the rest of this read is lost. [`ConsumerError::Write`] is what
    /// `on_packet` gave.
    pub fn read_packets(
        &mut self,
        mut on_packet: impl FnMut(&[u8]) -> std::io::Result<()>,
    ) -> Result<(), ConsumerError> {
        let method = ConsumerMethod::ReadBuffers;
        let id = self.link.invoke(method, &protos::ReadBuffersRequest {}, None)?;
        let mut joiner = PacketJoiner::default();
        loop {
            let reply = self.reply(id, method, self.deadline())?;
            let response: protos::ReadBuffersResponse = decode(method, &reply.bytes)?;
            joiner.take(response, &mut on_packet)?;
            if !reply.has_more {
                return joiner.end();
            }
        }
    }

    /// Gives the session's buffers back; one that runs is ended.
    ///
    /// # Errors
    ///
    /// [`ConsumerError`].
    pub fn free(&mut self) -> Result<(), ConsumerError> {
        self.call(ConsumerMethod::FreeBuffers, &protos::FreeBuffersRequest::default()).map(drop)
    }

    /// The statistics of the session, in any of its states.
    ///
    /// # Errors
    ///
    /// [`ConsumerError`]: the call fails where there is no session.
    pub fn stats(&mut self) -> Result<protos::TraceStats, ConsumerError> {
        let method = ConsumerMethod::GetTraceStats;
        let reply = self.call(method, &protos::GetTraceStatsRequest {})?;
        let response: protos::GetTraceStatsResponse = decode(method, &reply)?;
        Ok(response.trace_stats.unwrap_or_default())
    }

    /// What is registered with the service, and its sessions; with `sessions_only` those alone.
    ///
    /// # Errors
    ///
    /// [`ConsumerError`].
    pub fn query_state(&mut self, sessions_only: bool) -> Result<TracingServiceState, ConsumerError> {
        let method = ConsumerMethod::QueryServiceState;
        let request = protos::QueryServiceStateRequest { sessions_only: Some(sessions_only) };
        let id = self.link.invoke(method, &request, None)?;
        let mut joiner = StateJoiner::default();
        loop {
            let reply = self.reply(id, method, self.deadline())?;
            joiner.take(&reply.bytes)?;
            if !reply.has_more {
                return Ok(joiner.end());
            }
        }
    }

    /// What the service can do.
    ///
    /// # Errors
    ///
    /// [`ConsumerError`].
    pub fn capabilities(&mut self) -> Result<protos::TracingServiceCapabilities, ConsumerError> {
        let method = ConsumerMethod::QueryCapabilities;
        let reply = self.call(method, &protos::QueryCapabilitiesRequest {})?;
        let response: protos::QueryCapabilitiesResponse = decode(method, &reply)?;
        Ok(response.capabilities.unwrap_or_default())
    }

    fn deadline(&self) -> Instant {
        Instant::now() + self.reply_timeout
    }

    /// A call with one reply.
    fn call(&mut self, method: ConsumerMethod, request: &impl Encode) -> Result<Vec<u8>, ConsumerError> {
        let id = self.link.invoke(method, request, None)?;
        self.reply(id, method, self.deadline()).map(|reply| reply.bytes)
    }

    /// Waits for the next reply to a call; takes note of what else arrives.
    fn reply(&mut self, id: u64, method: ConsumerMethod, deadline: Instant) -> Result<Reply, ConsumerError> {
        loop {
            match self.link.event(Some(deadline), false)? {
                Arrived::Event(event) => {
                    if let Some(reply) = self.take(event, Some(id))? {
                        return Ok(reply);
                    }
                }
                Arrived::Woken | Arrived::TimedOut => return Err(ConsumerError::TimedOut { method }),
            }
            // A service that sends other things without end must not be waited for without end.
            if Instant::now() >= deadline {
                return Err(ConsumerError::TimedOut { method });
            }
        }
    }

    /// Takes note of an event, and gives it back if it is what somebody waits for.
    fn take(
        &mut self,
        event: Event<ConsumerMethod>,
        awaited: Option<u64>,
    ) -> Result<Option<Reply>, ConsumerError> {
        match event {
            Event::Bound => Ok(None),
            Event::BindFailed => Err(ConsumerError::NoConsumerPort),
            Event::Reply { request_id, method, has_more, reply } => {
                if has_more && !is_stream(method) {
                    let what = format!("the reply to {method:?} announces another");
                    return Err(ConsumerError::Protocol(what));
                }
                if awaited == Some(request_id) {
                    return Ok(Some(Reply { bytes: reply, has_more }));
                }
                if self.session == Some(request_id) {
                    let end: protos::EnableTracingResponse = decode(method, &reply)?;
                    self.end(end.error.filter(|error| !error.is_empty()));
                } else if method == ConsumerMethod::ObserveEvents {
                    self.observed.take(request_id, decode(method, &reply)?);
                }
                Ok(None)
            }
            Event::Failed { request_id, method, failure } => {
                if awaited == Some(request_id) {
                    return Err(ConsumerError::Failed { method, failure });
                }
                if self.session == Some(request_id) {
                    self.end(Some(failure.to_string()));
                }
                Ok(None)
            }
        }
    }

    fn end(&mut self, error: Option<String>) {
        self.session = None;
        self.ended = Some(error);
    }
}

fn is_stream(method: ConsumerMethod) -> bool {
    use ConsumerMethod::{ObserveEvents, QueryServiceState, ReadBuffers};
    matches!(method, ReadBuffers | ObserveEvents | QueryServiceState)
}

fn decode<M: Decode>(method: ConsumerMethod, reply: &[u8]) -> Result<M, ConsumerError> {
    M::decode(reply).map_err(|error| ConsumerError::Protocol(format!("the reply to {method:?}: {error}")))
}
