//! Processes of a suite: this program again, as daemon or as a peer of it.
//!
//! ```text
//!   suite ── start(role) ──> watershed-perf peer ROLE        (JSON, as are all lines below)
//!     <──────── ready ─────────
//!     ───── one order ────────>   one line each way
//!     <──── its result ────────
//!     ─── end of the input ───>   ends
//! ```

pub(in crate::suites) mod daemon;
pub(in crate::suites) mod pauses;
pub(in crate::suites) mod perfetto;
pub(in crate::suites) mod session;

use self::daemon::DaemonRole;
use self::pauses::PausesRole;
use self::perfetto::TracedRole;
use super::probes::{PerfettoRole, PingPongRole, ProbesRole};
use super::service::LoadRole;
use crate::measure::WrongAnswer;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// What a process of the suite does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Role {
    /// Serves.
    Daemon(DaemonRole),
    /// Writes.
    Load(LoadRole),
    /// Reads what this machine does.
    Probes(ProbesRole),
    /// Has two threads that wake each other.
    PingPong(PingPongRole),
    /// Starts and ends Perfetto's service and probes.
    Perfetto(PerfettoRole),
    /// Starts and ends Perfetto's service alone.
    Traced(TracedRole),
    /// Watches for pauses of the machine.
    Pauses(PausesRole),
}

impl Role {
    /// Plays the role whose JSON this is, until the standard input ends.
    ///
    /// # Errors
    /// A text for people.
    pub fn play(json: &str) -> Result<(), String> {
        match serde_json::from_str(json).map_err(|error| format!("no role: {error}"))? {
            Role::Daemon(role) => role.play(),
            Role::Load(role) => role.play(),
            Role::Probes(role) => role.play(),
            Role::PingPong(role) => role.play(),
            Role::Perfetto(role) => role.play(),
            Role::Traced(role) => role.play(),
            Role::Pauses(role) => role.play(),
        }
    }
}

/// Says something to the suite.
pub(in crate::suites) fn say(what: &impl Serialize) -> Result<(), String> {
    let line = serde_json::to_string(what).map_err(|error| error.to_string())?;
    let mut out = std::io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush()).map_err(|error| error.to_string())
}

