//! What is in a trace, ours or the rival's.

use crate::measure::WrongAnswer;
use watershed_service::RESERVED_FIELDS;
use watershed_wire::raw::Fields;
use watershed_wire::reader;

// Fields of TracePacket and TrackEvent.
const TRACK_EVENT: u32 = 11;
const PREVIOUS_PACKET_DROPPED: u32 = 42;
const EVENT_TYPE: u32 = 9;

const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;

/// Counts of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Contents {
    /// Instants, and begins of slices.
    pub(super) events: u64,
    /// Ends of slices.
    pub(super) ends: u64,
    /// Bytes of the packets with track events, without what a service adds to each packet.
    pub(super) event_bytes: u64,
    /// Bytes of everything.
    pub(super) trace_bytes: u64,
}

impl Contents {
    /// Counts what is in `trace`.
    pub(super) fn of(trace: &[u8]) -> Result<Self, WrongAnswer> {
        let mut contents = Contents { trace_bytes: trace.len() as u64, ..Contents::default() };
        for packet in reader::packets(trace) {
            contents.add(&packet.map_err(|damage| damage.to_string())?)?;
        }
        Ok(contents)
    }

    /// Counts a packet.
    pub(super) fn add(&mut self, packet: &[u8]) -> Result<(), WrongAnswer> {
        let (mut event, mut bytes) = (None, 0);
        for field in Fields::new(packet) {
            let field = field.map_err(|malformed| malformed.to_string())?;
            if field.number == TRACK_EVENT {
                event = field.value.bytes();
            }
            if field.number != PREVIOUS_PACKET_DROPPED && !RESERVED_FIELDS.contains(&field.number) {
                bytes += field.bytes.len() as u64;
            }
        }
        let Some(event) = event else { return Ok(()) };
        self.event_bytes += bytes;
        let is_type = |field: &watershed_wire::raw::Field<'_>| field.number == EVENT_TYPE;
        let mut fields = Fields::new(event).filter_map(Result::ok);
        match fields.find(is_type).and_then(|field| field.value.varint()) {
            Some(INSTANT | SLICE_BEGIN) => self.events += 1,
            Some(SLICE_END) => self.ends += 1,
            other => return Err(format!("an event of type {other:?}")),
        }
        Ok(())
    }

    /// Whether so many events were written and `dropped` packets, at least, were counted as lost:
    /// every event is here, or it was counted. `dropped` is `None` where nobody told.
    pub(super) fn check(
        &self,
        written: u64,
        has_ends: bool,
        dropped: Option<u64>,
    ) -> Result<(), WrongAnswer> {
        let all = self.events == written && self.ends == if has_ends { written } else { 0 };
        let some = self.events < written || (self.events == written && self.ends < written && has_ends);
        let accounted = dropped.is_none_or(|dropped| dropped > 0 && self.events + dropped >= written);
        if all || (some && accounted) {
            Ok(())
        } else {
            Err(format!("{self:?} of {written} events, {dropped:?} counted as dropped"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A packet with a timestamp, an event of that type, a sequence's id and a count of lost ones.
    fn packet(event_type: u8) -> Vec<u8> {
        vec![0x0A, 11, 8 << 3, 5, 11 << 3 | 2, 2, 9 << 3, event_type, 10 << 3, 7, 0xD0, 0x02, 1]
    }

    #[test]
    fn a_services_fields_are_no_bytes_of_an_event() {
        let trace = [packet(3), packet(1), packet(2)].concat();
        let expected = Contents { events: 2, ends: 1, event_bytes: 18, trace_bytes: 39 };
        assert_eq!(Contents::of(&trace).unwrap(), expected);
        assert!(Contents::of(&packet(4)).is_err(), "a counter was not written");
    }

    #[test]
    fn every_event_is_there_or_counted() {
        let found = |events, ends| Contents { events, ends, ..Contents::default() };
        assert!(found(10, 0).check(10, false, Some(0)).is_ok());
        assert!(found(9, 0).check(10, false, Some(0)).is_err(), "one is lost and nobody says so");
        assert!(found(9, 0).check(10, false, Some(1)).is_ok());
        assert!(found(8, 0).check(10, false, Some(1)).is_err());
        assert!(found(11, 0).check(10, false, Some(1)).is_err(), "one too many");
        assert!(found(10, 9).check(10, true, Some(0)).is_err());
        assert!(found(9, 9).check(10, true, None).is_ok(), "who does not tell is not asked");
        assert!(found(0, 0).check(0, false, Some(0)).is_ok());
    }
}
