//! Lines for the operator, as many as a person can read.

use std::fmt;

/// Lines within one period. More are counted and told in one line.
const LINES_PER_PERIOD: u32 = 20;
const PERIOD_NS: u64 = 10_000_000_000;

/// Where lines go.
pub(crate) struct Log {
    write: Box<dyn FnMut(&str) + Send>,
    period_began_ns: u64,
    lines: u32,
    left_out: u64,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("lines", &self.lines).finish_non_exhaustive()
    }
}

impl Log {
    pub(crate) fn new(write: Box<dyn FnMut(&str) + Send>) -> Log {
        Log { write, period_began_ns: 0, lines: 0, left_out: 0 }
    }

    /// Writes a line that the operator has asked for.
    pub(crate) fn answer(&mut self, text: fmt::Arguments<'_>) {
        (self.write)(&text.to_string());
    }

    /// Writes a line unless there were too many: peers can cause them at will.
    pub(crate) fn line(&mut self, now_ns: u64, text: fmt::Arguments<'_>) {
        if now_ns.saturating_sub(self.period_began_ns) >= PERIOD_NS {
            (self.period_began_ns, self.lines) = (now_ns, 0);
            if self.left_out > 0 {
                let left_out = std::mem::take(&mut self.left_out);
                (self.write)(&format!("{left_out} lines like those before were left out"));
            }
        }
        if self.lines < LINES_PER_PERIOD {
            self.lines += 1;
            (self.write)(&text.to_string());
        } else {
            self.left_out += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use super::*;

    #[test]
    fn a_flood_is_counted_and_told_later() {
        let lines = Arc::new(Mutex::new(Vec::new()));
        let sink = Arc::clone(&lines);
        let mut log = Log::new(Box::new(move |line| sink.lock().unwrap().push(line.to_owned())));
        for number in 0..100 {
            log.line(PERIOD_NS, format_args!("line {number}"));
        }
        assert_eq!(lines.lock().unwrap().len(), LINES_PER_PERIOD as usize);
        log.line(2 * PERIOD_NS, format_args!("later"));
        let lines = lines.lock().unwrap();
        assert_eq!(lines[LINES_PER_PERIOD as usize..], ["80 lines like those before were left out", "later"]);
    }
}
