//! The traces of a session's triggers: each a clone, on a connection of its own. One is written at
//! a time; triggers that come meanwhile wait on the session's connection.

use std::path::PathBuf;
use std::time::Instant;

use watershed_client::consumer::CloneOf;
use watershed_shell::address::Address;
use watershed_wire::protos::TraceStats;
use watershed_wire::protos::observable_events::CloneTriggerHit;

use super::super::clones::{Numbered, Taken, Trace};
use super::super::end::End;
use super::super::session::Teller;
use super::super::tally::Tally;
use crate::exit::Failure;
use crate::sessions::Service;
use crate::sessions::clone::clone_into;

pub(super) struct Clones {
    files: Numbered,
    service: Service,
    teller: Teller,
    started: Instant,
    /// How many triggers have come.
    number: u64,
}

impl Clones {
    /// `socket` is where the service listens for consumers.
    pub(super) fn new(files: Numbered, socket: Address, teller: Teller) -> Self {
        let service = Service { socket: Some(socket) };
        Clones { files, service, teller, started: Instant::now(), number: 0 }
    }

    /// Writes the trace of a trigger and tells what has become of it. `end` makes of the clone's
    /// statistics what there is to say.
    pub(super) fn take(&mut self, hit: &CloneTriggerHit, end: impl FnOnce(Option<TraceStats>) -> End) {
        let time = self.started.elapsed();
        let path = self.files.path(self.number);
        self.number += 1;
        let written = path.and_then(|path| self.write(hit, path));
        let result = written.map(|(path, tally, stats)| Trace { path, time, tally, end: end(stats) });
        self.teller.taken(Taken { trigger: hit.trigger_name().to_owned(), result });
    }

    fn write(
        &self,
        hit: &CloneTriggerHit,
        path: PathBuf,
    ) -> Result<(PathBuf, Tally, Option<TraceStats>), Failure> {
        let of = CloneOf::Id(hit.tracing_session_id().cast_unsigned());
        let written = clone_into(&mut self.service.connect()?, &of, Some(hit), &path)?;
        let (tally, _) = Tally::of_file(&path)
            .map_err(|error| Failure::failed(format_args!("cannot read {}: {error}", path.display())))?;
        Ok((path, tally, written.stats))
    }
}
