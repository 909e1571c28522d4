//! Triggers for the sessions of a tracing service, from a program that is no data source.

use std::io::{self, Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use watershed_shell::address::Address;
use watershed_wire::framing::FrameTooLong;
use watershed_wire::ipc::{ClientConnection, Event, InvokeError, ProducerMethod};
use watershed_wire::protos::{ActivateTriggersRequest, InitializeConnectionRequest};

/// Why triggers could not be sent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TriggerError {
    /// Nobody listens on any of the sockets.
    #[error("no tracing service on {0}")]
    NotRunning(String),
    /// The connection ended, or the service did not answer in time.
    #[error("the tracing service does not answer: {0}")]
    Connection(#[from] io::Error),
    /// The name is too long to be sent.
    #[error("the trigger cannot be sent: {0}")]
    NotSent(#[from] InvokeError),
    /// What the service sent is not what the protocol allows.
    #[error("the tracing service broke the protocol: {0}")]
    Protocol(#[from] FrameTooLong),
    /// Whoever listens there has no port for producers.
    #[error("no port for producers there: is it the socket of the consumers?")]
    NoProducerPort,
}

/// Sends each trigger to the service on the first of `sockets` that answers, as the producer
/// `producer_name`. Returns for each name whether the service took it. Ours takes a trigger that a
/// session has, has not had too often today, and does not skip by chance; Perfetto's takes all.
///
/// # Errors
///
/// [`TriggerError`]; triggers before the failing one may have been taken.
pub fn activate(
    sockets: &[Address],
    producer_name: &str,
    names: &[String],
    timeout: Duration,
) -> Result<Vec<bool>, TriggerError> {
    let mut connection = Connection::open(sockets, timeout)?;
    let hello =
        InitializeConnectionRequest { producer_name: Some(producer_name.to_owned()), ..Default::default() };
    connection.call(ProducerMethod::InitializeConnection, &hello)?;
    let activate = |name: &String| {
        let request = ActivateTriggersRequest { trigger_names: vec![name.clone()] };
        connection.call(ProducerMethod::ActivateTriggers, &request)
    };
    names.iter().map(activate).collect()
}

struct Connection {
    socket: std::os::unix::net::UnixStream,
    ipc: ClientConnection<ProducerMethod, OwnedFd>,
    deadline: Instant,
}

impl Connection {
    fn open(sockets: &[Address], timeout: Duration) -> Result<Connection, TriggerError> {
        let socket = sockets.iter().find_map(|address| address.connect_now().ok());
        let Some(socket) = socket else {
            let tried: Vec<String> = sockets.iter().map(Address::to_string).collect();
            return Err(TriggerError::NotRunning(tried.join(", ")));
        };
        socket.set_nonblocking(false)?;
        socket.set_write_timeout(Some(timeout))?;
        Ok(Connection { socket, ipc: ClientConnection::bind(), deadline: Instant::now() + timeout })
    }

    /// Whether the service takes the call.
    fn call(
        &mut self,
        method: ProducerMethod,
        request: &impl watershed_wire::Encode,
    ) -> Result<bool, TriggerError> {
        let wanted = self.ipc.invoke(method, request, true)?;
        loop {
            match self.next_event()? {
                Event::Reply { request_id, .. } if request_id == wanted => return Ok(true),
                Event::Failed { request_id, .. } if request_id == wanted => return Ok(false),
                Event::BindFailed => return Err(TriggerError::NoProducerPort),
                _ => {}
            }
        }
    }

    fn next_event(&mut self) -> Result<Event<ProducerMethod>, TriggerError> {
        loop {
            if let Some(event) = self.ipc.poll()? {
                return Ok(event);
            }
            while let Some((bytes, _)) = self.ipc.out().front() {
                let size_bytes = self.socket.write(bytes)?;
                self.ipc.out_mut().consume(size_bytes);
            }
            let left = self.deadline.saturating_duration_since(Instant::now());
            // A time of zero would mean none.
            self.socket.set_read_timeout(Some(left.max(Duration::from_millis(1))))?;
            match self.socket.read(self.ipc.spare())? {
                0 => return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into()),
                size_bytes => self.ipc.received(size_bytes),
            }
        }
    }
}
