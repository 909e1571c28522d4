//! Packets that the service itself writes. Source of their order and contents: spec, service
//! section 6.
//!
//! ```text
//!   before the data of a pass                                          after it, if all was read
//!   what was read and not handed out (filtered and stamped) -
//!   clocks (initial, then drift) - sync marker - config - uuid -       read_tracing_buffers_completed - stats
//!   provenance - system info - lifecycle events - other sessions
//!              once: config, uuid, provenance, system info
//! ```

mod gather;
mod packet;
mod stats;

use watershed_shards::Statistics;
use watershed_wire::Encode;
use watershed_wire::protos;
use watershed_wire::protos::tracing_service_event::EventType;

use crate::clock::{BOOTTIME_CLOCK_ID, ClockReadings};
use crate::filter::{Filtering, Kept};
use crate::ids::SessionId;
use crate::read::{self, Sink};
use crate::service::Service;
use crate::session::Session;
pub(crate) use gather::{OfBuffer, PendingStats};
pub use packet::SYNC_MARKER;
use packet::{Stamp, field, service_packet, sync_marker_packet};

impl Service {
    /// Writes what comes before the producers' packets in a pass, nothing if the session waits for
    /// a trigger. False if the sink ran out of room. The first time it tells of the sequences that
    /// are `looked` at.
    pub(crate) fn emit_before_data(
        &mut self,
        session_id: SessionId,
        sink: &mut impl Sink,
        looked: &[Statistics],
        now: &ClockReadings,
    ) -> bool {
        let session = self.sessions.get_mut(&session_id).filter(|session| !session.waits_for_trigger());
        let Some(session) = session else { return true };
        let handed_back = std::mem::take(&mut session.pending.handed_back);
        let has_room = handed_back.packets().all(|packet| sink.packet(&[packet], &read::Stamp::EMPTY));
        let mut out = Emitter { sink, uid: self.options.uid, filtering: Some(&session.filtering), has_room };
        let builtin = *session.config.builtin();
        let primary_clock = builtin.primary_trace_clock.unwrap_or(BOOTTIME_CLOCK_ID as i32);
        for clocks in session.pending.initial_clocks.take().into_iter().chain(session.pending.clocks.drain())
        {
            out.message(field::CLOCK_SNAPSHOT, None, &clocks.to_proto(primary_clock));
        }
        if std::mem::take(&mut session.pending.sync_marker) {
            out.packet(&sync_marker_packet(out.uid));
        }
        let once = !std::mem::replace(&mut session.pending.once_done, true);
        if !builtin.disable_trace_config() {
            if once {
                out.bytes(field::TRACE_CONFIG, None, session.config.bytes());
            }
            if let Some(trigger) = session.pending.clone_trigger.take() {
                out.message(field::CLONE_SNAPSHOT_TRIGGER, Some(trigger.boottime_ns), &trigger.to_proto());
            }
            for trigger in session.triggers.emit() {
                out.message(field::TRIGGER, Some(trigger.boottime_ns), &trigger.to_proto());
            }
        }
        if once {
            let (msb, lsb) = session.uuid;
            out.message(field::TRACE_UUID, None, &protos::TraceUuid { msb: Some(msb), lsb: Some(lsb) });
            let provenance = provenance(session, looked);
            out.message(field::TRACE_PROVENANCE, Some(now.boottime_ns), &provenance);
            if !builtin.disable_system_info() {
                let system_info = self.options.system.to_proto(&self.options.version);
                out.message(field::SYSTEM_INFO, None, &system_info);
            }
        }
        let events = session.pending.events.drain();
        if !builtin.disable_service_events() {
            for (at_ns, event) in events {
                out.message(field::SERVICE_EVENT, Some(at_ns), &event);
            }
        }
        for (at_ns, event) in session.pending.concurrent.drain(..) {
            out.message(field::CONCURRENT_SESSION_EVENT, Some(at_ns), &event);
        }
        out.has_room
    }

    /// Writes what ends a pass that has read everything. False if the sink ran out of room.
    /// `looked`: of the buffers behind that pass, if statistics are due.
    pub(crate) fn emit_after_data(
        &mut self,
        session_id: SessionId,
        sink: &mut impl Sink,
        looked: Option<Vec<Statistics>>,
        now: &ClockReadings,
    ) -> bool {
        let uid = self.options.uid;
        let session = self.sessions.get_mut(&session_id).filter(|session| !session.waits_for_trigger());
        let Some(session) = session else { return true };
        session.pending.stats = false;
        let mut out = Emitter { sink, uid, filtering: Some(&session.filtering), has_room: true };
        if !session.config.builtin().disable_service_events() {
            let completed = EventType::ReadTracingBuffersCompleted(true);
            let event = protos::TracingServiceEvent { event_type: Some(completed) };
            out.message(field::SERVICE_EVENT, Some(now.boottime_ns), &event);
        }
        let has_room = out.has_room;
        // They come last, and unfiltered: they tell what the filter has left out.
        let Some(stats) = looked.and_then(|looked| self.stats_from(session_id, looked)) else {
            return has_room;
        };
        let mut out = Emitter { sink, uid, filtering: None, has_room };
        out.message(field::TRACE_STATS, None, &stats);
        out.has_room
    }
}

/// Puts packets into a sink until it has no room.
struct Emitter<'a, S> {
    sink: &'a mut S,
    uid: i32,
    filtering: Option<&'a Filtering>,
    has_room: bool,
}

impl<S: Sink> Emitter<'_, S> {
    fn message(&mut self, number: u32, timestamp_ns: Option<u64>, message: &impl Encode) {
        self.bytes(number, timestamp_ns, &message.encode_to_vec());
    }

    fn bytes(&mut self, number: u32, timestamp_ns: Option<u64>, content: &[u8]) {
        self.packet(&service_packet(Stamp { uid: self.uid, timestamp_ns }, number, content));
    }

    fn packet(&mut self, packet: &[u8]) {
        let mut left = Vec::new();
        let filter = |filtering: &Filtering| filtering.packet(&[packet], &[], &mut left);
        let packet = match self.filtering.map_or(Kept::Whole, filter) {
            Kept::Whole => packet,
            Kept::Part => &left,
        };
        self.has_room = self.has_room && self.sink.packet(&[packet], &read::Stamp::EMPTY);
    }
}

/// Which sequences each buffer knows, and whose they are.
fn provenance(session: &Session, looked: &[Statistics]) -> protos::TraceProvenance {
    let of_buffer = |statistics: &Statistics| {
        let sequences = statistics.writers.iter().filter_map(|writer| {
            Some(protos::trace_provenance::Sequence {
                id: Some(session.sequences.table().id_of(writer.producer_id, writer.writer_id)?),
                producer_id: Some(writer.producer_id.0.cast_signed()),
            })
        });
        protos::trace_provenance::Buffer { sequences: sequences.collect() }
    };
    protos::TraceProvenance { buffers: looked.iter().map(of_buffer).collect() }
}
