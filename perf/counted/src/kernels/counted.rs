//! The kernels' work for instruction counts: one piece, prepared beforehand.

use super::decode::Decoding;
use super::fields::{self, Scanning};
use super::shapes::{Chunks, Packets, Rows, chunks, packets, rows};
use super::walk::{self, Walking};
use super::{Version, Work};
use watershed_simd::{Kernels, level};

/// A piece of work and who does it.
pub struct Counted {
    work: Box<dyn Work>,
    version: Version,
}

/// What a benchmark counts, and how many of them, by the benchmark's name: "simd/KERNEL_SHAPE", "simd/KERNEL_SHAPE_plain".
pub fn units(benchmark: &str) -> Option<(&'static str, u64)> {
    let name = benchmark.strip_prefix("simd/")?;
    let name = name.strip_suffix("_plain").unwrap_or(name);
    let plain = true;
    let (unit, counted) = if let Some(shape) = name.strip_prefix("walk_one_") {
        ("fragment", Counted::walk(shape, false, plain))
    } else if let Some(shape) = name.strip_prefix("walk_many_") {
        ("fragment", Counted::walk(shape, true, plain))
    } else if let Some(shape) = name.strip_prefix("decode_") {
        ("varint", Counted::decode(shape, plain))
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

    /// 32 chunks, one by one or together: `real`, `dense`, `one_byte`, `two_byte`, `four_byte` or `mixed`; by the plain loop or the
    /// level in use.
    ///
    /// # Panics
    /// If there is no such shape.
    pub fn walk(shape: &str, together: bool, plain: bool) -> Counted {
        let shape = match shape {
            "real" => Chunks::Real,
            "dense" => Chunks::Dense,
            "one_byte" => Chunks::OneByte,
            "two_byte" => Chunks::TwoByte,
            "four_byte" => Chunks::FourByte,
            "mixed" => Chunks::Mixed,
            _ => panic!("no shape {shape}"),
        };
        Counted::new(Walking::new(chunks(shape, walk::BATCH), together), plain)
    }

    /// A row of 4096 bytes of varints: `one_byte`, `two_byte`, `four_byte`, `small` or `mixed`.
    ///
    /// # Panics
    /// If there is no such shape.
    pub fn decode(shape: &str, plain: bool) -> Counted {
        let shape = match shape {
            "one_byte" => Rows::OneByte,
            "two_byte" => Rows::TwoByte,
            "four_byte" => Rows::FourByte,
            "small" => Rows::Small,
            "mixed" => Rows::Mixed,
            _ => panic!("no shape {shape}"),
        };
        Counted::new(Decoding::new(rows(shape, 1)), plain)
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
        assert_eq!(units("simd/decode_two_byte"), Some(("varint", 2048)));
        assert_eq!(units("simd/fields_counter_plain"), Some(("packet", fields::BATCH as u64)));
        assert_eq!(units("simd/walk_one_real"), units("simd/walk_many_real_plain"));
        assert_eq!((units("engine/clone_8mb"), units("simd/elsewhere")), (None, None));
    }

    #[test]
    fn what_is_counted_gives_the_right_answer() {
        for counted in [
            Counted::walk("real", true, false),
            Counted::decode("mixed", false),
            Counted::fields("cut", false),
        ] {
            assert!(counted.run().work.check().is_ok());
        }
    }
}
