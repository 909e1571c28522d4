//! What both ports work on: the service, the files of its sessions, the log.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use watershed_service::Service;

use crate::files::Files;
use crate::log::Log;
use crate::output_path;
use crate::polling::Polling;
use crate::waiting::WaitingThreads;

#[derive(Debug)]
pub(crate) struct Core {
    pub(crate) service: Service,
    pub(crate) files: Files,
    pub(crate) waiting: WaitingThreads,
    pub(crate) log: Log,
    pub(crate) output_folder: Option<PathBuf>,
    pub(crate) polling: Arc<Polling>,
}

/// Makes the file that a config's `output_path` names.
pub(crate) fn create_file(folder: Option<&Path>, path: &str) -> Result<File, String> {
    let folder = folder.ok_or_else(|| {
        "output_path is not allowed: the daemon was started without --allow-output-path".to_owned()
    })?;
    output_path::create(folder, path)
}
