//! What one thread writes for one session.

use rustc_hash::FxHashSet;

use super::event::{Composer, Kind, TRACK_EVENT};
use super::message::Message;
use super::prefix::Prefix;
use super::process;
use super::registry::{Options, Session};
use super::tracks::Described;
use crate::writer::TraceWriter;

// Fields of TracePacket.
const CLOCK_SNAPSHOT: u32 = 6;
const TIMESTAMP: u32 = 8;
const INTERNED_DATA: u32 = 12;
const SEQUENCE_FLAGS: u32 = 13;
const TIMESTAMP_CLOCK_ID: u32 = 58;
const TRACE_PACKET_DEFAULTS: u32 = 59;
const TRACK_DESCRIPTOR: u32 = 60;

const INCREMENTAL_STATE_CLEARED: u64 = 1;
const NEEDS_INCREMENTAL_STATE: u8 = 2;
/// Of an event's packet.
const FLAGS_AND_TIME: Prefix = Prefix::NONE.with(SEQUENCE_FLAGS, NEEDS_INCREMENTAL_STATE).varint(TIMESTAMP);

// Clocks. From 64 to 127 they are a sequence's own.
const BOOTTIME: u64 = 6;
const INCREMENTAL: u64 = 64;
const IN_UNITS: u64 = 65;

/// The sequence of one thread in one session.
#[derive(Debug)]
pub(super) struct Sequence {
    pub(super) session_id: u64,
    clears: u64,
    writer: TraceWriter,
    options: Options,
    /// Its state is explained, by packets that got through.
    has_begun: bool,
    /// Time of the last event, in units.
    last: u64,
    composer: Composer,
    /// Tracks that it has described. Their numbers are mixed already.
    tracks: FxHashSet<u64>,
    slices: Slices,
}

impl Sequence {
    pub(super) fn new(session: &Session) -> Self {
        let Session { id, clears, ref writers, options, .. } = *session;
        Self {
            session_id: id,
            clears,
            writer: writers.create(),
            options,
            has_begun: false,
            last: 0,
            composer: Composer::new(options.contents),
            tracks: FxHashSet::default(),
            slices: Slices::default(),
        }
    }

    /// The session may have cleared incremental state since.
    pub(super) fn update(&mut self, session: &Session) {
        if self.clears != session.clears {
            self.clears = session.clears;
            self.has_begun = false;
        }
    }

    /// Writes an event that `compose` makes, or counts it as dropped. `now` reads the clock once
    /// for all sessions.
    #[inline]
    pub(super) fn write(
        &mut self,
        kind: Kind,
        track: Option<&dyn Described>,
        now: &mut impl FnMut() -> u64,
        compose: impl FnOnce(&mut Composer),
    ) {
        let on_thread = track.is_none();
        if on_thread && kind == Kind::SliceEnd && !self.slices.end() {
            return;
        }
        let got_through = self.is_ready(now) && self.describe(track) && {
            // Before the event is composed, which goes on while the processor reads its counter.
            let now_ns = now();
            self.composer.packet.begin_packet();
            self.writer.place_slot(self.composer.packet.slot());
            compose(&mut self.composer);
            self.write_event(now_ns)
        };
        if on_thread {
            self.slices.written(kind, got_through);
        }
    }

    /// Explains the sequence's state where that is needed, and ends slices whose end was lost.
    #[inline]
    fn is_ready(&mut self, now: &mut impl FnMut() -> u64) -> bool {
        (self.has_begun || self.begin(now)) && (self.slices.ends_owed == 0 || self.pay_ends(now()))
    }

