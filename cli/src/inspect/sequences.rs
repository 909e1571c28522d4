//! The sequences of a trace: one for each writer.

use std::collections::HashMap;

use watershed_wire::packet::Envelope;
use watershed_wire::protos::trace_packet::DataLossReason;

use super::clocks::SequenceClocks;
use super::tally::{Span, Tally};

/// Sequences that are told apart; a hostile trace could have 2^32. About 200 bytes each.
const SEQUENCES_MAX: usize = 1 << 16;

/// What is known of one sequence.
#[derive(Debug, Default)]
pub(super) struct Sequence {
    pub(super) uid: Option<i32>,
    pub(super) pid: Option<i32>,
    pub(super) machine_id: Option<u32>,
    pub(super) tally: Tally,
    pub(super) span: Span,
    /// Whether the writer's very first packet is in the trace.
    pub(super) begins_here: bool,
    /// Packets before which something of this sequence was lost, the first one in the trace left
    /// out: what a ring overwrote before the trace begins is not missing in the trace.
    pub(super) losses: u64,
    /// Bits of `DataLossReason` of those packets.
    pub(super) loss_reasons: u32,
    pub(super) clocks: SequenceClocks,
    pub(super) default_clock_id: Option<u32>,
    /// Whether the trace has a packet that its incremental state begins with.
    has_state: bool,
}

/// Bits of `TracePacket.sequence_flags`.
const INCREMENTAL_STATE_CLEARED: u32 = 1;
const NEEDS_INCREMENTAL_STATE: u32 = 2;

impl Sequence {
    pub(super) fn add(&mut self, packet: &[u8], envelope: &Envelope<'_>) {
        if envelope.previous_packet_dropped != 0 {
            self.clocks.lose();
            if self.tally.packets > 0 {
                self.losses += 1;
                self.loss_reasons |= envelope.previous_packet_dropped;
            }
        }
        self.tally.add(packet);
        self.begins_here |= envelope.first_packet_on_sequence;
        self.has_state |=
            envelope.incremental_state_cleared || envelope.sequence_flags & INCREMENTAL_STATE_CLEARED != 0;
        // The service writes these on every packet of a producer; its own have no pid.
        self.uid = envelope.trusted_uid.or(self.uid);
        self.pid = envelope.trusted_pid.or(self.pid);
        self.machine_id = envelope.machine_id.or(self.machine_id);
    }

    /// Whether the packet says nothing without state that is not in the trace: not what its
    /// timestamp counts, for one. A ring has overwritten that, or it was lost.
    pub(super) fn lacks_state(&self, envelope: &Envelope<'_>) -> bool {
        envelope.sequence_flags & NEEDS_INCREMENTAL_STATE != 0 && !self.has_state
    }
}

/// All sequences, by id.
#[derive(Debug, Default)]
pub(super) struct Sequences {
    by_id: HashMap<u32, Sequence>,
    /// Packets of sequences beyond those that are told apart.
    pub(super) others: Tally,
    /// Packets that belong to no sequence.
    pub(super) without: Tally,
}

impl Sequences {
    /// The sequence of a packet; `None` if it has none or there are too many.
    pub(super) fn of(&mut self, packet: &[u8], envelope: &Envelope<'_>) -> Option<&mut Sequence> {
        let Some(id) = envelope.sequence_id.filter(|id| *id != 0) else {
            self.without.add(packet);
            return None;
        };
        if self.by_id.len() >= SEQUENCES_MAX && !self.by_id.contains_key(&id) {
            self.others.add(packet);
            return None;
        }
        let sequence = self.by_id.entry(id).or_default();
        sequence.add(packet, envelope);
        Some(sequence)
    }

    /// Whether the trace has the sequence from its writer's first packet on. What has no sequences
    /// has no service, and no ring that may have overwritten something.
    pub(super) fn begins_here(&self, id: Option<u32>) -> bool {
        match id.filter(|id| *id != 0) {
            Some(id) => self.by_id.get(&id).is_some_and(|sequence| sequence.begins_here),
            None => true,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.by_id.len()
    }

    /// By id, from the lowest.
    pub(super) fn sorted(&self) -> Vec<(u32, &Sequence)> {
        let mut sorted: Vec<_> = self.by_id.iter().map(|(id, sequence)| (*id, sequence)).collect();
        sorted.sort_by_key(|(id, _)| *id);
        sorted
    }
}

/// The names of the bits of a loss, `overwrite` for example; an unknown bit has its number.
pub(super) fn loss_reason_names(bits: u32) -> Vec<String> {
    let reason = |bit: u32| {
        let value = 1_u32 << bit;
        let known = i32::try_from(value).ok().and_then(|value| DataLossReason::try_from(value).ok());
        match known {
            // Says only that there is another reason, or that an older service did not know it.
            Some(DataLossReason::DataLossPresent) if bits != value => None,
            Some(DataLossReason::DataLossPresent) => Some("unknown".to_owned()),
            Some(reason) => {
                let name = reason.as_str_name().trim_start_matches("DATA_LOSS_");
                Some(name.to_ascii_lowercase())
            }
            None => Some(format!("reason_{value}")),
        }
    };
    (0..u32::BITS).filter(|bit| bits & (1 << bit) != 0).filter_map(reason).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loss_before_the_first_packet_is_not_missing_in_the_trace() {
        let mut sequences = Sequences::default();
        let lossy = Envelope { sequence_id: Some(2), previous_packet_dropped: 65, ..Default::default() };
        for _ in 0..3 {
            sequences.of(b"p", &lossy);
        }
        let sorted = sequences.sorted();
        assert_eq!((sorted[0].1.losses, sorted[0].1.loss_reasons), (2, 65));
    }

    #[test]
    fn what_was_said_before_the_trace_is_lacking() {
        let mut sequences = Sequences::default();
        let mut lacks = |flags: u32, is_cleared: bool| {
            let envelope = Envelope {
                sequence_id: Some(2),
                sequence_flags: flags,
                incremental_state_cleared: is_cleared,
                ..Default::default()
            };
            sequences.of(b"p", &envelope).unwrap().lacks_state(&envelope)
        };
        assert!(lacks(2, false) && !lacks(0, false) && lacks(2, false));
        assert!(!lacks(1, false) && !lacks(2, false));
        let mut older = Sequences::default();
        let envelope =
            Envelope { sequence_id: Some(2), incremental_state_cleared: true, ..Default::default() };
        assert!(!older.of(b"p", &envelope).unwrap().lacks_state(&Envelope { sequence_flags: 2, ..envelope }));
    }

    #[test]
    fn sequences_are_bounded() {
        let mut sequences = Sequences::default();
        for id in 0..=SEQUENCES_MAX as u32 + 5 {
            let envelope = Envelope { sequence_id: Some(id), ..Default::default() };
            sequences.of(b"p", &envelope);
        }
        assert_eq!(sequences.by_id.len(), SEQUENCES_MAX);
        assert_eq!(sequences.others.packets, 5);
        assert_eq!(sequences.without.packets, 1, "id 0 is no sequence");
    }

    #[test]
    fn reasons_have_names() {
        assert_eq!(loss_reason_names(0), Vec::<String>::new());
        assert_eq!(loss_reason_names(1), ["unknown"]);
        assert_eq!(loss_reason_names(1 | 64 | 256), ["overwrite", "smb_full"]);
        assert_eq!(loss_reason_names(1 << 31), ["reason_2147483648"]);
    }
}
