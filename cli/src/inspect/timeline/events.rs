//! Track events as their writers encode them: names by number, tracks by default.

use std::collections::HashMap;

use watershed_wire::packet::Envelope;
use watershed_wire::raw::{Fields, Value};

use super::TRACKS_MAX;
use super::names::{Text, Texts};
use crate::inspect::top::Timed;

/// Fields of `TracePacket`, `InternedData`, `EventName` and `TracePacketDefaults`.
const INTERNED_DATA: u32 = 12;
const EVENT_NAMES: u32 = 2;
const IID: u32 = 1;
const NAME: u32 = 2;
const TRACK_EVENT_DEFAULTS: u32 = 11;
/// Field of `TrackEvent` and `TrackEventDefaults`.
const TRACK_UUID: u32 = 11;
/// Fields of `TrackEvent`.
const TYPE: u32 = 9;
const NAME_IID: u32 = 10;
const COUNTER_VALUE: u32 = 30;
const DOUBLE_COUNTER_VALUE: u32 = 44;
const EVENT_NAME: u32 = 23;
/// Bits of `TracePacket.sequence_flags`.
const STATE_CLEARED: u32 = 1;
const NEEDS_STATE: u32 = 2;

/// An event of a track.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Event {
    pub(super) at_ns: u64,
    pub(super) track: u64,
    pub(super) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum What {
    Begin(Text),
    End,
    Instant(Text),
    Counter(f64),
}

impl Timed for Event {
    fn at_ns(&self) -> u64 {
        self.at_ns
    }

    fn put_at(&mut self, at_ns: u64) {
        self.at_ns = at_ns;
    }
}

#[derive(Debug, Default)]
struct Sequence {
    /// What its numbers stand for is in the trace.
    has_state: bool,
    names: HashMap<u64, Text>,
    default_track: u64,
}

#[derive(Debug, Default)]
pub(super) struct Reader {
    sequences: HashMap<u32, Sequence>,
    names: usize,
    /// Events whose time or name is not in the trace.
    pub(super) unreadable: u64,
}

impl Reader {
    /// Takes names and defaults of a packet.
    pub(super) fn take_state(&mut self, packet: &[u8], envelope: &Envelope<'_>, texts: &mut Texts) {
        let id = envelope.sequence_id.unwrap_or(0);
        if self.sequences.len() >= TRACKS_MAX && !self.sequences.contains_key(&id) {
            return;
        }
        let sequence = self.sequences.entry(id).or_default();
        if envelope.previous_packet_dropped != 0 && !envelope.first_packet_on_sequence {
            sequence.has_state = false;
        }
        if envelope.incremental_state_cleared || envelope.sequence_flags & STATE_CLEARED != 0 {
            sequence.has_state = true;
            self.names -= sequence.names.len();
            sequence.names.clear();
            sequence.default_track = 0;
        }
        for defaults in envelope.defaults.iter().flat_map(|bytes| messages(bytes, TRACK_EVENT_DEFAULTS)) {
            sequence.default_track = number(defaults, TRACK_UUID).unwrap_or(0);
        }
        for names in messages(packet, INTERNED_DATA).flat_map(|data| messages(data, EVENT_NAMES)) {
            let (Some(iid), Some(name)) = (number(names, IID), messages(names, NAME).last()) else {
                continue;
            };
            if self.names < TRACKS_MAX {
                let name = texts.number(&String::from_utf8_lossy(name));
                self.names += usize::from(sequence.names.insert(iid, name).is_none());
            }
        }
    }

    /// The event of a packet, if it is of a kind that is drawn and can be read.
    pub(super) fn event(
        &mut self,
        envelope: &Envelope<'_>,
        bytes: &[u8],
        at_ns: Option<u64>,
        texts: &mut Texts,
    ) -> Option<Event> {
        let sequence = self.sequences.get(&envelope.sequence_id.unwrap_or(0))?;
        let (mut kind, mut track, mut name, mut value) = (0, sequence.default_track, None, None);
        for field in Fields::new(bytes).map_while(Result::ok) {
            match (field.number, field.value) {
                (TYPE, Value::Varint(of)) => kind = of,
                (TRACK_UUID, Value::Varint(of)) => track = of,
                (NAME_IID, Value::Varint(iid)) => name = sequence.names.get(&iid).copied(),
                (EVENT_NAME, Value::LengthDelimited(of)) => {
                    name = Some(texts.number(&String::from_utf8_lossy(of)));
                }
                (COUNTER_VALUE, Value::Varint(of)) => value = Some(of.cast_signed() as f64),
                (DOUBLE_COUNTER_VALUE, Value::Fixed64(bits)) => value = Some(f64::from_bits(bits)),
                _ => {}
            }
        }
        let what = match kind {
            1 => What::Begin(name.unwrap_or_default()),
            2 => What::End,
            3 => What::Instant(name.unwrap_or_default()),
            4 => What::Counter(value.filter(|value| value.is_finite())?),
            _ => return None,
        };
        let lacks_state = envelope.sequence_flags & NEEDS_STATE != 0 && !sequence.has_state;
        match at_ns.filter(|_| !lacks_state) {
            Some(at_ns) => Some(Event { at_ns, track, what }),
            None => {
                self.unreadable += 1;
                None
            }
        }
    }
}

fn messages(bytes: &[u8], number: u32) -> impl Iterator<Item = &[u8]> {
    let fields = Fields::new(bytes).map_while(Result::ok);
    fields.filter(move |field| field.number == number).filter_map(|field| field.value.bytes())
}

fn number(bytes: &[u8], number: u32) -> Option<u64> {
    let fields = Fields::new(bytes).map_while(Result::ok).filter(|field| field.number == number);
    fields.filter_map(|field| field.value.varint()).last()
}
