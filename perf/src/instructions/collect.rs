//! Collecting the counts of a finished run of `benches/instructions.rs`, and the files of any
//! counting program.

use super::baseline::{Count, Counts, Toolchain};
use super::callgrind::{self, Profile};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
pub use watershed_counted::units;

/// Functions below this part of a benchmark's total are left out of what is kept.
const SMALLEST_PART: f64 = 0.001;

/// The profiles below `folder` (`target/iai`) of the benchmark `instructions`, by the benchmark's
/// name.
///
/// # Errors
/// As [`outputs`], and when one is not understood.
pub fn profiles(folder: &Path) -> Result<BTreeMap<String, Profile>, String> {
    let profile = |(name, output): (String, PathBuf)| {
        let text =
            std::fs::read_to_string(&output).map_err(|error| format!("{}: {error}", output.display()))?;
        let profile = callgrind::parse(&text).map_err(|error| format!("{}: {error}", output.display()))?;
        Ok((name, profile))
    };
    outputs(folder)?.into_iter().map(profile).collect()
}

/// Callgrind's output files below `folder`, of all counting programs, by the benchmark's name:
/// "GROUP/FUNCTION_CASE".
///
/// # Errors
/// When there are none.
pub fn outputs(folder: &Path) -> Result<BTreeMap<String, PathBuf>, String> {
    let mut outputs = BTreeMap::new();
    let packages = folders(folder)?;
    for program in packages.iter().map(|package| folders(package)).collect::<Result<Vec<_>, _>>()?.concat() {
        for group in folders(&program)? {
            for benchmark in folders(&group)? {
                let (group, case) = (file_name(&group), file_name(&benchmark));
                let output = |part: &str| benchmark.join(format!("callgrind.{case}{part}.out"));
                // Of a program with several threads the first one is what is counted.
                let first_thread = output(".t1.p1");
                let output = if first_thread.is_file() { first_thread } else { output("") };
                let (function, case) = case.split_once('.').unwrap_or((case, ""));
                outputs.insert(format!("{group}/{function}_{}", case.trim_start_matches('_')), output);
            }
        }
    }
    if outputs.is_empty() { Err(format!("no counts in {}", folder.display())) } else { Ok(outputs) }
}

fn folders(path: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = std::fs::read_dir(path).map_err(|error| format!("{}: {error}", path.display()))?;
    let mut folders: Vec<PathBuf> =
        entries.filter_map(|entry| Some(entry.ok()?.path())).filter(|p| p.is_dir()).collect();
    folders.sort();
    Ok(folders)
}

fn file_name(path: &Path) -> &str {
    path.file_name().and_then(|name| name.to_str()).unwrap_or_default()
}

/// The counts of a run, to be judged or kept.
///
/// # Errors
/// As [`profiles`], and when a benchmark's units are not known or the toolchain cannot be asked.
pub fn counts(folder: &Path) -> Result<Counts, String> {
    let mut benchmarks = BTreeMap::new();
    for (name, profile) in profiles(folder)? {
        let (unit, units) = units(&name).ok_or_else(|| format!("{name}: what it counts is not known"))?;
        benchmarks.insert(name, count(profile, unit, units));
    }
    check_copies(&benchmarks)?;
    Ok(Counts { toolchain: Toolchain::here()?, benchmarks })
}

/// The C library's copy routine was held at SSE2 (see [`watershed_counted::FIXED_ENVIRONMENT`]):
/// the plain copies took as many instructions as that one needs. A wider one needs half of them.
fn check_copies(benchmarks: &BTreeMap<String, Count>) -> Result<(), String> {
    const SSE2_PER_CHUNK: std::ops::Range<f64> = 500.0..620.0;
    match benchmarks.get("engine/write_rival_memcpy").map(Count::per_unit) {
        Some(per_chunk) if cfg!(target_arch = "x86_64") && !SSE2_PER_CHUNK.contains(&per_chunk) => Err(
            format!("a plain copy took {per_chunk:.0} instructions a chunk: GLIBC_TUNABLES took no effect"),
        ),
        _ => Ok(()),
    }
}

fn count(profile: Profile, unit: &str, units: u64) -> Count {
    let smallest = (profile.total as f64 * SMALLEST_PART) as u64;
    let functions = profile.own.into_iter().filter(|(_, own)| *own > smallest).collect();
    Count { instructions: profile.total, unit: unit.into(), units, functions }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_become_names_and_small_functions_are_left_out() {
        let folder = tempfile::tempdir().unwrap();
        let case = folder.path().join("watershed-perf/instructions/engine/clone._8mb");
        std::fs::create_dir_all(&case).unwrap();
        let text = "events: Ir\nsummary: 10001\n\nfn=large\n1 10000\n\nfn=small\n1 1\n";
        std::fs::write(case.join("callgrind.clone._8mb.out"), text).unwrap();
        let profiles = profiles(folder.path()).unwrap();
        assert_eq!(profiles.keys().collect::<Vec<_>>(), ["engine/clone_8mb"]);
        let count = count(profiles["engine/clone_8mb"].clone(), "clone", 1);
        assert_eq!((count.instructions, count.functions), (10_001, [("large".to_owned(), 10_000)].into()));
    }

    #[test]
    fn copies_by_another_routine_are_noticed() {
        let of = |instructions| {
            let count = Count { instructions, unit: "chunk".into(), units: 1, functions: BTreeMap::new() };
            check_copies(&[("engine/write_rival_memcpy".to_owned(), count)].into())
        };
        assert_eq!(of(554), Ok(()));
        #[cfg(target_arch = "x86_64")]
        assert!(of(282).unwrap_err().contains("GLIBC_TUNABLES"));
    }

    #[test]
    fn nothing_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        assert!(profiles(folder.path()).is_err());
        std::fs::create_dir_all(folder.path().join("watershed-perf/instructions")).unwrap();
        assert!(profiles(folder.path()).unwrap_err().starts_with("no counts in"));
    }
}
