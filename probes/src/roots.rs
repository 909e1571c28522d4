//! Where the kernel's file systems are mounted.

use std::path::PathBuf;

/// The two trees that the probes read. Tests point them at a fixture; a container may point them at
/// its host's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Roots {
    /// Usually `/proc`.
    pub proc: PathBuf,
    /// Usually `/sys`.
    pub sys: PathBuf,
}

impl Default for Roots {
    fn default() -> Self {
        Self { proc: PathBuf::from("/proc"), sys: PathBuf::from("/sys") }
    }
}
