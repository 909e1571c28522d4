//! The sessions of a file: several when files were put one behind the other, or when several
//! recordings were appended to one. Each is surveyed and judged by itself.
//!
//! ```text
//!   | clocks  marker  config  uuid | events  data ...   | clocks  marker | config  uuid | events ...
//!     held    held    begins             of the first     held: of the     begins the
//!                                        session          second           second
//! ```
//!
//! A service writes its config and the uuid once, in its first pass. The clocks in front of them
//! are those of the new session already, so packets of such kinds are held back until the next one
//! says whose they are.

use watershed_wire::packet::Envelope;
use watershed_wire::protos::tracing_service_event::EventType;
use watershed_wire::protos::{TraceUuid, TracingServiceEvent};
use watershed_wire::reader::{Damage, DamageKind, RawPacket};

use watershed_wire::Decode as _;

use super::part::OneSession;
use super::survey::{Survey, number};
use super::top::Scheduling;

/// Sessions that are told apart, and what may be kept of those before the last: a hostile file has
/// many small ones. From then on all are judged as one.
const SESSIONS_MAX: usize = 1000;
const KEPT_SIZE_BYTES_MAX: usize = 64 << 20;

/// Packets that are held back. More than these in a row no service writes.
const HELD_MAX: usize = 64;
const HELD_SIZE_BYTES_MAX: usize = 1 << 20;

/// The sequence of the service itself.
const SERVICE_SEQUENCE_ID: u32 = 1;

/// What a packet says about where a session begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Role {
    /// Of kinds that a service also writes before all others.
    Lead,
    Config,
    Uuid(Option<(i64, i64)>),
    Started,
    Other,
}

impl Role {
    fn of(envelope: &Envelope<'_>) -> Self {
        let Some(payload) = envelope.payload.filter(|_| envelope.sequence_id == Some(SERVICE_SEQUENCE_ID))
        else {
            return Role::Other;
        };
        match payload.number {
            number::CLOCK_SNAPSHOT
            | number::SYNCHRONIZATION_MARKER
            | number::TRIGGER
            | number::CLONE_SNAPSHOT_TRIGGER
            | number::EXTENSION_DESCRIPTOR
            | number::TRACE_PROVENANCE
            | number::SYSTEM_INFO => Role::Lead,
            number::TRACE_CONFIG => Role::Config,
            number::TRACE_UUID => {
                Role::Uuid(TraceUuid::decode(payload.bytes).ok().map(|uuid| (uuid.msb(), uuid.lsb())))
            }
            number::SERVICE_EVENT => match TracingServiceEvent::decode(payload.bytes) {
                Ok(TracingServiceEvent { event_type: Some(EventType::TracingStarted(_)) }) => Role::Started,
                _ => Role::Other,
            },
            _ => Role::Other,
        }
    }
}

/// A packet that waits for the one behind it.
#[derive(Debug)]
struct Held {
    bytes: Vec<u8>,
    offset_bytes: u64,
    offset_inflated_bytes: Option<u64>,
}

impl Held {
    fn new(packet: RawPacket<'_>) -> Self {
        let RawPacket { bytes, offset_bytes, offset_inflated_bytes } = packet;
        Held { bytes: bytes.to_vec(), offset_bytes, offset_inflated_bytes }
    }

    fn packet(&self) -> RawPacket<'_> {
        let &Held { ref bytes, offset_bytes, offset_inflated_bytes } = self;
        RawPacket { bytes, offset_bytes, offset_inflated_bytes }
    }
}

/// What is known after some packets of a file.
#[derive(Debug, Default)]
pub(super) struct Sessions {
    /// Those that are over, and what they keep.
    over: Vec<OneSession>,
    kept_size_bytes: usize,
    current: Survey,
    /// Where the current one begins.
    offset_bytes: u64,
    /// Only what a service writes at first has come of it.
    is_beginning: bool,
    held: Vec<Held>,
    held_size_bytes: usize,
    /// Packets of the whole file.
    packets: u64,
    /// A session began when no more could be told apart.
    pub(super) are_too_many: bool,
}

