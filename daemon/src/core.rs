//! What both ports work on: the service, the files of its sessions, the log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::IoSlice;
use std::path::{Path, PathBuf};

use watershed_service::{ClockReadings, FileAction, Service, SessionId};
use watershed_shell::trace_file::{Output, Sink};

use crate::log::Log;
use crate::output_path;

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) service: Service,
    pub(crate) log: Log,
    files: BTreeMap<SessionId, SessionFile>,
    pub(crate) output_folder: Option<PathBuf>,
}

/// The file of a session.
#[derive(Debug)]
struct SessionFile {
    output: Output,
    /// A write has failed; what comes later is not tried.
    has_failed: bool,
}

impl Core {
    pub(crate) fn new(service: Service, log: Log, output_folder: Option<PathBuf>) -> Core {
        Core { service, log, files: BTreeMap::new(), output_folder }
    }

    /// From now on the session writes into the file.
    pub(crate) fn add_file(&mut self, session_id: SessionId, file: File) {
        if let Some(output) = Output::new(Sink::File(file)) {
            self.files.insert(session_id, SessionFile { output, has_failed: false });
        }
    }

    /// Whether a session with a file wants something done.
    pub(crate) fn has_file_work(&self) -> bool {
        self.service.has_file_work()
    }

    /// Does one thing that a session with a file wants done. False if there is none.
    pub(crate) fn work_on_file(&mut self, now: &ClockReadings) -> bool {
        let Some(action) = self.service.poll_file() else { return false };
        match action {
            FileAction::Write(session_id) => {
                let file = self.files.get_mut(&session_id);
                let mut out = write_into(file);
                self.service.write_file(session_id, &mut out, now);
            }
            FileAction::Sync(session_id) => {
                let synced = self.files.get_mut(&session_id).map_or(Ok(()), |file| file.output.sync());
                self.service.handle_file_done(session_id, synced.map_err(|error| error.to_string()), now);
            }
            FileAction::Close(session_id) => {
                self.files.remove(&session_id);
                self.service.handle_file_done(session_id, Ok(()), now);
            }
        }
        true
    }
}

/// Makes the file that a config's `output_path` names.
pub(crate) fn create_file(folder: Option<&Path>, path: &str) -> Result<File, String> {
    let folder = folder.ok_or_else(|| {
        "output_path is not allowed: the daemon was started without --allow-output-path".to_owned()
    })?;
    output_path::create(folder, path)
}

/// What writes whole packets into the file, and nothing after a failure.
fn write_into(mut file: Option<&mut SessionFile>) -> impl FnMut(&[IoSlice<'_>]) -> Result<(), String> {
    move |slices| {
        let Some(file) = file.as_deref_mut().filter(|file| !file.has_failed) else {
            return Err("the file is closed".to_owned());
        };
        let (_, written) = file.output.write(slices);
        file.has_failed = written.is_err();
        written.map_err(|error| error.to_string())
    }
}
