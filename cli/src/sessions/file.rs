//! A trace file that takes its name when it is whole.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufWriter, Write as _};
use std::path::{Path, PathBuf};

use crate::exit::Failure;

/// A file in the making: beside its place, under a name of its own. Removed unless it is finished.
pub(super) struct NewFile {
    path: PathBuf,
    partial: PathBuf,
    file: BufWriter<File>,
    is_finished: bool,
}

impl NewFile {
    pub(super) fn create(path: &Path) -> Result<NewFile, Failure> {
        let Some(name) = path.file_name() else {
            return Err(Failure::usage(format_args!("{} names no file", path.display())));
        };
        let mut partial = name.to_owned();
        partial.push(format!(".{}.partial", std::process::id()));
        let partial = path.with_file_name(partial);
        // A service that writes into it may want to read it, too, for clones.
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(&partial);
        let file = file.map_err(|error| cannot("create", path, &error))?;
        Ok(NewFile { path: path.to_owned(), partial, file: BufWriter::new(file), is_finished: false })
    }

    pub(super) fn writer(&mut self) -> &mut BufWriter<File> {
        &mut self.file
    }

    /// A second handle of it, for the service.
    pub(super) fn handle(&self) -> Result<File, Failure> {
        self.file.get_ref().try_clone().map_err(|error| cannot("open", &self.path, &error))
    }

    /// It is whole, and takes the place of what was there under its name. Returns its size, in
    /// bytes.
    pub(super) fn finish(mut self) -> Result<u64, Failure> {
        let written = self.file.flush().and_then(|()| self.file.get_ref().sync_data());
        let size = written.and_then(|()| self.file.get_ref().metadata());
        let size_bytes = size.map_err(|error| cannot("write", &self.path, &error))?.len();
        self.keep()?;
        Ok(size_bytes)
    }

    /// Others go on to write into it, under its name.
    pub(super) fn keep(mut self) -> Result<(), Failure> {
        fs::rename(&self.partial, &self.path).map_err(|error| cannot("create", &self.path, &error))?;
        self.is_finished = true;
        Ok(())
    }
}

impl Drop for NewFile {
    fn drop(&mut self) {
        if !self.is_finished {
            let _ = fs::remove_file(&self.partial);
        }
    }
}

fn cannot(what: &str, path: &Path, error: &io::Error) -> Failure {
    Failure::failed(format_args!("cannot {what} {}: {error}", path.display()))
}
