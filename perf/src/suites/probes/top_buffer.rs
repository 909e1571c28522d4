//! The kernel's top-level trace buffer, which `traced_probes` records into: what it was set to is
//! kept and restored. (Ours records into an instance of its own.)

use crate::measure::WrongAnswer;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};

/// Where kernels have it.
const PLACES: [&str; 2] = ["/sys/kernel/tracing", "/sys/kernel/debug/tracing"];

/// What `traced_probes` changes, in the order in which it is restored.
const FILES: [&str; 4] = ["events/enable", "trace_clock", "buffer_size_kb", "tracing_on"];

/// How the buffer was. Dropped, it is so again.
pub(super) struct TopBuffer {
    root: PathBuf,
    values: [String; 4],
}

impl TopBuffer {
    /// An error if somebody else is tracing.
    pub(super) fn keep() -> Result<TopBuffer, WrongAnswer> {
        Self::keep_in(root()?)
    }

    fn keep_in(root: &Path) -> Result<TopBuffer, WrongAnswer> {
        check_free_in(root)?;
        let [events, clock, size, tracing] = FILES.map(|file| value(root, file));
        Ok(TopBuffer { root: root.to_owned(), values: [events?, clock?, size?, tracing?] })
    }

    fn restore(&self, file: &str, before: &str) -> Result<(), String> {
        // Each write of a clock empties the buffer.
        if value(&self.root, file)? == before {
            return Ok(());
        }
        let written = OpenOptions::new().write(true).open(self.root.join(file));
        written.and_then(|mut file| file.write_all(before.as_bytes())).map_err(|error| error.to_string())
    }
}

impl Drop for TopBuffer {
    fn drop(&mut self) {
        for (file, before) in FILES.iter().zip(&self.values) {
            if let Err(error) = self.restore(file, before) {
                eprintln!("{}/{file} is not restored to {before}: {error}", self.root.display());
            }
        }
    }
}

/// An error, which says why, if the buffer may not be used.
pub(super) fn check_free() -> Result<(), WrongAnswer> {
    check_free_in(root()?)
}

fn root() -> Result<&'static Path, WrongAnswer> {
    let found = PLACES.iter().map(Path::new).find(|place| place.join("trace_clock").exists());
    found.ok_or_else(|| "tracefs is not mounted".to_owned())
}

fn check_free_in(root: &Path) -> Result<(), WrongAnswer> {
    let (tracer, events) = (read(root, "current_tracer")?, read(root, "set_event")?);
    let (tracer, events) = (tracer.trim(), events.split_whitespace().collect::<Vec<_>>().join(" "));
    if tracer == "nop" && events.is_empty() {
        return Ok(());
    }
    Err(format!("{} is in use, its tracer is {tracer}, its events are {events:?}", root.display()))
}

fn read(root: &Path, file: &str) -> Result<String, WrongAnswer> {
    let path = root.join(file);
    std::fs::read_to_string(&path).map_err(|error| format!("{}: {error}", path.display()))
}

/// What to write to have again what this file says: of clocks the one in brackets, and of
/// `7 (expanded: 1408)`, a buffer that nobody has used yet, the size that it has.
fn value(root: &Path, file: &str) -> Result<String, WrongAnswer> {
    let text = read(root, file)?;
    let in_brackets = |word: &'_ str| Some(word.strip_prefix('[')?.strip_suffix(']')?.to_owned());
    let mut words = text.split_whitespace();
    let first = words.clone().next().unwrap_or_default();
    Ok(words.find_map(in_brackets).unwrap_or_else(|| first.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn made_up(events: &str) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir(root.path().join("events")).unwrap();
        let files = [
            ("current_tracer", "nop\n"),
            ("set_event", events),
            ("events/enable", "0\n"),
            ("trace_clock", "local [mono] boot\n"),
            ("buffer_size_kb", "7 (expanded: 1408)\n"),
            ("tracing_on", "1\n"),
        ];
        files.iter().for_each(|(file, value)| fs::write(root.path().join(file), value).unwrap());
        root
    }

    #[test]
    fn what_was_set_is_set_again() {
        let root = made_up("");
        let kept = TopBuffer::keep_in(root.path()).unwrap();
        FILES.iter().for_each(|file| fs::write(root.path().join(file), "").unwrap());
        drop(kept);
        let now = FILES.map(|file| fs::read_to_string(root.path().join(file)).unwrap());
        assert_eq!(now, ["0", "mono", "7", "1"]);
    }

    #[test]
    fn a_buffer_in_use_is_left_alone() {
        let root = made_up("sched:sched_switch\n");
        let error = TopBuffer::keep_in(root.path()).err().unwrap();
        assert!(error.contains("is in use") && error.contains("sched:sched_switch"), "{error}");
    }
}
