//! A rival in C++, which is a program of its own: `ci/rivals` builds it. It waits for a line, does
//! a lap, and answers with the lap's time, so its laps alternate with ours.

use crate::measure::{Lap, LapResult, WrongAnswer};
use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::Duration;
use tempfile::NamedTempFile;

/// Perfetto's own client, service and buffer, where `ci/rivals` leaves it.
const PROGRAM: &str = "target/rivals/release/watershed-rival-perfetto";

/// The running program, and its output.
pub(super) struct Rival {
    child: Child,
    /// Closed first, which ends the program.
    laps: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    packets: u64,
    _texts: NamedTempFile,
}

impl Rival {
    /// Starts it with packets, of which each of its threads writes `each`; `None` where it was not
    /// built.
    pub(super) fn start(
        texts: &[Vec<u8>],
        each: usize,
        threads: usize,
    ) -> Result<Option<Rival>, WrongAnswer> {
        if !Path::new(PROGRAM).is_file() {
            return Ok(None);
        }
        let start = || -> std::io::Result<Rival> {
            let mut file = NamedTempFile::new()?;
            for text in texts {
                file.write_all(&(text.len() as u32).to_le_bytes())?;
                file.write_all(text)?;
            }
            let mut command = Command::new(PROGRAM);
            command.arg(file.path()).args([each.to_string(), threads.to_string()]);
            let mut child =
                command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
            let (laps, answers) = (child.stdin.take(), child.stdout.take().expect("piped"));
            let packets = (each * threads) as u64;
            Ok(Rival { child, laps, answers: BufReader::new(answers), packets, _texts: file })
        };
        start().map(Some).map_err(|error| format!("{PROGRAM}: {error}"))
    }

    /// One of its sessions.
    pub(super) fn lap(&mut self) -> LapResult {
        let mut line = String::new();
        let asked = self.laps.as_mut().expect("open until the drop").write_all(b"lap\n");
        asked
            .and_then(|()| self.answers.read_line(&mut line))
            .map_err(|error| format!("{PROGRAM}: {error}"))?;
        lap_of(&line, self.packets).map_err(|answer| format!("{PROGRAM}: {answer}"))
    }
}

impl Drop for Rival {
    fn drop(&mut self) {
        drop(self.laps.take());
        let _ = self.child.wait();
    }
}

/// The lap in an answer: nanoseconds of writing, nanoseconds of ending, and the packets that came
/// out, which must be all.
fn lap_of(answer: &str, packets: u64) -> LapResult {
    let numbers: Result<Vec<u64>, _> = answer.split_whitespace().map(str::parse).collect();
    match numbers.as_deref() {
        Ok(&[writing, ending, found]) if found == packets => {
            Ok(Lap { elapsed: Duration::from_nanos(writing + ending), units: packets })
        }
        Ok(&[_, _, found]) => Err(format!("{found} packets, not {packets}")),
        _ => Err(format!("no answer: {answer:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_is_a_lap_if_no_packet_is_missing() {
        let lap = lap_of("700 300 10\n", 10).unwrap();
        assert_eq!((lap.elapsed, lap.units), (Duration::from_nanos(1000), 10));
        assert_eq!(lap_of("700 300 9\n", 10).unwrap_err(), "9 packets, not 10");
        assert!(lap_of("", 10).is_err() && lap_of("1 2 x", 10).is_err());
    }
}
