//! A reader of track events that shares nothing with what writes them. It stops at whatever does
//! not resolve.

use std::collections::HashMap;

use prost::Message as _;
use watershed_wire::protos::debug_annotation::{NameField as ArgNameField, Value};
use watershed_wire::protos::trace_packet::{Data, OptionalTrustedPacketSequenceId};
use watershed_wire::protos::track_descriptor::StaticOrDynamicName;
use watershed_wire::protos::track_event::{CounterValueField, NameField, Type};
use watershed_wire::protos::{InternedData, TracePacket, TrackDescriptor, TrackEvent};

/// One event, resolved.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Read {
    pub(crate) sequence: u32,
    pub(crate) at_ns: u64,
    pub(crate) kind: Type,
    pub(crate) category: String,
    pub(crate) name: String,
    /// The name of its track: of thread, counter or what else it is.
    pub(crate) track: String,
    /// `name=value`.
    pub(crate) args: Vec<String>,
    pub(crate) value: Option<f64>,
    pub(crate) flows: Vec<u64>,
}

/// What a reader knows of one sequence.
#[derive(Default)]
struct Sequence {
    /// Nothing can be read before a packet that clears, nor behind a loss.
    is_valid: bool,
    clock: u32,
    track_uuid: u64,
    now: u64,
    unit_ns: u64,
    is_incremental: bool,
    names: HashMap<u64, String>,
    categories: HashMap<u64, String>,
    args: HashMap<u64, String>,
}

#[derive(Default)]
pub(crate) struct Trace {
    pub(crate) events: Vec<Read>,
    pub(crate) tracks: HashMap<u64, TrackDescriptor>,
    /// Packets that say that others before them were lost.
    pub(crate) num_losses: usize,
    /// Packets behind a loss, which cannot be read.
    pub(crate) num_unreadable: usize,
    sequences: HashMap<u32, Sequence>,
}

pub(crate) fn read(trace: &[u8]) -> Trace {
    let mut read = Trace::default();
    for packet in watershed_wire::reader::packets(trace) {
        let packet = TracePacket::decode(&packet.expect("no damage")[..]).unwrap();
        let id = match packet.optional_trusted_packet_sequence_id {
            Some(OptionalTrustedPacketSequenceId::TrustedPacketSequenceId(id)) => id,
            None => continue,
        };
        if let Some(Data::TrackEvent(_) | Data::TrackDescriptor(_)) = packet.data {
            assert!(id > 1, "the service writes no track events");
        }
        read.take(id, packet);
    }
    read.events.sort_by_key(|event| event.at_ns);
    read
}

impl Trace {
    fn take(&mut self, id: u32, packet: TracePacket) {
        let sequence = self.sequences.entry(id).or_default();
        if packet.previous_packet_dropped.is_some() {
            self.num_losses += 1;
            sequence.is_valid = false;
        }
        let flags = packet.sequence_flags.unwrap_or(0);
        if flags & 1 != 0 {
            *sequence = Sequence { is_valid: true, unit_ns: 1, clock: 6, ..Default::default() };
            let defaults = packet.trace_packet_defaults.as_ref().expect("defaults");
            sequence.clock = defaults.timestamp_clock_id();
            sequence.track_uuid = defaults.track_event_defaults.as_ref().unwrap().track_uuid();
        }
        match packet.data {
            Some(Data::ClockSnapshot(snapshot)) if flags & 1 != 0 => {
                let own = snapshot.clocks.iter().find(|clock| clock.clock_id() == sequence.clock).unwrap();
                let boottime = snapshot.clocks.iter().find(|clock| clock.clock_id() == 6).unwrap();
                sequence.unit_ns = own.unit_multiplier_ns.unwrap_or(1);
                sequence.is_incremental = own.is_incremental();
                sequence.now = own.timestamp();
                assert_eq!(boottime.timestamp() / sequence.unit_ns, own.timestamp());
                assert_eq!(packet.timestamp, boottime.timestamp);
                assert_eq!(packet.timestamp_clock_id, Some(6));
            }
            Some(Data::TrackDescriptor(track)) => {
                self.tracks.insert(track.uuid(), track);
            }
            Some(Data::TrackEvent(_)) if !sequence.is_valid => self.num_unreadable += 1,
            Some(Data::TrackEvent(event)) => {
                assert_eq!(flags & 2, 2, "an event needs state");
                sequence.learn(packet.interned_data.unwrap_or_default());
                let time = packet.timestamp.expect("a time");
                let now = if sequence.is_incremental { sequence.now + time } else { time };
                assert!(now >= sequence.now, "time never runs back");
                sequence.now = now;
                let event = sequence.resolve(id, event, &self.tracks);
                self.events.push(event);
            }
            _ => {}
        }
    }

