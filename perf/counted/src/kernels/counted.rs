//! The kernels' work for instruction counts: one piece, prepared beforehand.

use super::fields::{self, Scanning};
use super::shapes::{Chunks, Packets, chunks, packets};
use super::walk::{self, Walking};
use super::{Version, Work};
use watershed_simd::{Kernels, level};

/// A piece of work and who does it.
pub struct Counted {
    work: Box<dyn Work>,
    version: Version,
}

/// What a benchmark counts, and how many of them, by the benchmark's name: "simd/KERNEL_SHAPE",
/// "simd/KERNEL_SHAPE_plain".
pub fn units(benchmark: &str) -> Option<(&'static str, u64)> {
    let name = benchmark.strip_prefix("simd/")?;
    let name = name.strip_suffix("_plain").unwrap_or(name);
    let plain = true;
    let (unit, counted) = if let Some(shape) = name.strip_prefix("walk_one_") {
        ("fragment", Counted::walk(shape, plain))
    } else {
        ("packet", Counted::fields(name.strip_prefix("fields_")?, plain))
    };
    Some((unit, counted.run().work.check().ok()?))
}

impl Counted {
    fn new(mut work: impl Work + 'static, plain: bool) -> Counted {
        assert_eq!(level::ignored_request(), None, "the level that is to be counted cannot run here");
        work.prepare(0);
        let version = if plain { Version::Plain } else { Version::Chosen(Kernels::chosen()) };
        Counted { work: Box::new(work), version }
    }

    /// 32 chunks: `real`, `dense`, `one_byte`, `two_byte`, `four_byte` or `mixed`; by the plain
    /// loop or the level in use.
    ///
    /// # Panics
    /// If there is no such shape.
    pub fn walk(shape: &str, plain: bool) -> Counted {
        let shape = match shape {
            "real" => Chunks::Real,
            "dense" => Chunks::Dense,
            "one_byte" => Chunks::OneByte,
            "two_byte" => Chunks::TwoByte,
            "four_byte" => Chunks::FourByte,
            "mixed" => Chunks::Mixed,
            _ => panic!("no shape {shape}"),
        };
        Counted::new(Walking::new(chunks(shape, walk::BATCH)), plain)
    }

    /// 256 packets: `track_event`, `counter` or `cut`.
    ///
    /// # Panics
    /// If there is no such shape.
    pub fn fields(shape: &str, plain: bool) -> Counted {
        let shape = match shape {
            "track_event" => Packets::TrackEvent,
            "counter" => Packets::Counter,
            "cut" => Packets::Cut,
            _ => panic!("no shape {shape}"),
        };
        Counted::new(Scanning::new(packets(shape, fields::BATCH)), plain)
    }

    /// Does the work. What is returned is dropped outside of the count.
    #[must_use]
    pub fn run(mut self) -> Counted {
        let _ = self.work.run(self.version);
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_have_units() {
        assert_eq!(units("simd/fields_counter_plain"), Some(("packet", fields::BATCH as u64)));
        let of_walk = units("simd/walk_one_real").expect("a benchmark of that name");
        assert!(of_walk.0 == "fragment" && of_walk.1 > 0, "{of_walk:?}");
        assert_eq!(units("simd/walk_one_real_plain"), Some(of_walk));
        assert_eq!((units("engine/clone_8mb"), units("simd/elsewhere")), (None, None));
    }

    #[test]
    fn what_is_counted_gives_the_right_answer() {
        for counted in [Counted::walk("real", false), Counted::fields("cut", false)] {
            assert!(counted.run().work.check().is_ok());
        }
    }
}
