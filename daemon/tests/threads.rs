//! The threads that take turns as the loop and as workers: all end, however the daemon does.

mod support;

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use support::{TestDaemon, config};
use watershed_daemon::Daemon;

/// Whatever panics in a turn of the loop, here the log, ends the daemon: it does not go on without
/// somebody who serves connections.
#[test]
fn a_panic_in_a_turn_ends_all_threads() {
    for num_workers in [0, 1, 3] {
        let folder = tempfile::tempdir().unwrap();
        let options = support::options(folder.path(), num_workers);
        let daemon = Daemon::new(options, |line| panic!("cannot log {line}")).unwrap();
        let stopper = daemon.stopper();
        let (tell, told) = mpsc::channel();
        let run = thread::spawn(move || {
            // Told when it is dropped, however this thread ends.
            let _tell: mpsc::Sender<()> = tell;
            daemon.run()
        });
        stopper.ask_status();
        let ended = told.recv_timeout(Duration::from_secs(20));
        assert_eq!(ended, Err(mpsc::RecvTimeoutError::Disconnected), "with {num_workers} workers");
        assert!(run.join().is_err(), "with {num_workers} workers it panics");
    }
}

/// A stop finds each thread, busy or not, with more workers than CPUs and with none.
#[test]
fn a_stop_ends_all_threads() {
    for num_workers in [0, 1, 8] {
        for num_commits in [0, 1, 100] {
            let mut daemon = TestDaemon::start(num_workers);
            let (mut producer, mut consumer) = (daemon.producer(), daemon.consumer());
            consumer.enable(&config());
            producer.serve_until(|producer| !producer.buffers.is_empty());
            (0..num_commits).for_each(|number| producer.write(1, number));
            let (tell, told) = mpsc::channel();
            thread::spawn(move || {
                daemon.stop();
                tell.send(()).unwrap();
            });
            told.recv_timeout(Duration::from_secs(20)).expect("it ends");
        }
    }
}

/// Workers that are pinned serve as others do, and what cannot be pinned is told.
#[test]
fn workers_may_be_pinned() {
    let folder = tempfile::tempdir().unwrap();
    let mut options = support::options(folder.path(), 2);
    options.pin_workers = true;
    let (log, lines) = mpsc::channel();
    let daemon = Daemon::new(options, move |line| drop(log.send(line.to_owned()))).unwrap();
    let stopper = daemon.stopper();
    let (tell, told) = mpsc::channel();
    thread::spawn(move || tell.send(daemon.run()));
    let mut producer = support::Producer::connect(folder.path());
    let mut consumer = support::Consumer::connect(folder.path());
    consumer.enable(&config());
    producer.serve_until(|producer| !producer.buffers.is_empty());
    (0..200).for_each(|number| producer.write(1, number));
    assert!(consumer.flush_with(&mut producer));
    assert!(consumer.read().len() >= 200);
    stopper.stop();
    told.recv_timeout(Duration::from_secs(20)).expect("it ends").unwrap();
    let told: Vec<String> = lines.iter().filter(|line| line.contains("pinned")).collect();
    assert!(told.is_empty(), "{told:?}");
}
