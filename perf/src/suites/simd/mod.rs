//! The kernels of `watershed-simd`, each version against the straightforward loop in the same run.
//!
//! Names are `walk_one_<shape>`, `walk_many_<shape>`, `decode_<shape>`, `fields_<shape>`, `copy_<shape>`. The value is that of the level in
//! use; `ratio_to_plain` is the plain loop's time over it, `ratio_to_plain_<level>` the same for each level that can run here, and
//! `ratio_to_unsafe` the time of the unsafe function over that of the safe one.
//!
//! What is measured is fresh: a lap walks chunks that were copied into place just before, as the engine's are, and whose headers no
//! branch predictor has seen in that order often enough to know them by heart. The list of jobs of `walk_many` is made beforehand.

mod copy;
mod decode;
mod fields;
mod walk;

use super::{Suite, Workload};
use crate::measure::{Lap, LapResult, Options, Series, WrongAnswer, interleave};
use crate::report::Measurement;
use std::time::Duration;
use watershed_counted::kernels::{Version, Work};
use watershed_simd::{Kernels, Level};

/// The suite.
pub fn suite() -> Suite {
    Suite {
        name: "simd",
        about: "fragment walk, varint decode, field scan, copy: each level against the plain loop",
        pinned: true,
        workloads: || {
            let kernels = [walk::workloads(), decode::workloads(), fields::workloads(), copy::workloads()];
            kernels.into_iter().flatten().collect()
        },
    }
}

/// The most levels that one processor can have, the portable one included.
const LEVELS: usize = 3;

/// Lets all versions do the same work and reports the level in use. `what` is the unit.
fn contest<W: Work>(
    name: &str,
    what: &str,
    options: &Options,
    pieces: usize,
    has_unsafe: bool,
    work: impl Fn() -> W,
) -> Result<Measurement, WrongAnswer> {
    let chosen = Kernels::chosen();
    let levels: Vec<Kernels> = Level::available().filter_map(Kernels::at).collect();
    let level = |i: usize| Version::Level(*levels.get(i).unwrap_or(&chosen));
    let versions: [Version; 3 + LEVELS] =
        [Version::Plain, Version::Chosen(chosen), Version::Unsafe(chosen), level(0), level(1), level(2)];
    let contestants = versions.map(|version| {
        let mut work = work();
        Box::new(move || lap(&mut work, version, pieces)) as Box<dyn FnMut() -> LapResult>
    });
    let [plain, safe, raw, by_level @ ..] = interleave(options, contestants)?;
    let mut measurement = Measurement::ns_per(what, name, &safe)
        .with("ratio_to_plain", safe.speedup_over(&plain))
        .with("plain", plain.median());
    if has_unsafe {
        measurement = measurement.with("ratio_to_unsafe", safe.speedup_over(&raw));
    }
    let by_level: &[Series; LEVELS] = &by_level;
    for (kernels, series) in levels.iter().zip(by_level) {
        let name = format!("ratio_to_plain_{}", kernels.level());
        measurement = measurement.with(&name, series.speedup_over(&plain));
    }
    Ok(measurement)
}

/// All pieces once.
fn lap(work: &mut impl Work, version: Version, pieces: usize) -> LapResult {
    let (mut elapsed, mut units) = (Duration::ZERO, 0);
    for index in 0..pieces {
        work.prepare(index);
        elapsed += work.run(version);
        units += work.check()?;
    }
    Ok(Lap { elapsed, units })
}

/// How many pieces there are, and of how many chunks each: at full size enough that nothing is known by heart.
fn pieces(options: &Options) -> usize {
    options.size(40, 2)
}

/// A workload of a kernel for each of its shapes.
fn each_shape<S: Copy + 'static>(
    kernel: &str,
    shapes: &[(&'static str, S)],
    run: fn(&str, S, &Options) -> Result<Measurement, WrongAnswer>,
) -> Vec<Workload> {
    let workload = |&(shape_name, shape): &(&str, S)| {
        let name = format!("{kernel}_{shape_name}");
        Workload::new(name.clone(), move |options| run(&name, shape, options))
    };
    shapes.iter().map(workload).collect()
}
