//! What is shown while a recording runs: a line on a terminal, nothing in a pipe.

use std::io::{self, IsTerminal as _};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// A line on standard error that shows how far the recording is.
pub(super) struct Progress {
    bar: ProgressBar,
    started: Instant,
}

impl Progress {
    /// Shown if standard error is a terminal and no command shares it. `time` is how long the
    /// recording will take, if it is known.
    pub(super) fn new(time: Option<Duration>, has_command: bool) -> Self {
        let target = match io::stderr().is_terminal() && !has_command {
            // Four times a second: drawing must not show up in what is recorded.
            true => ProgressDrawTarget::stderr_with_hz(4),
            false => ProgressDrawTarget::hidden(),
        };
        let (length, template) = match time {
            Some(time) => (Some(time.as_millis() as u64), "recording {bar:40} {msg}, Ctrl-C ends it"),
            None => (None, "recording {spinner} {msg}, Ctrl-C ends it"),
        };
        let style = ProgressStyle::with_template(template).expect("a test draws both templates");
        let bar = ProgressBar::with_draw_target(length, target).with_style(style);
        Progress { bar, started: Instant::now() }
    }

    /// Whether anybody sees it, so that calling [`Self::update`] has a point.
    pub(super) fn is_shown(&self) -> bool {
        !self.bar.is_hidden()
    }

    pub(super) fn update(&self) {
        let elapsed = self.started.elapsed();
        let of = self.bar.length().map_or(String::new(), |ms| format!(" of {:.1} s", ms as f64 / 1e3));
        self.bar.set_message(format!("{:.1} s{of}", elapsed.as_secs_f64()));
        self.bar.set_position(elapsed.as_millis() as u64);
    }

    /// Has `print` write lines while the line is out of the way.
    pub(super) fn around(&self, print: impl FnOnce()) {
        self.bar.suspend(print);
    }

    /// Takes the line away; the summary comes in its place.
    pub(super) fn finish(self) {
        self.bar.finish_and_clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_templates_are_valid() {
        for time in [None, Some(Duration::from_secs(3))] {
            let progress = Progress::new(time, false);
            progress.update();
            progress.finish();
        }
    }

    #[test]
    fn hidden_beside_a_command() {
        assert!(!Progress::new(None, true).is_shown());
    }
}
