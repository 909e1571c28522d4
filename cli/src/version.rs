//! `--version`, and with `--verbose` what was chosen for this processor.

use std::io;

use crate::exit::{Exit, Failure, printed};

pub(crate) fn print(verbose: bool) -> Result<Exit, Failure> {
    printed(write_version(&mut io::stdout().lock(), verbose))?;
    Ok(Exit::Done)
}

fn write_version(out: &mut impl io::Write, verbose: bool) -> io::Result<()> {
    writeln!(out, "watershed {}", env!("CARGO_PKG_VERSION"))?;
    if verbose {
        writeln!(out, "target: {}-{}", std::env::consts::ARCH, std::env::consts::OS)?;
    }
    out.flush()
}
