//! The envelope of a packet: what it is, when, and whose, without decoding what it holds.

use std::sync::LazyLock;

use crate::raw::{Fields, Malformed, Value};
use crate::schema;

/// Field numbers of `TracePacket` that are read here.
mod number {
    pub(super) const TRUSTED_UID: u32 = 3;
    pub(super) const TIMESTAMP: u32 = 8;
    pub(super) const TRUSTED_PACKET_SEQUENCE_ID: u32 = 10;
    pub(super) const SEQUENCE_FLAGS: u32 = 13;
    pub(super) const INCREMENTAL_STATE_CLEARED: u32 = 41;
    pub(super) const PREVIOUS_PACKET_DROPPED: u32 = 42;
    pub(super) const TIMESTAMP_CLOCK_ID: u32 = 58;
    pub(super) const TRACE_PACKET_DEFAULTS: u32 = 59;
    pub(super) const TRUSTED_PID: u32 = 79;
    pub(super) const FIRST_PACKET_ON_SEQUENCE: u32 = 87;
    pub(super) const MACHINE_ID: u32 = 98;
}

/// The envelope of a `TracePacket`. Fields that occur more than once have their last value, as the
/// format wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Envelope<'a> {
    /// In the clock that `timestamp_clock_id` names.
    pub timestamp: Option<u64>,
    /// `None` is the sequence's default, and without one the trace's primary clock.
    pub timestamp_clock_id: Option<u32>,
    /// Uid of the producer, written by the service.
    pub trusted_uid: Option<i32>,
    /// Pid of the producer, written by the service.
    pub trusted_pid: Option<i32>,
    /// Which writer's packet it is, unique in the trace, written by the service; 0 is none.
    pub sequence_id: Option<u32>,
    /// The machine, for packets of other machines.
    pub machine_id: Option<u32>,
    /// Bits of `TracePacket.SequenceFlags`.
    pub sequence_flags: u32,
    /// Bits of `TracePacket.DataLossReason`: what was lost on the sequence before this packet; 0 is
    /// nothing.
    pub previous_packet_dropped: u32,
    /// Whether the writer says that it starts here.
    pub first_packet_on_sequence: bool,
    /// Whether what was interned on the sequence before is void.
    pub incremental_state_cleared: bool,
    /// An encoded `TracePacketDefaults`, if there is one.
    pub defaults: Option<&'a [u8]>,
    /// What the packet holds, if anything.
    pub payload: Option<Payload<'a>>,
}

/// What a packet holds: the field of its oneof `data`, or a field that the schema does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Payload<'a> {
    /// Field number in `TracePacket`.
    pub number: u32,
    /// Its bytes; empty for a field that is not length-delimited, which no known one is.
    pub bytes: &'a [u8],
}

impl<'a> Envelope<'a> {
    /// Reads the envelope of an encoded `TracePacket`.
    ///
    /// # Errors
    /// The offset of the first field that is malformed.
    pub fn read(packet: &'a [u8]) -> Result<Self, Malformed> {
        let mut envelope = Envelope::default();
        for field in Fields::new(packet) {
            let field = field?;
            envelope.take(field.number, field.value);
        }
        Ok(envelope)
    }

    fn take(&mut self, number: u32, value: Value<'a>) {
        // Integers of all widths are varints of 64 bits: the low bits count.
        let integer = value.varint();
        match (number, integer) {
            (number::TIMESTAMP, Some(value)) => self.timestamp = Some(value),
            (number::TIMESTAMP_CLOCK_ID, Some(value)) => {
                self.timestamp_clock_id = Some(value as u32);
            }
            (number::TRUSTED_UID, Some(value)) => self.trusted_uid = Some(value as i32),
            (number::TRUSTED_PID, Some(value)) => self.trusted_pid = Some(value as i32),
            (number::TRUSTED_PACKET_SEQUENCE_ID, Some(value)) => {
                self.sequence_id = Some(value as u32);
            }
            (number::MACHINE_ID, Some(value)) => self.machine_id = Some(value as u32),
            (number::SEQUENCE_FLAGS, Some(value)) => self.sequence_flags = value as u32,
            (number::PREVIOUS_PACKET_DROPPED, Some(value)) => {
                self.previous_packet_dropped = value as u32;
            }
            (number::FIRST_PACKET_ON_SEQUENCE, Some(value)) => {
                self.first_packet_on_sequence = value != 0;
            }
            (number::INCREMENTAL_STATE_CLEARED, Some(value)) => {
                self.incremental_state_cleared = value != 0;
            }
            (number::TRACE_PACKET_DEFAULTS, None) => self.defaults = value.bytes(),
            _ => self.take_payload(number, value),
        }
    }

    /// Of several the last counts (the rule of a oneof), but a known one before an unknown one.
    fn take_payload(&mut self, number: u32, value: Value<'a>) {
        let fields = &*FIELDS;
        if fields.is_envelope(number) {
            return;
        }
        let known = fields.payload_name(number).is_some();
        let known_before = self.payload.is_some_and(|payload| fields.payload_name(payload.number).is_some());
        if known || !known_before {
            self.payload = Some(Payload { number, bytes: value.bytes().unwrap_or_default() });
        }
    }
}

/// The schema's name of what a packet holds, for a field number of `TracePacket`'s oneof `data`;
/// `None` for any other number.
pub fn payload_name(number: u32) -> Option<&'static str> {
    FIELDS.payload_name(number)
}

/// Whether the schema says that the field of `TracePacket`'s oneof `data` holds a message: then its
/// bytes are fields.
pub fn payload_is_message(number: u32) -> bool {
    matches!(FIELDS.kind(number), FieldKind::Payload { is_message: true, .. })
}

/// What the schema says of the fields of `TracePacket`, by number.
struct PacketFields(Vec<FieldKind>);

#[derive(Clone, Copy)]
enum FieldKind {
    Unknown,
    Envelope,
    Payload { name: &'static str, is_message: bool },
}

static FIELDS: LazyLock<PacketFields> = LazyLock::new(PacketFields::of_schema);

impl PacketFields {
    fn of_schema() -> Self {
        let descriptor = schema::message("TracePacket").expect("the schema has this message");
        let number_max = descriptor.fields().map(|field| field.number()).max();
        let mut kinds = vec![FieldKind::Unknown; number_max.unwrap_or_default() as usize + 1];
        for field in descriptor.fields() {
            let in_data = field.containing_oneof().is_some_and(|oneof| oneof.name() == "data");
            kinds[field.number() as usize] = match in_data {
                // As many as the schema has fields, once a process.
                true => FieldKind::Payload {
                    name: String::leak(field.name().to_owned()),
                    is_message: field.kind().as_message().is_some(),
                },
                false => FieldKind::Envelope,
            };
        }
        PacketFields(kinds)
    }

    fn kind(&self, number: u32) -> FieldKind {
        let kind = self.0.get(number as usize).copied();
        kind.unwrap_or(FieldKind::Unknown)
    }

    fn is_envelope(&self, number: u32) -> bool {
        matches!(self.kind(number), FieldKind::Envelope)
    }

    fn payload_name(&self, number: u32) -> Option<&'static str> {
        match self.kind(number) {
            FieldKind::Payload { name, .. } => Some(name),
            FieldKind::Unknown | FieldKind::Envelope => None,
        }
    }
}
