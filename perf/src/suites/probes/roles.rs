//! The suite's processes: who records, and who is recorded.

use crate::measure::WrongAnswer;
use crate::suites::processes::{Process, Role, say};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use serde::{Deserialize, Serialize};
use std::io::{BufRead as _, PipeReader, PipeWriter, Read as _, Write as _};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use watershed_client::remote::{RemoteOptions, RemoteProducer};
use watershed_probes::{FtraceFactory, Notices, OnDemand, ProcessStatsFactory, Roots, ScanRequest};
use watershed_shell::address::Address;

const PATIENCE: Duration = Duration::from_secs(60);

/// The data sources of this machine, as `watershed probes` has them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProbesRole {
    pub(super) producer_socket: PathBuf,
}

impl ProbesRole {
    pub(in crate::suites) fn play(self) -> Result<(), String> {
        let options = RemoteOptions::for_sockets(vec![Address::Path(self.producer_socket)]);
        let producer = RemoteProducer::connect(options, |_| ()).map_err(|error| error.to_string())?;
        let (notices, on_demand) = (Notices::new(), OnDemand::new());
        producer.register(Box::new(ProcessStatsFactory {
            roots: Roots::default(),
            notices: notices.clone(),
            scan_request: ScanRequest::new(),
            on_demand: on_demand.clone(),
        }));
        producer.register(Box::new(FtraceFactory::new(Roots::default(), notices, on_demand)));
        if !producer.sync(PATIENCE) {
            return Err("the daemon does not answer the probes".to_owned());
        }
        say(&"ready")?;
        // Nothing is said to it: the end is what it waits for.
        std::io::stdin().read_to_end(&mut Vec::new()).map(drop).map_err(|error| error.to_string())
    }
}

/// Two threads of one CPU that hand a byte back and forth through pipes: each hand-over is a waking
/// and a switch.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PingPongRole {}

/// The process of the two threads, from the suite's side.
pub(super) struct PingPong(Process);

impl PingPong {
    pub(super) fn start() -> Result<PingPong, WrongAnswer> {
        Process::start_ready(&Role::PingPong(PingPongRole {})).map(PingPong)
    }

    /// Plays for this time. Returns how often the byte went to the other and came back.
    pub(super) fn play(&mut self, duration: Duration) -> Result<u64, WrongAnswer> {
        self.0.tell(&(duration.as_millis() as u64))?;
        self.0.answer()
    }
}

impl PingPongRole {
    pub(in crate::suites) fn play(self) -> Result<(), String> {
        // Threads that are started later stay on it too.
        pin_to_last_cpu().map_err(|error| error.to_string())?;
        say(&"ready")?;
        for order in std::io::stdin().lock().lines() {
            let order = order.map_err(|error| error.to_string())?;
            let duration_ms = serde_json::from_str(&order).map_err(|error| error.to_string())?;
            say(&ping_pong(Duration::from_millis(duration_ms)).map_err(|error| error.to_string())?)?;
        }
        Ok(())
    }
}

fn pin_to_last_cpu() -> rustix::io::Result<()> {
    let allowed = sched_getaffinity(None)?;
    let last = (0..CpuSet::MAX_CPU).rev().find(|&cpu| allowed.is_set(cpu));
    let mut only = CpuSet::new();
    only.set(last.unwrap_or(0));
    sched_setaffinity(None, &only)
}

fn ping_pong(duration: Duration) -> std::io::Result<u64> {
    let (mut from_pong, to_ping) = std::io::pipe()?;
    let (from_ping, mut to_pong) = std::io::pipe()?;
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let named = |name: &str| std::thread::Builder::new().name(name.to_owned());
        named("pong").spawn_scoped(scope, || return_all(from_ping, to_ping))?;
        let ping = named("ping").spawn_scoped(scope, || {
            let mut rounds = 0;
            // Relaxed: nothing is published by it.
            while !is_over.load(Ordering::Relaxed) {
                to_pong.write_all(&[1])?;
                from_pong.read_exact(&mut [0])?;
                rounds += 1;
            }
            // Ends the other one.
            drop(to_pong);
            Ok(rounds)
        })?;
        std::thread::sleep(duration);
        is_over.store(true, Ordering::Relaxed);
        ping.join().expect("a thread that reads and writes does not panic")
    })
}

/// Until the pipe ends.
fn return_all(mut from: PipeReader, mut to: PipeWriter) {
    while from.read_exact(&mut [0]).is_ok() && to.write_all(&[1]).is_ok() {}
}

/// A process with the data sources, connected to that daemon.
pub(super) fn start_probes(producer_socket: PathBuf) -> Result<Process, WrongAnswer> {
    Process::start_ready(&Role::Probes(ProbesRole { producer_socket }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_byte_goes_to_and_fro() {
        assert!(ping_pong(Duration::from_millis(20)).unwrap() > 0);
    }
}
