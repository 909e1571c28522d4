//! The slowest events of a thread: what one in ten thousand takes longer than the same loop without
//! an event, in which the system and the hypervisor stop the thread as well.

use super::events::{ON, RECORDED, instants};
use super::recording::{Program, RING_KB, config};
use super::trace::Contents;
use crate::measure::{Contestant, Lap, Options, WrongAnswer, interleave};
use crate::report::Measurement;
use crate::suites::processes::daemon::{RunningDaemon, Workers};
use crate::suites::processes::session::{disable, enable};
use rustix::process::{Pid, Signal, kill_process};
use std::cell::Cell;
use std::time::{Duration, Instant};
use watershed_client::consumer::{Consumer, FLUSH_AT_STOP};
use watershed_client::remote::{RemoteOptions, RemoteProducer};
use watershed_client::track_event::{self, register_categories};
use watershed_shell::address::Address;

/// Which of the events: the one below which so many are.
const TAIL: f64 = 0.9999;
const PATIENCE: Duration = Duration::from_secs(60);

/// With a session in this process.
pub(super) fn in_process(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let mut program = Program::start()?;
    let count = events_per_lap(options);
    let lap = || Ok(program.session(count, false, || tail(count, || instants(1)))?.0);
    compare(name, options, Box::new(lap))
}

/// With the service in another process, stopped by a signal: the memory is full soon, and then each
/// event is dropped. Between the laps it runs.
pub(super) fn service_stopped(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let daemon = RunningDaemon::start(Workers::default())?;
    register_categories(&[&ON]);
    let remote = RemoteOptions::for_sockets(vec![Address::Path(daemon.producer_socket())]);
    let producer = RemoteProducer::connect(remote, |_| ()).map_err(|error| error.to_string())?;
    producer.register(track_event::data_source());
    let mut consumer = daemon.consumer()?;
    enable(&mut consumer, &config(RING_KB), None)?;
    let started = Instant::now();
    while !ON.is_enabled() {
        if started.elapsed() > PATIENCE {
            return Err(format!("no session wants the category {RECORDED}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let (count, written) = (events_per_lap(options), Cell::new(0));
    let lap = || {
        let stopped = Stopped::now(daemon.pid())?;
        let lap = tail(count, || instants(1));
        drop(stopped);
        written.set(written.get() + count);
        // The service catches up before the next lap fills the memory again.
        let flushed = consumer.flush(PATIENCE, FLUSH_AT_STOP).map_err(|error| error.to_string())?;
        if flushed { Ok(lap) } else { Err("a flush does not end".into()) }
    };
    let result = compare(name, options, Box::new(lap))?;
    let events = events_of(&mut consumer)?;
    let dropped = producer.stats().arbiter.packets_dropped;
    if events > written.get() || events + dropped < written.get() || dropped == 0 {
        return Err(format!("{events} of {} events, {dropped} counted as dropped", written.get()));
    }
    Ok(result.with("percent_dropped", dropped as f64 * 100.0 / written.get() as f64))
}

fn events_of(consumer: &mut Consumer) -> Result<u64, WrongAnswer> {
    disable(consumer)?;
    let mut contents = Contents::default();
    let mut wrong = None;
    let read = consumer.read_packets(|packet| {
        wrong = wrong.take().or(contents.add(packet).err());
        Ok(())
    });
    read.map_err(|error| error.to_string())?;
    wrong.map_or(Ok(contents.events), Err)
}

/// Ten events or more are beyond the tail, and all of them together do not fit the memory.
fn events_per_lap(options: &Options) -> u64 {
    options.size(300_000, 150_000)
}

/// The loop in turns with the same loop without events.
fn compare(name: &str, options: &Options, lap: Contestant<'_>) -> Result<Measurement, WrongAnswer> {
    let count = events_per_lap(options);
    let [ours, empty] = interleave(options, [lap, Box::new(|| Ok(tail(count, || ())))])?;
    let above = ours.by_round(&empty, |ours, empty| ours - empty);
    Ok(Measurement::microseconds(name, &above)
        .with("us_p9999", ours.median() / 1e3)
        .with("us_empty_p9999", empty.median() / 1e3))
}

/// Reads the clock after each event: the time between two readings that only one in ten thousand
/// exceeds, as a lap of one unit.
fn tail(count: u64, event: impl Fn()) -> Lap {
    // Touched: a page fault would be one of the slowest events.
    let mut times: Vec<Duration> = (0..count).map(Duration::from_nanos).collect();
    let mut before = Instant::now();
    for time in &mut times {
        event();
        let now = Instant::now();
        *time = now - before;
        before = now;
    }
    times.sort_unstable();
    let index = ((times.len() as f64 * TAIL) as usize).min(times.len() - 1);
    Lap { elapsed: times[index], units: 1 }
}

/// A process that does not run until this is dropped.
struct Stopped(Pid);

impl Stopped {
    fn now(pid: i32) -> Result<Self, WrongAnswer> {
        let pid = Pid::from_raw(pid).ok_or("no process")?;
        kill_process(pid, Signal::STOP).map_err(|error| error.to_string())?;
        Ok(Self(pid))
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = kill_process(self.0, Signal::CONT);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tail_is_what_one_in_ten_thousand_takes_longer_than() {
        let left = Cell::new(20_000);
        let slow = || {
            left.set(left.get() - 1);
            if left.get() < 3 {
                std::thread::sleep(Duration::from_millis(20));
            }
        };
        let lap = tail(20_000, slow);
        assert!(lap.elapsed >= Duration::from_millis(20), "{lap:?}: three of 20,000 took so long");
        let lap = tail(20_000, || ());
        assert!(lap.elapsed < Duration::from_millis(20), "{lap:?}");
    }
}
