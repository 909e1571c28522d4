//! Perfetto's `traced` and `traced_probes`, where their programs are found.
//!
//! ```text
//!   suite ── start ──> watershed-perf peer          (a process group of its own)
//!                        ├── traced                 private sockets
//!                        └── traced_probes          the kernel's top-level buffer
//!     ─ end of input ─>  ends both, then that buffer is as it was before
//! ```

use super::top_buffer::TopBuffer;
use crate::measure::WrongAnswer;
use crate::suites::processes::perfetto::{Running, connect, find, wait_until};
use crate::suites::processes::{Process, Role, say};
use serde::{Deserialize, Serialize};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use watershed_client::consumer::Consumer;
use watershed_probes::FTRACE_NAME;

/// Both programs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Programs {
    traced: PathBuf,
    traced_probes: PathBuf,
}

impl Programs {
    /// `None` where they are not found.
    pub(super) fn find() -> Result<Option<Programs>, WrongAnswer> {
        let found = find(["traced", "traced_probes"])?;
        Ok(found.map(|[traced, traced_probes]| Programs { traced, traced_probes }))
    }
}

/// The process that starts both programs, and ends them whatever becomes of the suite.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PerfettoRole {
    programs: Programs,
}

/// What that process says once the data sources are there.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Ready {
    traced: i32,
    traced_probes: i32,
    /// Where the sockets are.
    folder: PathBuf,
}

impl PerfettoRole {
    pub(in crate::suites) fn play(self) -> Result<(), String> {
        // Both are dropped last, after the programs have ended.
        let _top_buffer = TopBuffer::keep()?;
        let sockets = tempfile::tempdir().map_err(|error| error.to_string())?;
        let folder = sockets.path().to_owned();
        let mut traced = Running::start(&self.programs.traced, &folder)?;
        let mut probes = Running::start(&self.programs.traced_probes, &folder)?;
        wait_until(&mut [&mut traced, &mut probes], || check_ftrace(&folder))?;
        say(&Ready { traced: traced.pid(), traced_probes: probes.pid(), folder })?;
        std::io::stdin().read_to_end(&mut Vec::new()).map(drop).map_err(|error| error.to_string())
    }
}

fn check_ftrace(folder: &Path) -> Result<(), WrongAnswer> {
    let state = connect(folder)
        .and_then(|mut consumer| consumer.query_state(false).map_err(|error| error.to_string()));
    let sources = state.map_err(|error| format!("traced: {error}"))?.data_sources;
    let is_there = sources.iter().any(|source| source.name() == FTRACE_NAME);
    if is_there { Ok(()) } else { Err("traced_probes does not offer linux.ftrace".to_owned()) }
}

/// Both programs, running.
pub(super) struct Perfetto {
    _process: Process,
    ready: Ready,
}

impl Perfetto {
    pub(super) fn start(programs: &Programs) -> Result<Perfetto, WrongAnswer> {
        let role = Role::Perfetto(PerfettoRole { programs: programs.clone() });
        let mut process = Process::start(&role)?;
        let ready = process.answer().map_err(|error| format!("traced and traced_probes: {error}"))?;
        Ok(Perfetto { _process: process, ready })
    }

    pub(super) fn traced_pid(&self) -> i32 {
        self.ready.traced
    }

    pub(super) fn traced_probes_pid(&self) -> i32 {
        self.ready.traced_probes
    }

    pub(super) fn consumer(&self) -> Result<Consumer, WrongAnswer> {
        connect(&self.ready.folder)
    }
}