/// A process that plays a role. It ends with this value, if need be by a signal.
pub(in crate::suites) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    /// Starts it; it is not ready yet.
    pub(in crate::suites) fn start(role: &Role) -> Result<Process, WrongAnswer> {
        Process::start_with(&[], role)
    }

    /// As [`Process::start`], by a command that starts another one.
    fn start_with(starter: &[&str], role: &Role) -> Result<Process, WrongAnswer> {
        let program = program()?;
        let json = serde_json::to_string(role).map_err(|error| error.to_string())?;
        let mut words = starter.iter().map(OsStr::new).chain([program.as_os_str()]);
        let mut command = Command::new(words.next().expect("the program at least"));
        command.args(words).args(["peer", &json]).stdin(Stdio::piped()).stdout(Stdio::piped());
        // A signal from the terminal ends the suite alone, and its end the others, in order.
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        if !starter.is_empty() {
            // What it has to say if it may not do what it is for.
            command.stderr(Stdio::null());
        }
        let mut child = command.spawn().map_err(|error| format!("{}: {error}", program.display()))?;
        let (input, output) = (child.stdin.take(), child.stdout.take().expect("piped"));
        Ok(Process { child, input, output: BufReader::new(output) })
    }

    /// Starts it, and waits until it is ready.
    pub(in crate::suites) fn start_ready(role: &Role) -> Result<Process, WrongAnswer> {
        let mut process = Process::start(role)?;
        process.answer::<String>()?;
        Ok(process)
    }

    pub(in crate::suites) fn pid(&self) -> i32 {
        self.child.id().cast_signed()
    }

    /// Gives an order.
    pub(in crate::suites) fn tell(&mut self, order: &impl Serialize) -> Result<(), WrongAnswer> {
        let mut line = serde_json::to_string(order).map_err(|error| error.to_string())?;
        line.push('\n');
        let input = self.input.as_mut().expect("open until the drop");
        input.write_all(line.as_bytes()).map_err(|error| format!("a process of the suite: {error}"))
    }

    /// Waits for what it says next.
    pub(in crate::suites) fn answer<T: DeserializeOwned>(&mut self) -> Result<T, WrongAnswer> {
        let mut line = String::new();
        self.output.read_line(&mut line).map_err(|error| format!("a process of the suite: {error}"))?;
        serde_json::from_str(&line).map_err(|error| format!("a process of the suite: {error}: {line:?}"))
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        drop(self.input.take());
        // Those that are asked to end do so at once, unless they are stopped or stuck.
        for _ in 0..500 {
            if matches!(self.child.try_wait(), Ok(Some(_)) | Err(_)) {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(10));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// This program. A test is not: its program lies in the folder above.
fn program() -> Result<PathBuf, WrongAnswer> {
    const NAME: &str = "watershed-perf";
    let this = std::env::current_exe().map_err(|error| error.to_string())?;
    let folder = this.parent().ok_or("a program without a folder")?;
    let folder = if folder.ends_with("deps") { folder.parent().unwrap_or(folder) } else { folder };
    Ok(folder.join(NAME).with_extension(std::env::consts::EXE_EXTENSION))
}

/// CPU time of a process by the names of its threads, in nanoseconds.
pub(in crate::suites) fn cpu_ns(pid: i32) -> Result<BTreeMap<String, u64>, WrongAnswer> {
    let mut sum = BTreeMap::new();
    for_each_thread(pid, |read| {
        // A thread may end in between.
        let (Some(name), Some(schedstat)) = (read("comm"), read("schedstat")) else { return };
        let ns = schedstat.split(' ').next().and_then(|ns| ns.parse::<u64>().ok()).unwrap_or(0);
        *sum.entry(name.trim().to_owned()).or_default() += ns;
    })?;
    Ok(sum)
}

/// CPU time of a process in nanoseconds, that of threads that have ended included; to a tick of the
/// system, mostly 10 ms.
pub(in crate::suites) fn cpu_ns_with_ended(pid: i32) -> Result<u64, WrongAnswer> {
    let path = format!("/proc/{pid}/stat");
    let stat = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    // The name in parentheses may have spaces. Fields 14 and 15 are user and system time.
    let behind_name = stat.rsplit(')').next().unwrap_or_default();
    let ticks: Vec<u64> =
        behind_name.split_whitespace().skip(11).take(2).filter_map(|ticks| ticks.parse().ok()).collect();
    match ticks[..] {
        [user, system] => Ok((user + system) * 1_000_000_000 / rustix::param::clock_ticks_per_second()),
        _ => Err(format!("{path}: no CPU time")),
    }
}

/// How often the threads of a process have woken up.
pub(in crate::suites) fn wakeups(pid: i32) -> Result<u64, WrongAnswer> {
    let mut sum = 0;
    for_each_thread(pid, |read| {
        let status = read("status").unwrap_or_default();
        sum += status_value(&status, "voluntary_ctxt_switches:").unwrap_or(0);
    })?;
    Ok(sum)
}

/// Resident memory that is not shared with others, in bytes.
pub(in crate::suites) fn private_bytes(pid: i32) -> Result<u64, WrongAnswer> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    status_value(&status, "RssAnon:").map(|kib| kib * 1024).ok_or_else(|| format!("{path}: no RssAnon"))
}

fn for_each_thread(
    pid: i32,
    mut look: impl FnMut(&dyn Fn(&str) -> Option<String>),
) -> Result<(), WrongAnswer> {
    let path = format!("/proc/{pid}/task");
    let threads = std::fs::read_dir(&path).map_err(|error| format!("{path}: {error}"))?;
    for thread in threads.flatten() {
        look(&|file| std::fs::read_to_string(thread.path().join(file)).ok());
    }
    Ok(())
}

fn status_value(status: &str, key: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(key))?;
    line.trim().trim_end_matches(" kB").parse().ok()
}

/// What the machine's CPUs have done so far, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub(in crate::suites) struct MachineTicks {
    all: u64,
    stolen: u64,
}

impl MachineTicks {
    pub(in crate::suites) fn now() -> MachineTicks {
        let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
        let line = stat.lines().next().unwrap_or_default();
        let ticks: Vec<u64> = line.split_whitespace().skip(1).filter_map(|n| n.parse().ok()).collect();
        // user nice system idle iowait irq softirq steal; what guests took is in user and nice.
        MachineTicks { all: ticks.iter().take(8).sum(), stolen: ticks.get(7).copied().unwrap_or(0) }
    }

    /// What part of the time since `before` the host gave to others.
    pub(in crate::suites) fn steal_percent_since(self, before: MachineTicks) -> f64 {
        let all = (self.all - before.all).max(1);
        (self.stolen - before.stolen) as f64 / all as f64 * 100.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_is_found_in_proc() {
        let this = std::process::id().cast_signed();
        let before: u64 = cpu_ns(this).unwrap().values().sum();
        let sum = (0..30_000_000_u64).fold(0, |sum, n| std::hint::black_box(sum ^ n));
        let after: u64 = cpu_ns(this).unwrap().values().sum();
        assert!(after > before, "{sum}");
        const TICK_NS: u64 = 20_000_000;
        let ended =
            std::thread::spawn(|| (0..200_000_000_u64).fold(0, |sum, n| std::hint::black_box(sum ^ n)));
        ended.join().unwrap();
        let live: u64 = cpu_ns(this).unwrap().values().sum();
        assert!(cpu_ns_with_ended(this).unwrap() > live + TICK_NS, "{live}");
        assert!(cpu_ns_with_ended(-1).is_err());
        assert!(private_bytes(this).unwrap() > 100_000);
        wakeups(this).unwrap();
        assert!(cpu_ns(-1).is_err());
    }
}
