//! What happened in a run, for whoever has to find out why it failed.

use std::collections::VecDeque;

/// Lines that are kept.
const LINES_KEPT: usize = 80;

/// Written only in a run that is known to fail: the lines are most of its time.
#[derive(Debug, Default)]
pub(crate) struct Log {
    is_on: bool,
    lines: VecDeque<String>,
}

impl Log {
    pub(crate) fn new(is_on: bool) -> Log {
        Log { is_on, lines: VecDeque::new() }
    }

    pub(crate) fn add(&mut self, now_ns: u64, line: impl FnOnce() -> String) {
        if self.is_on {
            if self.lines.len() == LINES_KEPT {
                self.lines.pop_front();
            }
            let mut line = format!("{:>12.3} ms  {}", now_ns as f64 / 1e6, line());
            line.truncate(line.floor_char_boundary(400));
            self.lines.push_back(line);
        }
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.is_on && std::thread::panicking() {
            eprintln!("the last events:");
            self.lines.iter().for_each(|line| eprintln!("  {line}"));
        }
    }
}
