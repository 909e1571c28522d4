//! Peers that end by SIGKILL, in the middle of what they do.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::ChildStdout;

use crate::consumer::Session;
use crate::service::{Service, held};
use crate::trace::Trace;
use crate::{config, peers, producer, wait_until};

/// Flushes that the producer tells before it is killed.
const FLUSHES: usize = 40;
const ROUNDS: usize = 3;

/// What a producer has committed outlives it, and the daemon lets go of the rest.
pub(crate) fn producer() {
    let service = Service::start();
    producer::connect(0);
    for _ in 0..ROUNDS {
        let session = Session::start(&config::ring(64 << 10));
        let before = held();
        let mut peer = peers::spawn("produce");
        let mut told = BufReader::new(peer.stdout.take().expect("it is a pipe"));
        let mut committed = BTreeMap::new();
        for _ in 0..FLUSHES {
            note_flush(&mut told, &mut committed);
        }
        peer.kill().expect("it runs");
        peer.wait().expect("it is our child");
        while note_flush(&mut told, &mut committed) {}
        drop(told);
        wait_until("the daemon holds nothing of it", || held() == before);
        assert_kept(&session.finish(), peer.id().cast_signed(), &committed);
    }
    service.stop();
}

/// Reads a line `THREAD NUMBER`; false at the end.
fn note_flush(told: &mut BufReader<ChildStdout>, committed: &mut BTreeMap<u64, u32>) -> bool {
    let mut line = String::new();
    told.read_line(&mut line).expect("it is text");
    // The last line may be cut off.
    let Some((thread, number)) = line.strip_suffix('\n').and_then(|line| line.split_once(' ')) else {
        return false;
    };
    let (thread, number) = (thread.parse().expect("a thread"), number.parse().expect("a number"));
    let last = committed.entry(thread).or_insert(number);
    *last = (*last).max(number);
    true
}

fn assert_kept(trace: &Trace, pid: i32, committed: &BTreeMap<u64, u32>) {
    let mut kept = BTreeMap::new();
    for (writer, events) in &trace.numbered {
        assert_eq!(writer.pid, pid, "the trace has the killed producer's packets only");
        let thread = events[0].thread;
        let wanted = (0..).map(|number| (thread, number)).take(events.len());
        assert!(events.iter().map(|event| (event.thread, event.number)).eq(wanted), "{events:?}");
        kept.insert(thread, events.len() as u32 - 1);
    }
    for (thread, number) in committed {
        assert!(kept.get(thread) >= Some(number), "committed: {committed:?}, kept: {kept:?}");
    }
    assert_eq!(trace.loss_flags, 0);
    println!("last committed as told: {committed:?}, last in the trace: {kept:?}");
}

/// The session of a consumer that was killed ends, and others can be started.
pub(crate) fn consumer() {
    let service = Service::start();
    producer::start(0);
    // The shared memory comes with the first session.
    drop(Session::record(&config::ring(4096)));
    wait_until("the session has ended", || !producer::is_recorded());
    let before = held();
    for _ in 0..ROUNDS {
        let mut peer = peers::spawn("consume");
        let mut told = BufReader::new(peer.stdout.take().expect("it is a pipe"));
        let mut line = String::new();
        told.read_line(&mut line).expect("it is text");
        wait_until("this process is recorded", producer::is_recorded);
        for number in 0..100 {
            producer::numbered(0, number);
        }
        peer.kill().expect("it runs");
        peer.wait().expect("it is our child");
        drop(told);
        wait_until("nothing is recorded", || !producer::is_recorded());
        wait_until("the daemon holds nothing of it", || held() == before);
    }
    let session = Session::record(&config::ring(4096));
    producer::in_threads(1, |thread| producer::numbered(thread, 0));
    let trace = session.finish();
    Trace::assert_complete(&trace.numbered, 1, 1);
    assert_eq!(trace.stats.tracing_sessions(), 1);
    service.stop();
}
