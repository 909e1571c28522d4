//! Perfetto's own client, service and buffer with the same packets.

use crate::measure::{Lap, LapResult, WrongAnswer};
use crate::suites::rival::RivalProgram;
use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;
use tempfile::NamedTempFile;

const PROGRAM: &str = "target/rivals/release/watershed-rival-perfetto";

/// The running program.
pub(super) struct Rival {
    program: RivalProgram,
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
        let write = || -> std::io::Result<NamedTempFile> {
            let mut file = NamedTempFile::new()?;
            for text in texts {
                file.write_all(&(text.len() as u32).to_le_bytes())?;
                file.write_all(text)?;
            }
            Ok(file)
        };
        let file = write().map_err(|error| error.to_string())?;
        let arguments = [file.path().into(), OsString::from(each.to_string()), threads.to_string().into()];
        let program = RivalProgram::start(PROGRAM, arguments)?;
        let packets = (each * threads) as u64;
        Ok(program.map(|program| Rival { program, packets, _texts: file }))
    }

    /// One of its sessions.
    pub(super) fn lap(&mut self) -> LapResult {
        self.program.ask("lap", |answer| lap_of(answer, self.packets))
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
