//! A service and the data sources beside it: ours, and Perfetto's where there are such programs.

use super::rival::{Perfetto, Programs};
use super::roles::start_probes;
use super::top_buffer;
use crate::measure::WrongAnswer;
use crate::suites::processes::daemon::{RunningDaemon, Workers};
use crate::suites::processes::perfetto::not_found;
use crate::suites::processes::{Process, cpu_ns};
use watershed_client::consumer::Consumer;

/// Whose programs record.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Whose<'a> {
    Ours,
    Theirs(&'a Programs),
}

/// The rival, where it can be measured; says why if not.
pub(super) fn rival() -> Result<Option<Programs>, WrongAnswer> {
    let found = Programs::find()?.ok_or_else(not_found);
    let usable = found.and_then(|programs| top_buffer::check_free().map(|()| programs));
    Ok(usable.inspect_err(|reason| eprintln!("traced_probes is not measured: {reason}")).ok())
}

/// Running processes, and a consumer of them.
pub(super) struct Recorders {
    pub(super) consumer: Consumer,
    running: Running,
}

enum Running {
    /// The data sources end first.
    Ours(Process, RunningDaemon),
    Theirs(Perfetto),
}

impl Recorders {
    pub(super) fn start(whose: Whose<'_>) -> Result<Recorders, WrongAnswer> {
        let (consumer, running) = match whose {
            Whose::Ours => {
                let daemon = RunningDaemon::start(Workers::default())?;
                let probes = start_probes(daemon.producer_socket())?;
                (daemon.consumer()?, Running::Ours(probes, daemon))
            }
            Whose::Theirs(programs) => {
                let perfetto = Perfetto::start(programs)?;
                (perfetto.consumer()?, Running::Theirs(perfetto))
            }
        };
        Ok(Recorders { consumer, running })
    }

    /// The process of the data sources.
    pub(super) fn probes_pid(&self) -> i32 {
        match &self.running {
            Running::Ours(probes, _) => probes.pid(),
            Running::Theirs(perfetto) => perfetto.traced_probes_pid(),
        }
    }

    fn service_pid(&self) -> i32 {
        match &self.running {
            Running::Ours(_, daemon) => daemon.pid(),
            Running::Theirs(perfetto) => perfetto.traced_pid(),
        }
    }

    /// CPU time of the data sources' process so far.
    pub(super) fn probes_ns(&self) -> Result<u64, WrongAnswer> {
        Ok(cpu_ns(self.probes_pid())?.values().sum())
    }

    /// CPU time of the service's process so far.
    pub(super) fn service_ns(&self) -> Result<u64, WrongAnswer> {
        Ok(cpu_ns(self.service_pid())?.values().sum())
    }
}