    #[cold]
    fn begin(&mut self, now: &mut impl FnMut() -> u64) -> bool {
        if !self.writer.has_room() {
            return false;
        }
        self.composer.forget();
        self.tracks.clear();
        let Options { incremental, unit_ns, .. } = self.options;
        let now_ns = now().max(self.last * unit_ns);
        self.last = now_ns / unit_ns;
        let clock = match (incremental, unit_ns) {
            (true, _) => INCREMENTAL,
            (false, 1) => BOOTTIME,
            (false, _) => IN_UNITS,
        };
        let packet = &mut self.composer.packet;
        packet.begin_packet();
        packet.varint(TIMESTAMP, now_ns);
        packet.varint(TIMESTAMP_CLOCK_ID, BOOTTIME);
        packet.varint(SEQUENCE_FLAGS, INCREMENTAL_STATE_CLEARED);
        packet.nested(TRACE_PACKET_DEFAULTS, |defaults| {
            defaults.varint(TIMESTAMP_CLOCK_ID, clock);
            defaults.nested(TRACK_EVENT, |event| event.varint(11, process::thread_uuid()));
        });
        if clock != BOOTTIME {
            packet.nested(CLOCK_SNAPSHOT, |snapshot| {
                snapshot.nested(1, |boottime| {
                    boottime.varint(1, BOOTTIME);
                    boottime.varint(2, now_ns);
                });
                snapshot.nested(1, |own| {
                    own.varint(1, clock);
                    own.varint(2, self.last);
                    own.varint(3, incremental.into());
                    own.varint(4, unit_ns);
                });
            });
        }
        self.has_begun = self.writer.try_write_sized(packet.packet())
            && self.write_descriptor(process::describe_process)
            && self.write_descriptor(process::describe_thread);
        self.has_begun
    }

    fn write_descriptor(&mut self, describe: impl FnOnce(&mut Message)) -> bool {
        let packet = &mut self.composer.packet;
        packet.begin_packet();
        packet.nested(TRACK_DESCRIPTOR, describe);
        self.writer.try_write_sized(packet.packet())
    }

    #[cold]
    fn pay_ends(&mut self, now_ns: u64) -> bool {
        while self.slices.ends_owed > 0 {
            self.composer.packet.begin_packet();
            self.composer.compose_end();
            if !self.write_event(now_ns) {
                return false;
            }
            self.slices.ends_owed -= 1;
        }
        true
    }

    /// Describes the event's track, where it is none that the sequence has described.
    #[inline]
    fn describe(&mut self, track: Option<&dyn Described>) -> bool {
        track.is_none_or(|track| self.describe_track(track))
    }

    #[inline(never)]
    fn describe_track(&mut self, track: &dyn Described) -> bool {
        if !self.tracks.insert(track.uuid()) {
            return true;
        }
        self.has_begun = self.write_descriptor(|descriptor| track.describe(descriptor));
        self.has_begun
    }

    /// Writes the event that is composed.
    #[inline]
    fn write_event(&mut self, now_ns: u64) -> bool {
        let now = match self.options.unit_ns {
            1 => now_ns,
            unit_ns => now_ns / unit_ns,
        };
        let now = now.max(self.last);
        let time = if self.options.incremental { now - self.last } else { now };
        let Composer { packet, interned, .. } = &mut self.composer;
        packet.number(FLAGS_AND_TIME, time);
        if !interned.is_empty() {
            packet.bytes(INTERNED_DATA, interned.as_bytes());
        }
        self.last = now;
        // After a loss a reader does not know any more what was explained, nor the time.
        let is_there = packet.in_slot().is_some_and(|(slot, len)| self.writer.end_slot(slot, len));
        self.has_begun = is_there || self.writer.try_write_sized(packet.packet());
        self.has_begun
    }
}

/// The slices of the thread that are open, so that they nest in the trace whatever is lost.
#[derive(Debug, Default)]
struct Slices {
    depth: u32,
    /// Depths of those whose begin was lost.
    lost: Vec<u32>,
    /// Slices that have ended while the trace does not say so.
    ends_owed: u32,
}

impl Slices {
    /// A slice ends. False: the trace has no begin of it.
    #[inline]
    fn end(&mut self) -> bool {
        let Some(depth) = self.depth.checked_sub(1) else { return false };
        self.depth = depth;
        self.lost.pop_if(|lost| *lost == depth).is_none()
    }

    #[inline]
    fn written(&mut self, kind: Kind, got_through: bool) {
        match (kind, got_through) {
            (Kind::SliceBegin, got_through) => {
                if !got_through {
                    self.lost.push(self.depth);
                }
                self.depth += 1;
            }
            (Kind::SliceEnd, false) => self.ends_owed += 1,
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_lost_of_slices_is_made_up_for() {
        let mut slices = Slices::default();
        assert!(!slices.end(), "it began before the session");
        slices.written(Kind::SliceBegin, true);
        slices.written(Kind::SliceBegin, false);
        slices.written(Kind::SliceBegin, true);
        assert!(slices.end());
        slices.written(Kind::SliceEnd, false);
        assert!(!slices.end(), "its begin was lost");
        assert!(slices.end());
        assert_eq!((slices.depth, slices.ends_owed, slices.lost.len()), (0, 1, 0));
    }
}
