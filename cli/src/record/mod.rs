//! `watershed record`: a session in this process, from the arguments to a finished trace file.

use crate::exit::{Exit, Failure};

/// Arguments of `watershed record`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

/// Records, and says at the end what was recorded and what was lost.
pub(crate) fn run(_args: &Args, _verbose: bool) -> Result<Exit, Failure> {
    Err(Failure::failed("`record` is not in this build yet"))
}
