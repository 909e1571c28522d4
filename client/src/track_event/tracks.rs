//! Tracks besides those of threads: of work that moves between threads, and of counters.

use super::message::Message;
use super::process;

const UUID: u32 = 1;
const NAME: u32 = 2;
const PARENT_UUID: u32 = 5;
const COUNTER: u32 = 8;

/// A track that events name by its number, and sequences describe once.
pub(super) trait Described {
    fn uuid(&self) -> u64;
    /// Its `TrackDescriptor`.
    fn describe(&self, descriptor: &mut Message);
}

/// A track of its own for work that is not one thread's: a request, a connection, a task.
///
/// Slices of one track must nest. Tracks of equal name, id and parent are the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Track {
    uuid: u64,
    parent_uuid: u64,
    name: String,
}

impl Track {
    /// A track of this process. `id` tells those of one name apart.
    #[must_use]
    pub fn new(name: impl Into<String>, id: u64) -> Self {
        Self::below(process::uuid(), name.into(), id)
    }

    /// A track that viewers show below this one.
    #[must_use]
    pub fn child(&self, name: impl Into<String>, id: u64) -> Self {
        Self::below(self.uuid, name.into(), id)
    }

    fn below(parent_uuid: u64, name: String, id: u64) -> Self {
        let uuid = process::mix(process::mix(parent_uuid, hash(&name)), id);
        Self { uuid, parent_uuid, name }
    }
}

impl Described for Track {
    fn uuid(&self) -> u64 {
        self.uuid
    }

    fn describe(&self, descriptor: &mut Message) {
        descriptor.varint(UUID, self.uuid);
        descriptor.varint(PARENT_UUID, self.parent_uuid);
        descriptor.bytes(NAME, self.name.as_bytes());
    }
}

/// What a counter counts in. `CounterDescriptor.Unit`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    TimeNs = 1,
    /// Things.
    Count = 2,
    /// Bytes.
    SizeBytes = 3,
}

/// A counter of this process: a track of values, as a static of the program. Counters of equal
/// names are the same.
#[derive(Debug)]
pub struct Counter {
    name: &'static str,
    hash: u64,
    unit: Option<Unit>,
    unit_name: &'static str,
}

impl Counter {
    /// A counter of that name.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        Self { name, hash: hash(name), unit: None, unit_name: "" }
    }

    /// In one of the units that viewers know.
    #[must_use]
    pub const fn with_unit(self, unit: Unit) -> Self {
        Self { unit: Some(unit), ..self }
    }

    /// In a unit of this name.
    #[must_use]
    pub const fn with_unit_name(self, unit_name: &'static str) -> Self {
        Self { unit_name, ..self }
    }
}

impl Described for Counter {
    fn uuid(&self) -> u64 {
        process::mix(process::uuid(), self.hash)
    }

    fn describe(&self, descriptor: &mut Message) {
        descriptor.varint(UUID, self.uuid());
        descriptor.varint(PARENT_UUID, process::uuid());
        descriptor.bytes(NAME, self.name.as_bytes());
        descriptor.nested(COUNTER, |counter| {
            if let Some(unit) = self.unit {
                counter.varint(3, unit as u64);
            }
            if !self.unit_name.is_empty() {
                counter.bytes(6, self.unit_name.as_bytes());
            }
        });
    }
}

/// A value of a counter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum CounterValue {
    /// A whole number.
    Integer(i64),
    /// Any other.
    Double(f64),
}

macro_rules! values {
    ($($type:ty),+ => $variant:ident as $as:ty) => {$(
        impl From<$type> for CounterValue {
            #[inline]
            fn from(value: $type) -> Self {
                Self::$variant(value as $as)
            }
        }
    )+};
}

values!(u8, u16, u32, u64, usize, i8, i16, i32, i64, isize => Integer as i64);
values!(f32, f64 => Double as f64);

/// FNV-1a, which can be computed when the program is compiled.
const fn hash(text: &str) -> u64 {
    let (mut hash, mut index) = (0xcbf2_9ce4_8422_2325_u64, 0);
    while index < text.len() {
        hash = (hash ^ text.as_bytes()[index] as u64).wrapping_mul(0x0100_0000_01b3);
        index += 1;
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_tracks_are_the_same_and_others_are_not() {
        let track = Track::new("request", 1);
        assert_eq!(track, Track::new("request", 1));
        let others = [Track::new("request", 2), Track::new("reply", 1), track.child("request", 1)];
        assert!(others.iter().all(|other| other.uuid != track.uuid));
        static COUNTER: Counter = Counter::new("request");
        assert_ne!(COUNTER.uuid(), track.uuid);
        assert_eq!(COUNTER.uuid(), Counter::new("request").uuid());
    }
}
