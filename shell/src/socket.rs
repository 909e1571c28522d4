//! Bytes and file descriptors over a Unix socket, without blocking.
//!
//! ```text
//!   frame with a descriptor      | prefix | payload ...          |    one sendmsg, the descriptor
//!                                ^ the descriptor belongs here        with its first byte
//! ```
//!
//! A descriptor travels with the beginning of the frame that it belongs to. The system may deliver
//! the bytes of earlier frames together with it, never those of later ones before it, so a receiver
//! keeps descriptors in the order of their arrival and takes one for each message that needs one
//! (spec, service 1.6).

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

/// Descriptors that one message may bring. A frame has one at most; what is beyond is closed.
const FDS_PER_MESSAGE: usize = 1;
/// Room for descriptors that a peer sends against the rule, so that they can be closed in order.
const FDS_RECEIVED_MAX: usize = 16;

/// What one call moved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moved {
    /// So many bytes, at least one.
    Bytes(usize),
    /// The socket is not ready: wait for it.
    NotReady,
    /// The peer has closed its end. Only for receiving.
    Closed,
}

/// Receives once, into the beginning of `buffer`. Descriptors that come along are appended to
/// `fds`, closed on exec; of several in one message only the first.
///
/// # Errors
///
/// The connection is broken.
pub fn receive(socket: impl AsFd, buffer: &mut [u8], fds: &mut VecDeque<OwnedFd>) -> io::Result<Moved> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(FDS_RECEIVED_MAX))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let received = loop {
        let flags = RecvFlags::DONTWAIT | RecvFlags::CMSG_CLOEXEC;
        match recvmsg(&socket, &mut [IoSliceMut::new(buffer)], &mut ancillary, flags) {
            Ok(received) => break received,
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(Moved::NotReady),
            Err(errno) => return Err(errno.into()),
        }
    };
    for message in ancillary.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            rights.enumerate().for_each(|(index, fd)| {
                if index < FDS_PER_MESSAGE {
                    fds.push_back(fd);
                }
            });
        }
    }
    Ok(if received.bytes == 0 { Moved::Closed } else { Moved::Bytes(received.bytes) })
}

/// Sends as much of `bytes` as the socket takes at once, `fd` with the first of them.
///
/// # Errors
///
/// The connection is broken.
pub fn send(socket: impl AsFd, bytes: &[u8], fd: Option<BorrowedFd<'_>>) -> io::Result<Moved> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let fds = fd.map(|fd| [fd]);
    loop {
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if let Some(fds) = &fds {
            let fits = ancillary.push(SendAncillaryMessage::ScmRights(fds));
            debug_assert!(fits, "there is room for one descriptor");
        }
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        return match sendmsg(&socket, &[IoSlice::new(bytes)], &mut ancillary, flags) {
            Ok(sent) => Ok(Moved::Bytes(sent)),
            Err(Errno::INTR) => continue,
            Err(Errno::AGAIN) => Ok(Moved::NotReady),
            Err(errno) => Err(errno.into()),
        };
    }
}

/// Who is at the other end, as the system recorded when the connection was made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PeerCredentials {
    /// User id.
    pub uid: u32,
    /// Process id, if the system says.
    pub pid: Option<i32>,
}

/// Asks the system who is at the other end.
///
/// # Errors
///
/// The system's refusal.
#[cfg(any(target_os = "linux", target_os = "android"))]
pub fn peer_credentials(socket: impl AsFd) -> io::Result<PeerCredentials> {
    let credentials = rustix::net::sockopt::socket_peercred(socket)?;
    Ok(PeerCredentials { uid: credentials.uid.as_raw(), pid: Some(credentials.pid.as_raw_nonzero().get()) })
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Seek as _, Write as _};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn file_with(text: &str) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(text.as_bytes()).unwrap();
        file.rewind().unwrap();
        file
    }

    #[test]
    fn a_descriptor_comes_with_its_bytes() {
        let (a, b) = UnixStream::pair().unwrap();
        let mut fds = VecDeque::new();
        let mut buffer = [0; 64];
        assert_eq!(receive(&b, &mut buffer, &mut fds).unwrap(), Moved::NotReady);
        assert_eq!(send(&a, b"one", None).unwrap(), Moved::Bytes(3));
        let file = file_with("content");
        assert_eq!(send(&a, b"two", Some(file.as_fd())).unwrap(), Moved::Bytes(3));
        assert_eq!(send(&a, b"three", None).unwrap(), Moved::Bytes(5));
        let mut bytes = Vec::new();
        while let Moved::Bytes(count) = receive(&b, &mut buffer, &mut fds).unwrap() {
            bytes.extend_from_slice(&buffer[..count]);
            assert_eq!(fds.len(), usize::from(bytes.len() > 3), "after {bytes:?}");
        }
        assert_eq!(bytes, b"onetwothree");
        let mut text = String::new();
        File::from(fds.pop_front().unwrap()).read_to_string(&mut text).unwrap();
        assert_eq!(text, "content");
        drop(a);
        assert_eq!(receive(&b, &mut buffer, &mut fds).unwrap(), Moved::Closed);
    }

    #[test]
    fn of_many_descriptors_in_one_message_one_is_kept() {
        let (a, b) = UnixStream::pair().unwrap();
        let (mut reader, writer) = io::pipe().unwrap();
        rustix::io::ioctl_fionbio(&reader, true).unwrap();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let three = [writer.as_fd(); 3];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&three)));
        sendmsg(&a, &[IoSlice::new(b"x")], &mut ancillary, SendFlags::empty()).unwrap();
        drop(writer);
        let mut fds = VecDeque::new();
        assert_eq!(receive(&b, &mut [0; 8], &mut fds).unwrap(), Moved::Bytes(1));
        assert_eq!(fds.len(), 1);
        let open = reader.read(&mut [0]).unwrap_err();
        assert_eq!(open.kind(), io::ErrorKind::WouldBlock, "one is kept");
        drop(fds);
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the others are closed");
    }

    #[test]
    fn a_full_socket_is_not_ready() {
        let (a, b) = UnixStream::pair().unwrap();
        let block = [0; 1 << 16];
        let mut sent = 0;
        while let Moved::Bytes(count) = send(&a, &block, None).unwrap() {
            sent += count;
        }
        assert!(sent > 0);
        drop(b);
        assert!(send(&a, &block, None).is_err(), "nobody is there any more");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_peer_is_who_the_system_says() {
        let (a, _b) = UnixStream::pair().unwrap();
        let peer = peer_credentials(&a).unwrap();
        let expected = PeerCredentials {
            uid: rustix::process::getuid().as_raw(),
            pid: Some(std::process::id().cast_signed()),
        };
        assert_eq!(peer, expected);
    }
}
