//! The same work for instruction counts: one piece, prepared beforehand.

use super::decode::Decoding;
use super::fields::{self, Scanning};
use super::shapes::{Chunks, Packets, Rows, chunks, packets, rows};
use super::walk::{self, Walking};
use super::{Version, Work};
use watershed_simd::Kernels;

/// A piece of work and who does it.
pub struct Counted {
    work: Box<dyn Work>,
    version: Version,
}

impl Counted {
    fn new(mut work: impl Work + 'static, plain: bool) -> Counted {
        work.prepare(0);
        let version = if plain { Version::Plain } else { Version::Chosen(Kernels::chosen()) };
        Counted { work: Box::new(work), version }
    }

    /// 32 chunks, one by one or together: `real`, `dense`, `one_byte`, `two_byte` or `four_byte`; by the plain loop or the level in use.
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
            _ => panic!("no shape {shape}"),
        };
        Counted::new(Walking::new(chunks(shape, walk::BATCH), together), plain)
    }

    /// A row of 4096 bytes of varints: `one_byte`, `small` or `mixed`.
    ///
    /// # Panics
    /// If there is no such shape.
    pub fn decode(shape: &str, plain: bool) -> Counted {
        let shape = match shape {
            "one_byte" => Rows::OneByte,
            "small" => Rows::Small,
            "mixed" => Rows::Mixed,
            _ => panic!("no shape {shape}"),
        };
        Counted::new(Decoding::new(rows(shape, 1)), plain)
    }

    /// 256 packets: `track_event` or `counter`.
    ///
    /// # Panics
    /// If there is no such shape.
    pub fn fields(shape: &str, plain: bool) -> Counted {
        let shape = match shape {
            "track_event" => Packets::TrackEvent,
            "counter" => Packets::Counter,
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
