//! `watershed manuals`: man pages and shell completions from the command line's own definition.
//! Only what makes the packages is built with it.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use clap_complete::Shell;

use crate::exit::{Exit, Failure};

/// Arguments of `watershed manuals`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Folder for the man pages; made if it is not there
    man_folder: PathBuf,

    /// Folder for the completions of bash, zsh and fish; likewise
    completions_folder: PathBuf,
}

/// `definition` is that of the whole command line.
pub(crate) fn run(args: &Args, definition: clap::Command) -> Result<Exit, Failure> {
    write(&args.man_folder, &args.completions_folder, definition)
        .map_err(|error| Failure::failed(format_args!("cannot write manuals: {error}")))?;
    Ok(Exit::Done)
}

fn write(man_folder: &Path, completions_folder: &Path, mut definition: clap::Command) -> io::Result<()> {
    fs::create_dir_all(man_folder)?;
    fs::create_dir_all(completions_folder)?;
    clap_mangen::generate_to(definition.clone(), man_folder)?;
    for shell in [Shell::Bash, Shell::Zsh, Shell::Fish] {
        clap_complete::generate_to(shell, &mut definition, "watershed", completions_folder)?;
    }
    Ok(())
}
