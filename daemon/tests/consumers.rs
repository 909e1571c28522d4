//! More consumers than the service takes: the connection of the one too many is closed.

use std::io::Read as _;
use std::os::unix::net::UnixStream;
use std::sync::mpsc;
use std::time::Duration;

use watershed_daemon::{Daemon, DaemonOptions};
use watershed_service::limits::CONSUMERS_MAX;
use watershed_service::{Shards, SystemInfo};
use watershed_shell::address::Address;

#[test]
fn one_consumer_too_many_is_turned_away() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("consumer");
    let options = DaemonOptions {
        producer_sockets: vec![Address::Path(folder.path().join("producer"))],
        consumer_socket: Address::Path(path.clone()),
        permissions: None,
        num_workers: 0,
        pin_workers: false,
        huge_pages: watershed_service::HugePages::Advise,
        output_folder: None,
        version: "test".to_owned(),
        system: SystemInfo::default(),
        shards: Shards::UpTo(1),
    };
    let (log, lines) = mpsc::channel();
    let daemon = Daemon::new(options, move |line| drop(log.send(line.to_owned()))).expect("sockets");
    let stopper = daemon.stopper();
    let running = std::thread::spawn(move || daemon.run());
    let connect = || {
        let stream = UnixStream::connect(&path).expect("a connection");
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("a timeout");
        stream
    };

    let mut let_in: Vec<_> = (0..CONSUMERS_MAX).map(|_| connect()).collect();
    assert_eq!(connect().read(&mut [0]).expect("an end rather than a timeout"), 0);
    // It may say first that huge pages are slow here.
    let line = lines.iter().find(|line| !line.contains("huge page")).expect("a line for the operator");
    assert_eq!(line, "a connection is closed: too many consumers are connected (256 at most)");
    let first = let_in.first_mut().expect("consumers");
    first.set_nonblocking(true).expect("a socket");
    assert!(first.read(&mut [0]).is_err(), "the others go on");

    stopper.stop();
    running.join().expect("no panic").expect("no error");
}