    /// Events of one thread or other track.
    pub(crate) fn on(&self, track: &str) -> Vec<&Read> {
        self.events.iter().filter(|event| event.track == track).collect()
    }

    /// Slices of one thread or other track as `name(inner inner)`, in the order of their begin.
    /// Those that are open at the end have a `?`.
    pub(crate) fn nesting(&self, track: &str) -> String {
        let mut text = String::new();
        let mut depth = 0;
        for event in self.on(track) {
            match event.kind {
                Type::SliceBegin => {
                    depth += 1;
                    text += &format!("{}(", event.name);
                }
                Type::SliceEnd => {
                    assert!(depth > 0, "an end without a begin after {text}");
                    depth -= 1;
                    text.push(')');
                }
                _ => {}
            }
        }
        text + &"?)".repeat(depth)
    }
}

impl Sequence {
    fn learn(&mut self, interned: InternedData) {
        let add = |to: &mut HashMap<u64, String>, iid: u64, name: String| {
            assert!(iid > 0 && to.insert(iid, name).is_none(), "explained once");
        };
        for name in interned.event_names {
            add(&mut self.names, name.iid(), name.name().to_owned());
        }
        for name in interned.event_categories {
            add(&mut self.categories, name.iid(), name.name().to_owned());
        }
        for name in interned.debug_annotation_names {
            add(&mut self.args, name.iid(), name.name().to_owned());
        }
    }

    fn resolve(&self, sequence: u32, event: TrackEvent, tracks: &HashMap<u64, TrackDescriptor>) -> Read {
        let track = &tracks[&event.track_uuid.unwrap_or(self.track_uuid)];
        let arg = |arg: &watershed_wire::protos::DebugAnnotation| {
            let name = match arg.name_field.as_ref().unwrap() {
                ArgNameField::NameIid(iid) => &self.args[iid],
                ArgNameField::Name(name) => name,
            };
            match arg.value.as_ref().unwrap() {
                Value::BoolValue(value) => format!("{name}={value}"),
                Value::UintValue(value) => format!("{name}={value}"),
                Value::IntValue(value) => format!("{name}={value}"),
                Value::DoubleValue(value) => format!("{name}={value}"),
                Value::StringValue(value) => format!("{name}={value}"),
                other => panic!("{other:?}"),
            }
        };
        Read {
            sequence,
            at_ns: self.now * self.unit_ns,
            kind: event.r#type(),
            category: event.category_iids.first().map(|iid| self.categories[iid].clone()).unwrap_or_default(),
            name: match event.name_field {
                None => String::new(),
                Some(NameField::NameIid(iid)) => self.names[&iid].clone(),
                Some(NameField::Name(name)) => name,
            },
            track: name_of(track),
            args: event.debug_annotations.iter().map(arg).collect(),
            value: event.counter_value_field.map(|value| match value {
                CounterValueField::CounterValue(value) => value as f64,
                CounterValueField::DoubleCounterValue(value) => value,
            }),
            flows: event.flow_ids,
        }
    }
}

fn name_of(track: &TrackDescriptor) -> String {
    match (&track.thread, &track.static_or_dynamic_name) {
        (Some(thread), _) => thread.thread_name().to_owned(),
        (None, Some(StaticOrDynamicName::Name(name))) => name.clone(),
        _ => panic!("{track:?}"),
    }
}
