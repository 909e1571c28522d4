//! Which instruction sets this processor has, and which of them is used.
//!
//! Detection runs once; its result is kept in one byte, the crate's only atomic.

use std::sync::atomic::{AtomicU8, Ordering};

/// An instruction set that the kernels are written for, from the plainest up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
pub enum Level {
    /// No intrinsics: every processor.
    Scalar = 1,
    /// x86-64 with AVX2 and BMI1/BMI2 (Intel from 2013, AMD from 2020: before Zen 3 `pext` is
    /// microcode).
    Avx2 = 2,
    /// x86-64 with AVX-512 F, BW, VL, VBMI and VPOPCNTDQ (Intel from Ice Lake, AMD from Zen 4).
    Avx512 = 3,
    /// aarch64 with NEON, which all of them have.
    Neon = 4,
}

impl Level {
    /// Every level, whether this processor has it or not.
    pub const ALL: [Level; 4] = [Level::Scalar, Level::Avx2, Level::Avx512, Level::Neon];

    /// The name that [`ENVIRONMENT_VARIABLE`] takes and `--version --verbose` shows.
    pub const fn name(self) -> &'static str {
        match self {
            Level::Scalar => "scalar",
            Level::Avx2 => "avx2",
            Level::Avx512 => "avx512",
            Level::Neon => "neon",
        }
    }

    /// The level of this name.
    pub fn from_name(name: &str) -> Option<Level> {
        Level::ALL.into_iter().find(|level| level.name() == name)
    }

    /// Whether this build has kernels for the level and this processor can run them.
    pub fn is_available(self) -> bool {
        match self {
            Level::Scalar => true,
            #[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
            Level::Avx2 => crate::x86_64::has_avx2(),
            #[cfg(all(feature = "intrinsics", target_arch = "x86_64"))]
            Level::Avx512 => crate::x86_64::has_avx2() && crate::x86_64::has_avx512(),
            #[cfg(all(feature = "intrinsics", target_arch = "aarch64"))]
            Level::Neon => true,
            _ => false,
        }
    }

    /// The levels that can run here, from the plainest up.
    pub fn available() -> impl Iterator<Item = Level> {
        Level::ALL.into_iter().filter(|level| level.is_available())
    }

    /// The level that is used unless the environment names another: the highest that can run here.
    pub fn best() -> Level {
        Level::available().last().unwrap_or(Level::Scalar)
    }
}

impl std::fmt::Display for Level {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

/// Names the level to use: `scalar`, `avx2`, `avx512` or `neon`. Read once, at the first use of a
/// kernel.
pub const ENVIRONMENT_VARIABLE: &str = "WATERSHED_SIMD";

/// The level in use, as its number; 0 before the first use.
static CHOSEN: AtomicU8 = AtomicU8::new(0);

/// The level whose kernels the crate's functions use.
///
/// The first call detects it, or takes what [`ENVIRONMENT_VARIABLE`] names if that can run here; a
/// name that is unknown or cannot run here is ignored (see [`ignored_request`]).
#[inline]
pub fn chosen() -> Level {
    // Relaxed: the byte publishes nothing else.
    match CHOSEN.load(Ordering::Relaxed) {
        1 => Level::Scalar,
        2 => Level::Avx2,
        3 => Level::Avx512,
        4 => Level::Neon,
        _ => choose(),
    }
}

#[cold]
fn choose() -> Level {
    let level = requested().ok().flatten().unwrap_or_else(Level::best);
    // Relaxed: threads that race here all store the same level.
    CHOSEN.store(level as u8, Ordering::Relaxed);
    level
}

/// The level that the environment asks for, if any; the text if it is none that can run here.
fn requested() -> Result<Option<Level>, String> {
    let Some(name) = std::env::var_os(ENVIRONMENT_VARIABLE) else { return Ok(None) };
    let name = name.to_string_lossy();
    match Level::from_name(&name) {
        Some(level) if level.is_available() => Ok(Some(level)),
        _ => Err(name.into_owned()),
    }
}

/// What [`ENVIRONMENT_VARIABLE`] says if it names no level that can run here: for a warning to the
/// user.
pub fn ignored_request() -> Option<String> {
    requested().err()
}
