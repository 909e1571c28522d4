//! The kernels of `watershed-simd`: work for each, that any version of it can do.

pub mod counted;
pub mod fields;
pub mod shapes;
pub mod walk;

use std::time::Duration;
use watershed_simd::Kernels;

/// Who does the work of a contest.
#[derive(Clone, Copy)]
pub enum Version {
    /// The plain loop.
    Plain,
    /// The level in use.
    Chosen(Kernels),
    /// A given level.
    Level(Kernels),
}

impl Version {
    /// The kernels, where it is not the plain loop.
    pub fn kernels(self) -> Option<Kernels> {
        match self {
            Version::Plain => None,
            Version::Chosen(kernels) | Version::Level(kernels) => Some(kernels),
        }
    }
}

/// Several pieces of work that any version can do.
pub trait Work {
    /// Puts piece `index` in place. Not timed.
    fn prepare(&mut self, index: usize);
    /// Does it, and says how long that took.
    fn run(&mut self, version: Version) -> Duration;
    /// Units that were done. Not timed.
    ///
    /// # Errors
    /// What came out instead of the right answer.
    fn check(&mut self) -> Result<u64, String>;
}
