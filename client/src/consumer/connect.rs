//! How a consumer comes to its connection, and whom it talks to.
//!
//! A consumer hands its config, and perhaps a file, to whoever listens. In `/tmp` anybody can put a
//! socket under the name that the service has elsewhere. So the owner of the socket file and the
//! user who listens both have to be root or this process's own user, unless the caller says
//! otherwise.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use thiserror::Error;
use watershed_shell::address::{Address, is_android};
use watershed_shell::socket::peer_credentials;
use watershed_wire::ipc::Event;

use super::Consumer;
use super::error::ConsumerError;
use super::link::{Arrived, Link};

const ROOT_UID: u32 = 0;

/// Whose service is talked to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// Root's, and that of this process's own user.
    #[default]
    RootOrSelf,
    /// Anybody's.
    Anybody,
}

/// How a consumer connects.
#[derive(Clone, Debug)]
pub struct ConsumerOptions {
    /// Whose service is talked to.
    pub trust: Trust,
    /// How long one answer of the service is waited for, beyond what was asked to take time: 10 s
    /// by default.
    pub reply_timeout: Duration,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        ConsumerOptions { trust: Trust::default(), reply_timeout: Duration::from_secs(10) }
    }
}

/// Why there is no connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// Nobody listens.
    #[error("no tracing service on {address}: {error}")]
    NotRunning {
        /// Which socket.
        address: Address,
        /// The system's answer.
        error: io::Error,
    },
    /// The socket is there but may not be used, or the system has no room for it.
    #[error("cannot connect to {address}: {error}")]
    Refused {
        /// Which socket.
        address: Address,
        /// The system's answer.
        error: io::Error,
    },
    /// The socket or who listens is somebody else's.
    #[error("{address} is not trusted: it belongs to uid {uid}, which is neither root nor you")]
    NotTrusted {
        /// Which socket.
        address: Address,
        /// Whose.
        uid: u32,
    },
    /// Somebody listens, but it is no tracing service that works.
    #[error("{address}: {error}")]
    NoService {
        /// Which socket.
        address: Address,
        /// What happened.
        error: ConsumerError,
    },
}

impl Consumer {
    /// Connects, and waits until the service has answered.
    ///
    /// # Errors
    ///
    /// [`ConnectError`].
    pub fn connect(address: &Address, options: &ConsumerOptions) -> Result<Self, ConnectError> {
        let refused = |error: io::Error| {
            let address = address.clone();
            match error.kind() {
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    ConnectError::NotRunning { address, error }
                }
                _ => ConnectError::Refused { address, error },
            }
        };
        let not_trusted = |uid| ConnectError::NotTrusted { address: address.clone(), uid };
        let mut users = Users::default();
        if let Some(path) = address.path() {
            users.of_file = owners(path).map_err(refused)?;
            users.check(options.trust).map_err(not_trusted)?;
        }
        let socket = address.connect_now().map_err(refused)?;
        users.listens = Some(peer_credentials(&socket).map_err(refused)?.uid);
        users.check(options.trust).map_err(not_trusted)?;

        let mut link = Link::new(socket).map_err(refused)?;
        match bind(&mut link, Instant::now() + options.reply_timeout) {
            Ok(()) => Ok(Consumer::new(link, options.reply_timeout)),
            Err(error) => Err(ConnectError::NoService { address: address.clone(), error }),
        }
    }
}

fn bind(link: &mut Link, deadline: Instant) -> Result<(), ConsumerError> {
    match link.event(Some(deadline), false)? {
        Arrived::Event(Event::Bound) => Ok(()),
        Arrived::Event(_) => Err(ConsumerError::NoConsumerPort),
        Arrived::Woken | Arrived::TimedOut => Err(ConsumerError::NoAnswer),
    }
}

/// Whose the name is and, if it is a link, whose the file is that it leads to.
fn owners(path: &Path) -> io::Result<Vec<u32>> {
    Ok(vec![path.symlink_metadata()?.uid(), path.metadata()?.uid()])
}

/// Everybody who has a say in who listens.
#[derive(Debug, Default)]
struct Users {
    of_file: Vec<u32>,
    listens: Option<u32>,
}

impl Users {
    /// The user who is not trusted, if there is one.
    fn check(&self, trust: Trust) -> Result<(), u32> {
        let own_uid = rustix::process::geteuid().as_raw();
        match trust {
            Trust::Anybody => Ok(()),
            Trust::RootOrSelf => self.check_for(own_uid, is_android()),
        }
    }

    /// On Android root makes the socket at boot, and the service that it gives it to is another
    /// user: there the file alone decides.
    fn check_for(&self, own_uid: u32, root_gives_sockets: bool) -> Result<(), u32> {
        let is_roots = !self.of_file.is_empty() && self.of_file.iter().all(|uid| *uid == ROOT_UID);
        let listens = self.listens.filter(|_| !(root_gives_sockets && is_roots));
        let stranger =
            self.of_file.iter().copied().chain(listens).find(|uid| ![ROOT_UID, own_uid].contains(uid));
        stranger.map_or(Ok(()), Err)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_is_trusted() {
        const OWN: u32 = 1000;
        let check = |of_file: &[u32], listens, gives| {
            Users { of_file: of_file.to_vec(), listens }.check_for(OWN, gives)
        };
        assert_eq!(check(&[OWN, OWN], Some(OWN), false), Ok(()));
        assert_eq!(check(&[0, 0], Some(OWN), false), Ok(()));
        assert_eq!(check(&[], Some(0), false), Ok(()), "an abstract socket");
        assert_eq!(check(&[OWN, 7], None, false), Err(7), "our link to a stranger's socket");
        assert_eq!(check(&[7, 0], None, false), Err(7), "a stranger's link to root's socket");
        assert_eq!(check(&[OWN, OWN], Some(7), false), Err(7));
        assert_eq!(check(&[0, 0], Some(7), false), Err(7));
        assert_eq!(check(&[0, 0], Some(7), true), Ok(()), "root gave it to the service");
        assert_eq!(check(&[OWN, OWN], Some(7), true), Err(7));
        assert_eq!(check(&[], Some(7), true), Err(7));
    }
}
