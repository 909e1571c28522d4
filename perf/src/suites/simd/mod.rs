//! The kernels of `watershed-simd`, each version against the plain loop in the same run.
//!
//! Names are `walk_one_<shape>`, `fields_<shape>`, `copy_<shape>`. The value is that of
//! the level in use; `ratio_to_plain` is the plain loop's time over it, and
//! `ratio_to_plain_<level>` the same for each level that can run here.
//!
//! A lap works on chunks that were copied into place just before, as the engine's are. There are so
//! many that no branch predictor learns the order of their headers.

mod copy;
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
        about: "fragment walk, field scan, copy: each level against the plain loop",
        pinned: true,
        unavailable: || None,
        workloads: || {
            let kernels = [walk::workloads(), fields::workloads(), copy::workloads()];
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
    work: impl Fn() -> W,
) -> Result<Measurement, WrongAnswer> {
    let chosen = Kernels::chosen();
    let levels: Vec<Kernels> = Level::available().filter_map(Kernels::at).collect();
    let level = |i: usize| Version::Level(*levels.get(i).unwrap_or(&chosen));
    let versions: [Version; 2 + LEVELS] =
        [Version::Plain, Version::Chosen(chosen), level(0), level(1), level(2)];
    let contestants = versions.map(|version| {
        let mut work = work();
        Box::new(move || lap(&mut work, version, pieces)) as Box<dyn FnMut() -> LapResult>
    });
    let [plain, in_use, by_level @ ..] = interleave(options, contestants)?;
    let mut measurement = Measurement::ns_per(what, name, &in_use)
        .with("ratio_to_plain", in_use.speedup_over(&plain))
        .with("plain", plain.median());
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

/// The number of pieces: at full size too many for a branch predictor to learn.
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