impl Sessions {
    /// Nothing was taken yet. Scheduling is looked at if it is wanted.
    pub(super) fn new(wants_scheduling: bool) -> Self {
        Sessions { current: Survey::new(wants_scheduling), ..Sessions::default() }
    }

    /// Takes the next packet of the file.
    ///
    /// # Errors
    /// If its fields cannot be told apart; nothing was counted then.
    pub(super) fn take(&mut self, packet: RawPacket<'_>) -> Result<(), Damage> {
        let envelope = Envelope::read(packet.bytes).map_err(|malformed| Damage {
            offset_bytes: packet.offset_bytes,
            offset_inflated_bytes: packet.offset_inflated_bytes,
            kind: DamageKind::PacketMalformed(malformed),
        })?;
        self.packets += 1;
        let role = Role::of(&envelope);
        if role == Role::Lead && self.can_hold(packet) {
            self.held_size_bytes += packet.bytes.len();
            self.held.push(Held::new(packet));
            return Ok(());
        }
        if self.begins_with(role) {
            self.begin(packet.offset_bytes);
        }
        self.release();
        self.current.take(packet, &envelope);
        match role {
            Role::Config | Role::Uuid(_) => self.is_beginning = true,
            Role::Lead => {}
            Role::Started | Role::Other => self.is_beginning = false,
        }
        Ok(())
    }

    /// How many packets there are in the file so far.
    pub(super) fn packets(&self) -> u64 {
        self.packets
    }

    fn can_hold(&self, packet: RawPacket<'_>) -> bool {
        self.held.len() < HELD_MAX && self.held_size_bytes + packet.bytes.len() <= HELD_SIZE_BYTES_MAX
    }

    /// Whether a packet is one that the current session has already, or can have no more.
    fn begins_with(&self, role: Role) -> bool {
        let session = &self.current.session;
        let (config, uuid) = (session.config.as_ref(), session.uuid.as_ref());
        let goes_on = (config.is_some() || uuid.is_some()) && !self.is_beginning;
        match role {
            Role::Config => config.is_some() || goes_on,
            Role::Uuid(new) => match uuid {
                Some(uuid) => new != Some((uuid.msb(), uuid.lsb())),
                None => goes_on,
            },
            Role::Started => session.events.tracing_started > 0,
            Role::Lead | Role::Other => false,
        }
    }

    /// Ends the current session in front of what is held.
    fn begin(&mut self, offset_bytes: u64) {
        if self.over.len() + 1 >= SESSIONS_MAX || self.kept_size_bytes >= KEPT_SIZE_BYTES_MAX {
            self.are_too_many = true;
            return;
        }
        let offset_bytes = self.held.first().map_or(offset_bytes, |held| held.offset_bytes);
        let next = Survey::new(self.current.top.is_some());
        let survey = std::mem::replace(&mut self.current, next);
        let kept_size_bytes = survey.kept_size_bytes();
        let size_bytes = offset_bytes - self.offset_bytes;
        let session = OneSession::new(self.offset_bytes, size_bytes, survey, None);
        self.kept_size_bytes +=
            kept_size_bytes + session.part.scheduling.as_ref().map_or(0, Scheduling::size_bytes);
        self.over.push(session);
        self.offset_bytes = offset_bytes;
    }

    /// What is held belongs to the current session.
    fn release(&mut self) {
        self.held_size_bytes = 0;
        for held in self.held.drain(..) {
            // It was read when it came.
            if let Ok(envelope) = Envelope::read(&held.bytes) {
                self.current.take(held.packet(), &envelope);
            }
        }
    }

    /// Every session, when the whole file of `read_bytes` has been taken or `damage` ends it.
    pub(super) fn finish(mut self, read_bytes: u64, damage: Option<&Damage>) -> Vec<OneSession> {
        self.release();
        let end = damage.map_or(read_bytes, |damage| damage.offset_bytes);
        let size_bytes = end.saturating_sub(self.offset_bytes);
        self.over.push(OneSession::new(self.offset_bytes, size_bytes, self.current, damage));
        self.over
    }
}
