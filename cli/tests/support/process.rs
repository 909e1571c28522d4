//! A command that runs beside the test, and what it says on standard error.

use std::io::{BufRead as _, BufReader};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, Receiver};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Far above what anything takes on a busy machine: a line that does not come fails its test, and
/// does not hold up the others.
const LINE_WAIT_MAX: Duration = Duration::from_secs(120);

/// Killed with the value.
pub(crate) struct Process {
    pub(crate) child: Child,
    lines: Receiver<String>,
}

impl Process {
    pub(crate) fn start(command: &mut Command) -> Process {
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let (said, lines) = mpsc::channel();
        let stderr = BufReader::new(child.stderr.take().unwrap());
        thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| said.send(line)));
        Process { child, lines }
    }

    /// Waits for a line on standard error that contains `text`, and returns it.
    pub(crate) fn wait_for(&mut self, text: &str) -> String {
        let until = Instant::now() + LINE_WAIT_MAX;
        let mut others = Vec::new();
        while let Ok(line) = self.lines.recv_timeout(until.saturating_duration_since(Instant::now())) {
            if line.contains(text) {
                return line;
            }
            others.push(line);
        }
        panic!("{text:?} was not said, but {others:#?}");
    }

    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn code(&mut self) -> Option<i32> {
        self.child.wait().unwrap().code()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
