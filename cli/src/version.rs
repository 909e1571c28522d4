//! `--version`, and with `--verbose` what was chosen for this processor.

use std::io;

use watershed_simd::level;

use crate::exit::{Exit, Failure, printed};

pub(crate) fn print(verbose: bool) -> Result<Exit, Failure> {
    printed(write_version(&mut io::stdout().lock(), verbose))?;
    Ok(Exit::Done)
}

fn write_version(out: &mut impl io::Write, verbose: bool) -> io::Result<()> {
    writeln!(out, "watershed {}", env!("CARGO_PKG_VERSION"))?;
    if verbose {
        writeln!(out, "target: {}-{}", std::env::consts::ARCH, std::env::consts::OS)?;
        writeln!(out, "simd: {}", level::chosen())?;
        if let Some(ignored) = level::ignored_request() {
            writeln!(out, "simd: WATERSHED_SIMD={ignored} cannot run here")?;
        }
    }
    out.flush()
}
