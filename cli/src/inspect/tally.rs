//! Counts of packets, and spans of time.

use std::collections::BTreeMap;

use watershed_wire::packet::{Envelope, payload_name};

/// Kinds that the schema does not have and that are still told apart; a hostile trace could have
/// 2^29.
const UNKNOWN_KINDS_MAX: usize = 256;

/// Packets and the bytes that they take, without their preambles.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) packets: u64,
    pub(super) bytes: u64,
}

impl Tally {
    pub(super) fn add(&mut self, packet: &[u8]) {
        self.packets += 1;
        self.bytes += packet.len() as u64;
    }
}

/// From the first to the last of some moments.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Span(Option<(u64, u64)>);

impl Span {
    pub(super) fn add(&mut self, ns: u64) {
        let (first, last) = self.0.unwrap_or((ns, ns));
        self.0 = Some((first.min(ns), last.max(ns)));
    }

    pub(super) fn first_ns(self) -> Option<u64> {
        self.0.map(|(first, _)| first)
    }

    pub(super) fn last_ns(self) -> Option<u64> {
        self.0.map(|(_, last)| last)
    }
}

/// What a packet holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// A field of the schema.
    Known(&'static str, u32),
    /// A field that the schema does not have.
    Unknown(u32),
    /// Fields that the schema does not have, beyond those that are told apart.
    OtherUnknown,
    /// No payload, but interned data or defaults.
    Envelope,
    /// No field at all: what a filter leaves of a packet that it drops.
    Empty,
}

impl Kind {
    pub(super) fn of(packet: &[u8], envelope: &Envelope<'_>) -> Self {
        match envelope.payload {
            Some(payload) => match payload_name(payload.number) {
                Some(name) => Kind::Known(name, payload.number),
                None => Kind::Unknown(payload.number),
            },
            None if packet.is_empty() => Kind::Empty,
            None => Kind::Envelope,
        }
    }

    /// The name that people and JSON see.
    pub(super) fn name(self) -> String {
        match self {
            Kind::Known(name, _) => name.to_owned(),
            Kind::Unknown(number) => format!("field_{number}"),
            Kind::OtherUnknown => "other_fields".to_owned(),
            Kind::Envelope => "envelope_only".to_owned(),
            Kind::Empty => "empty".to_owned(),
        }
    }

    /// The field number in `TracePacket`.
    pub(super) fn number(self) -> Option<u32> {
        match self {
            Kind::Known(_, number) | Kind::Unknown(number) => Some(number),
            _ => None,
        }
    }
}

/// Packets by kind.
#[derive(Debug, Default)]
pub(super) struct Kinds {
    tallies: BTreeMap<Kind, Tally>,
    unknown_kinds: usize,
}

impl Kinds {
    pub(super) fn add(&mut self, mut kind: Kind, packet: &[u8]) {
        if matches!(kind, Kind::Unknown(_)) && !self.tallies.contains_key(&kind) {
            self.unknown_kinds += 1;
            if self.unknown_kinds > UNKNOWN_KINDS_MAX {
                kind = Kind::OtherUnknown;
            }
        }
        self.tallies.entry(kind).or_default().add(packet);
    }

    pub(super) fn len(&self) -> usize {
        self.tallies.len()
    }

    /// The kinds with most bytes first.
    pub(super) fn sorted(&self) -> Vec<(Kind, Tally)> {
        let mut sorted: Vec<_> = self.tallies.iter().map(|(kind, tally)| (*kind, *tally)).collect();
        sorted.sort_by_key(|(kind, tally)| (std::cmp::Reverse(tally.bytes), *kind));
        sorted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_kinds_are_bounded() {
        let mut kinds = Kinds::default();
        for number in 2000..4000 {
            kinds.add(Kind::Unknown(number), b"x");
            kinds.add(Kind::Unknown(2000), b"y");
        }
        let sorted = kinds.sorted();
        assert_eq!(sorted.len(), UNKNOWN_KINDS_MAX + 1);
        assert_eq!(sorted.iter().map(|(_, tally)| tally.packets).sum::<u64>(), 4000);
        assert_eq!(sorted[0].0, Kind::Unknown(2000));
    }

    #[test]
    fn spans() {
        let mut span = Span::default();
        assert_eq!((span.first_ns(), span.last_ns()), (None, None));
        for ns in [5, 3, 9] {
            span.add(ns);
        }
        assert_eq!((span.first_ns(), span.last_ns()), (Some(3), Some(9)));
    }
}
