//! Names of sockets. Daemon and clients must come to the same names: spec, service 1.1.
//!
//! | | producers | consumers |
//! |---|---|---|
//! | environment | `PERFETTO_PRODUCER_SOCK_NAME`, several with commas | `PERFETTO_CONSUMER_SOCK_NAME` |
//! | in `/run/perfetto`, where that can be entered | `traced-producer.sock` | `traced-consumer.sock` |
//! | else | `/tmp/perfetto-producer` | `/tmp/perfetto-consumer` |
//!
//! On Android both are below `/dev/socket`, where the system's own service listens. A program made
//! for Linux runs there too, so what system it is shows when it runs.

use std::ffi::OsStr;
use std::fmt;
use std::io;
#[cfg(target_os = "android")]
use std::os::android::net::SocketAddrExt as _;
use std::os::fd::OwnedFd;
#[cfg(target_os = "linux")]
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketType};
use thiserror::Error;

/// Environment variable with the producers' socket names.
pub const PRODUCER_VARIABLE: &str = "PERFETTO_PRODUCER_SOCK_NAME";
/// Environment variable with the consumers' socket name.
pub const CONSUMER_VARIABLE: &str = "PERFETTO_CONSUMER_SOCK_NAME";

const RUN_FOLDER: &str = "/run/perfetto";
/// Where Android's init makes the sockets of the services that it starts.
const ANDROID_FOLDER: &str = "/dev/socket";

/// Whether this is an Android system, whatever the program was made for. Below /dev only root makes
/// folders.
#[must_use]
pub fn is_android() -> bool {
    cfg!(target_os = "android") || Path::new(ANDROID_FOLDER).is_dir()
}

/// A Unix socket: a path, or a name in the abstract namespace (written with a leading `@`).
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Address {
    /// A socket file.
    Path(PathBuf),
    /// A name without a file. Linux only.
    Abstract(String),
}

/// An address that is none.
#[derive(Clone, Debug, Error, PartialEq, Eq)]
pub enum AddressError {
    /// The text is empty.
    #[error("a socket's name is empty")]
    Empty,
    /// TCP or vsock.
    #[error("{0:?} is no Unix socket: TCP and vsock are not supported")]
    NotUnix(String),
}

impl Address {
    /// Reads an address as Perfetto's programs do: `@name` is abstract, `vsock://` and `host:port`
    /// are other families, all else is a path.
    ///
    /// # Errors
    ///
    /// [`AddressError`].
    pub fn parse(text: &str) -> Result<Address, AddressError> {
        if let Some(name) = text.strip_prefix('@') {
            return (!name.is_empty()).then(|| Address::Abstract(name.to_owned())).ok_or(AddressError::Empty);
        }
        let is_host_port = text.rsplit_once(':').is_some_and(|(host, port)| {
            !host.contains('/') && !port.is_empty() && port.bytes().all(|b| b.is_ascii_digit())
        });
        match text {
            "" => Err(AddressError::Empty),
            _ if text.starts_with("vsock://") || is_host_port => Err(AddressError::NotUnix(text.to_owned())),
            _ => Ok(Address::Path(text.into())),
        }
    }

