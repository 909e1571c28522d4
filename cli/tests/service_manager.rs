//! `watershed daemon` as a service manager starts it: sockets passed, readiness told.
#![cfg(target_os = "linux")]

use std::os::fd::OwnedFd;
use std::os::unix::net::{UnixDatagram, UnixListener};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

const PROGRAM: &str = env!("CARGO_BIN_EXE_watershed");

/// A daemon that gets its sockets as the descriptors 3 and 4, in this order.
struct Daemon(Child);

impl Daemon {
    fn start(folder: &Path, sockets: [OwnedFd; 2], notify: &Path) -> Daemon {
        // What a child inherits without unsafe code is standard input and output.
        let script = r#"exec 3<&0 4>&1 0</dev/null 1>/dev/null
            LISTEN_PID=$$ LISTEN_FDS=2 exec "$0" daemon --workers 0"#;
        let [third, fourth] = sockets;
        let mut command = Command::new("bash");
        command.args(["-c", script, PROGRAM]).stdin(Stdio::from(third)).stdout(Stdio::from(fourth));
        command.stderr(Stdio::piped()).env("NOTIFY_SOCKET", notify);
        Daemon(with_names(command, folder).spawn().unwrap())
    }

    /// What it said, and its exit code.
    fn wait(mut self) -> (String, Option<i32>) {
        let stderr = std::io::read_to_string(self.0.stderr.take().unwrap()).unwrap();
        (stderr, self.0.wait().unwrap().code())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn with_names(mut command: Command, folder: &Path) -> Command {
    command.env("PERFETTO_PRODUCER_SOCK_NAME", folder.join("producer"));
    command.env("PERFETTO_CONSUMER_SOCK_NAME", folder.join("consumer"));
    command
}

fn query(folder: &Path) -> Output {
    let mut command = Command::new(PROGRAM);
    command.arg("query");
    with_names(command, folder).output().unwrap()
}

fn listen(folder: &Path, name: &str) -> UnixListener {
    UnixListener::bind(folder.join(name)).unwrap()
}

#[test]
fn passed_sockets_are_served_and_readiness_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let sockets = [listen(folder, "producer"), listen(folder, "consumer")];
    let notify = UnixDatagram::bind(folder.join("notify")).unwrap();
    notify.set_read_timeout(Some(Duration::from_secs(60))).unwrap();

    // Whoever connects before the daemon is there is answered by it.
    let early = std::thread::scope(|scope| {
        let early = scope.spawn(|| query(folder));
        let [producers, consumers] = &sockets;
        let passed = [producers, consumers].map(|socket| socket.try_clone().unwrap().into());
        let daemon = Daemon::start(folder, passed, &folder.join("notify"));
        let mut said = [0; 512];
        let len = notify.recv(&mut said).unwrap();
        let said = String::from_utf8_lossy(&said[..len]).into_owned();
        assert!(said.starts_with("READY=1\nSTATUS=listening for producers on"), "{said}");
        let early = early.join().unwrap();

        kill_process(Pid::from_child(&daemon.0), Signal::TERM).unwrap();
        let mut said = [0; 512];
        let len = notify.recv(&mut said).unwrap();
        assert_eq!(&said[..len], b"STOPPING=1\n");
        assert_eq!(daemon.wait().1, Some(0));
        early
    });
    assert!(early.status.success(), "{early:?}");
    // They are the manager's: the next client starts the service again.
    assert!(folder.join("producer").exists() && folder.join("consumer").exists());
}

#[test]
fn a_socket_that_nobody_asked_for_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let folder = folder.path();
    let sockets = [listen(folder, "producer"), listen(folder, "other")].map(OwnedFd::from);
    let (said, code) = Daemon::start(folder, sockets, &folder.join("nobody")).wait();
    assert_eq!(code, Some(1), "{said}");
    let other = folder.join("other");
    assert!(said.contains(&format!("listens on {}", other.display())), "{said}");
    assert!(!folder.join("consumer").exists(), "what was made is removed");
}
