//! The CPUs of the machine, from /sys.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The numbers of the CPUs that the machine has or could have, sorted, and their directories.
pub(crate) fn cpu_dirs(sys: &Path) -> io::Result<Vec<(u32, PathBuf)>> {
    let mut cpus: Vec<(u32, PathBuf)> = fs::read_dir(sys.join("devices/system/cpu"))?
        .filter_map(Result::ok)
        .filter_map(|e| Some((e.file_name().to_str()?.strip_prefix("cpu")?.parse().ok()?, e.path())))
        .collect();
    cpus.sort_unstable();
    Ok(cpus)
}
