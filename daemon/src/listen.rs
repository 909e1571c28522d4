//! Listening sockets: made, given permissions, and removed at the end; or passed by whoever started
//! the daemon, and then left as they are.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener as StdListener;
use std::path::{Path, PathBuf};

use mio::net::UnixListener;
use watershed_shell::address::Address;

use crate::options::{DaemonError, FilePermissions};

/// A listening socket. A file that this process made is removed with it.
#[derive(Debug)]
pub(crate) struct Listener {
    pub(crate) socket: UnixListener,
    file: Option<SocketFile>,
}

/// The file that a socket is bound to.
///
/// A service that starts later may have put its own socket at the same path: Perfetto's `traced`
/// does so without asking. So the file is known by its inode, and only this one is removed. The
/// bound socket keeps the inode, so that its number is not used again.
#[derive(Debug)]
struct SocketFile {
    path: PathBuf,
    /// Device and inode; `None` where the file was gone as soon as it was made.
    id: Option<(u64, u64)>,
}

impl SocketFile {
    fn new(path: PathBuf) -> Self {
        SocketFile { id: file_id(&path), path }
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if self.id.is_some() && file_id(&self.path) == self.id {
            // The folder may have been removed since.
            let _ = fs::remove_file(&self.path);
        }
    }
}

fn file_id(path: &Path) -> Option<(u64, u64)> {
    let metadata = fs::symlink_metadata(path).ok()?;
    Some((metadata.dev(), metadata.ino()))
}

impl Listener {
    /// The socket of `passed` that listens at `address`, which leaves the list; else a new one.
    ///
    /// # Errors
    ///
    /// [`DaemonError`].
    pub(crate) fn take_or_bind(
        address: &Address,
        permissions: &FilePermissions,
        passed: &mut Vec<StdListener>,
    ) -> Result<Listener, DaemonError> {
        let at = passed.iter().position(|socket| Address::of_listener(socket).as_ref() == Some(address));
        let Some(at) = at else { return Listener::bind(address, permissions) };
        let socket = passed.swap_remove(at);
        socket.set_nonblocking(true)?;
        Ok(Listener { socket: UnixListener::from_std(socket), file: None })
    }

    /// Listens at `address`. A socket file that nobody answers on any more is replaced.
    ///
    /// # Errors
    ///
    /// [`DaemonError`]; another service's socket is left alone.
    pub(crate) fn bind(address: &Address, permissions: &FilePermissions) -> Result<Listener, DaemonError> {
        remove_stale(address)?;
        let failed = |what| move |error| DaemonError::Socket { what, address: address.clone(), error };
        let socket = address.listen().map_err(failed("listen on"))?;
        // From here on the file is ours: it goes with the value, also when the next step fails.
        let file = address.path().map(|path| SocketFile::new(path.to_owned()));
        socket.set_nonblocking(true).map_err(failed("listen on"))?;
        let listener = Listener { socket: UnixListener::from_std(socket), file };
        if let Some(SocketFile { path, .. }) = &listener.file {
            std::os::unix::fs::chown(path, None, permissions.gid).map_err(failed("set the group of"))?;
            fs::set_permissions(path, fs::Permissions::from_mode(permissions.mode))
                .map_err(failed("set the mode of"))?;
        }
        Ok(listener)
    }
}

/// Removes the socket file of a service that has gone.
fn remove_stale(address: &Address) -> Result<(), DaemonError> {
    let already_running = || DaemonError::AlreadyRunning { address: address.clone() };
    let Some(path) = address.path() else {
        // An abstract name goes with its last user.
        return if address.connect().is_ok() { Err(already_running()) } else { Ok(()) };
    };
    match fs::symlink_metadata(path) {
        Err(_) => Ok(()),
        Ok(metadata) if !metadata.file_type().is_socket() => {
            Err(DaemonError::NotASocket { path: path.to_owned() })
        }
        Ok(_) => match address.connect() {
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {
                fs::remove_file(path).map_err(|error| DaemonError::Socket {
                    what: "remove what is left of",
                    address: address.clone(),
                    error,
                })
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            // No permission, or a full backlog: somebody is there.
            Ok(_) | Err(_) => Err(already_running()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bind(address: &Address) -> Result<Listener, DaemonError> {
        Listener::bind(address, &FilePermissions::CONSUMER_DEFAULT)
    }

    #[test]
    fn a_stale_socket_is_replaced_and_a_live_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = Address::Path(path.clone());
        // A listener of the standard library leaves its file behind.
        drop(StdListener::bind(&path).unwrap());
        let listener = bind(&address).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        let error = bind(&address).unwrap_err();
        assert!(matches!(error, DaemonError::AlreadyRunning { .. }), "{error}");
        drop(listener);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_is_no_socket_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("precious");
        fs::write(&path, "data").unwrap();
        let error = bind(&Address::Path(path.clone())).unwrap_err();
        assert!(matches!(error, DaemonError::NotASocket { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), b"data");
    }

    #[test]
    fn the_socket_of_a_service_that_took_the_path_is_left_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = bind(&Address::Path(path.clone())).unwrap();
        fs::remove_file(&path).unwrap();
        let _other = StdListener::bind(&path).unwrap();
        drop(listener);
        assert!(path.exists());
    }

    #[test]
    fn a_passed_socket_is_used_and_its_file_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let address = Address::Path(path.clone());
        let mut passed =
            vec![StdListener::bind(folder.path().join("other")).unwrap(), StdListener::bind(&path).unwrap()];
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        let listener =
            Listener::take_or_bind(&address, &FilePermissions::PRODUCER_DEFAULT, &mut passed).unwrap();
        assert_eq!(passed.len(), 1, "the other one is not touched");
        let _client = address.connect().unwrap();
        listener.socket.accept().unwrap();
        drop(listener);
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn an_abstract_name_is_used_once() {
        let address = Address::Abstract(format!("watershed-listen-{}", std::process::id()));
        let listener = bind(&address).unwrap();
        assert!(matches!(bind(&address), Err(DaemonError::AlreadyRunning { .. })));
        drop(listener);
        bind(&address).unwrap();
    }
}