    /// The file of the socket, if it has one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        match self {
            Address::Path(path) => Some(path),
            Address::Abstract(_) => None,
        }
    }

    /// Where a socket listens. `None`: at an address without a name.
    #[must_use]
    pub fn of_listener(listener: &UnixListener) -> Option<Address> {
        let address = listener.local_addr().ok()?;
        if let Some(path) = address.as_pathname() {
            return Some(Address::Path(path.to_owned()));
        }
        #[cfg(any(target_os = "linux", target_os = "android"))]
        if let Some(name) = address.as_abstract_name() {
            return Some(Address::Abstract(String::from_utf8_lossy(name).into_owned()));
        }
        None
    }

    fn to_system(&self) -> io::Result<SocketAddr> {
        match self {
            Address::Path(path) => SocketAddr::from_pathname(path),
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Address::Abstract(name) => SocketAddr::from_abstract_name(name),
            #[cfg(not(any(target_os = "linux", target_os = "android")))]
            Address::Abstract(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Connects to whoever listens there.
    ///
    /// # Errors
    ///
    /// The system's refusal.
    pub fn connect(&self) -> io::Result<UnixStream> {
        UnixStream::connect_addr(&self.to_system()?)
    }

    /// As [`Address::connect`], but where that would wait (a service that does not accept and has
    /// its queue full) it fails at once. The socket does not block.
    ///
    /// # Errors
    ///
    /// The system's refusal.
    pub fn connect_now(&self) -> io::Result<UnixStream> {
        let socket = new_socket()?;
        let address = match self {
            Address::Path(path) => SocketAddrUnix::new(path)?,
            #[cfg(any(target_os = "linux", target_os = "android"))]
            Address::Abstract(name) => SocketAddrUnix::new_abstract_name(name.as_bytes())?,
            #[cfg(not(any(target_os = "linux", target_os = "android")))]
            Address::Abstract(_) => return Err(io::ErrorKind::Unsupported.into()),
        };
        net::connect(&socket, &address)?;
        Ok(socket.into())
    }

    /// Listens there.
    ///
    /// # Errors
    ///
    /// The system's refusal: also where a socket file exists.
    pub fn listen(&self) -> io::Result<UnixListener> {
        UnixListener::bind_addr(&self.to_system()?)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Path(path) => path.display().fmt(f),
            Address::Abstract(name) => write!(f, "@{name}"),
        }
    }
}

/// Where producers reach the service.
///
/// # Errors
///
/// [`AddressError`] of what the environment variable says.
pub fn producer_sockets() -> Result<Vec<Address>, AddressError> {
    match std::env::var_os(PRODUCER_VARIABLE).filter(|names| !names.is_empty()) {
        Some(names) => names.to_string_lossy().split(',').map(Address::parse).collect(),
        None => Ok(vec![Address::Path(default_path("producer"))]),
    }
}

/// Where consumers reach the service.
///
/// # Errors
///
/// [`AddressError`] of what the environment variable says.
pub fn consumer_socket() -> Result<Address, AddressError> {
    match std::env::var_os(CONSUMER_VARIABLE).filter(|name| !name.is_empty()) {
        Some(name) => Address::parse(&name.to_string_lossy()),
        None => Ok(Address::Path(default_path("consumer"))),
    }
}

/// A stream socket that does not block and is closed on exec.
#[cfg(any(target_os = "linux", target_os = "android"))]
fn new_socket() -> io::Result<OwnedFd> {
    let flags = net::SocketFlags::CLOEXEC | net::SocketFlags::NONBLOCK;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// A stream socket that does not block and is closed on exec.
#[cfg(not(any(target_os = "linux", target_os = "android")))]
fn new_socket() -> io::Result<OwnedFd> {
    let socket = net::socket(AddressFamily::UNIX, SocketType::STREAM, None)?;
    rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
    rustix::io::ioctl_fionbio(&socket, true)?;
    Ok(socket)
}

fn default_path(peer: &str) -> PathBuf {
    if is_android() {
        return format!("{ANDROID_FOLDER}/traced_{peer}").into();
    }
    let run_folder = OsStr::from_bytes(RUN_FOLDER.as_bytes());
    match rustix::fs::access(run_folder, rustix::fs::Access::EXEC_OK) {
        Ok(()) => format!("{RUN_FOLDER}/traced-{peer}.sock").into(),
        Err(_) => format!("/tmp/perfetto-{peer}").into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_as_others_read_them() {
        for (text, address) in [
            ("/tmp/perfetto-producer", Ok(Address::Path("/tmp/perfetto-producer".into()))),
            ("relative.sock", Ok(Address::Path("relative.sock".into()))),
            ("/tmp/a:1", Ok(Address::Path("/tmp/a:1".into()))),
            ("@name", Ok(Address::Abstract("name".to_owned()))),
            ("@", Err(AddressError::Empty)),
            ("", Err(AddressError::Empty)),
            ("127.0.0.1:20001", Err(AddressError::NotUnix("127.0.0.1:20001".to_owned()))),
            ("vsock://-1:10000", Err(AddressError::NotUnix("vsock://-1:10000".to_owned()))),
        ] {
            assert_eq!(Address::parse(text), address, "{text}");
        }
    }

    #[test]
    fn an_address_is_printed_as_it_is_read() {
        for text in ["/tmp/socket", "@name"] {
            assert_eq!(Address::parse(text).map(|address| address.to_string()).as_deref(), Ok(text));
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn both_kinds_connect() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let name = format!("watershed-test-{}", std::process::id());
        for address in [Address::Path(path), Address::Abstract(name)] {
            assert!(address.connect().is_err(), "nobody listens on {address}");
            assert!(address.connect_now().is_err(), "nobody listens on {address}");
            let listener = address.listen().unwrap();
            assert_eq!(Address::of_listener(&listener).as_ref(), Some(&address));
            let _client = address.connect().unwrap();
            listener.accept().unwrap();
            let _client = address.connect_now().unwrap();
            listener.accept().unwrap();
            net::listen(&listener, 1).unwrap();
            let mut waiting: Vec<_> = (0..8).map(|_| address.connect_now()).collect();
            let refused = waiting.pop().unwrap().unwrap_err();
            assert_eq!(refused.kind(), io::ErrorKind::WouldBlock, "the queue is full: {refused}");
        }
    }
}
