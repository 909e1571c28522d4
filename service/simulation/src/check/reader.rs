//! What was read of a session, packet by packet: none twice, none under a wrong identity, none out
//! of order, none missing without a word.

use std::collections::{BTreeMap, BTreeSet};

use watershed_wire::protos;
use watershed_wire::raw::{Fields, Value};

use crate::check::filter;
use crate::check::ledger::Ledger;
use crate::packet::{WriterKey, text_of, writer_of};

mod field {
    //! Of `TracePacket` and, the last one, of `TestEvent`.
    pub(super) const TRUSTED_UID: u32 = 3;
    pub(super) const SEQUENCE_ID: u32 = 10;
    pub(super) const TRACE_STATS: u32 = 35;
    pub(super) const PREVIOUS_PACKET_DROPPED: u32 = 42;
    pub(super) const TRUSTED_PID: u32 = 79;
    pub(super) const MACHINE_ID: u32 = 98;
    pub(super) const FOR_TESTING: u32 = 900;
    pub(super) const STR: u32 = 1;
}

/// The sequence of the service itself.
const SERVICE_SEQUENCE_ID: u64 = 1;

/// Who a producer of the run is, as the kernel would say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) uid: i32,
    pub(crate) pid: i32,
    pub(crate) machine_id: u32,
    /// Keeps to no rule: its packets may be anything.
    pub(crate) is_liar: bool,
}

/// What the checks of a packet go by.
pub(crate) struct Known<'a> {
    pub(crate) identities: &'a BTreeMap<u32, Identity>,
    pub(crate) ledger: &'a Ledger,
    /// Packets have passed the filter of `check::filter`.
    pub(crate) is_filtered: bool,
    /// Some may have.
    pub(crate) may_be_filtered: bool,
    /// The buffers hold everything: nothing may be missing.
    pub(crate) is_roomy: bool,
    /// Buffers were emptied or taken for a clone: what is missing says nothing.
    pub(crate) has_holes: bool,
}

/// The trace of one session so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Reader {
    seen: BTreeSet<(WriterKey, u64)>,
    last_serial: BTreeMap<WriterKey, u64>,
    /// A loss was told before a packet, and what is lost has to come behind it.
    told_early: BTreeSet<WriterKey>,
    writer_of_sequence: BTreeMap<u64, (u32, u16)>,
    /// Packets of honest producers.
    pub(crate) num_packets: u64,
    /// Of which were told that something before them is lost.
    pub(crate) num_losses: u64,
    pub(crate) num_triggers: u64,
}

/// The top-level fields of a packet that matter here.
#[derive(Debug, Default)]
struct Read {
    uids: Vec<u64>,
    sequence_ids: Vec<u64>,
    pids: Vec<u64>,
    machine_ids: Vec<u64>,
    loss: u64,
    text: Option<String>,
    is_stats: bool,
    is_trigger: bool,
}

/// Field `TracePacket.trigger`.
const TRIGGER: u32 = 46;

fn read(packet: &[u8]) -> Read {
    let mut read = Read::default();
    for field in Fields::new(packet) {
        let Ok(field) = field else { panic!("a packet in a trace is not a message: {packet:?}") };
        match (field.number, field.value) {
            (field::TRUSTED_UID, Value::Varint(value)) => read.uids.push(value),
            (field::SEQUENCE_ID, Value::Varint(value)) => read.sequence_ids.push(value),
            (field::TRUSTED_PID, Value::Varint(value)) => read.pids.push(value),
            (field::MACHINE_ID, Value::Varint(value)) => read.machine_ids.push(value),
            (field::PREVIOUS_PACKET_DROPPED, Value::Varint(value)) => read.loss = value,
            (field::TRACE_STATS, _) => read.is_stats = true,
            (TRIGGER, _) => read.is_trigger = true,
            (field::FOR_TESTING, Value::LengthDelimited(event)) => {
                let text = Fields::new(event).flatten().find(|field| field.number == field::STR);
                let text = text.and_then(|field| field.value.bytes().map(<[u8]>::to_vec));
                read.text = text.and_then(|bytes| String::from_utf8(bytes).ok());
            }
            _ => {}
        }
    }
    read
}

/// The packets of a part of a trace file, which must be whole.
pub(crate) fn packets_of(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut packets = Vec::new();
    while let Some((key, mut rest)) = bytes.split_first() {
        let size = prost::encoding::decode_varint(&mut rest).expect("a packet has a size") as usize;
        assert!(*key == 10 && size <= rest.len(), "no trace file");
        packets.push(&rest[..size]);
        bytes = &rest[size..];
    }
    packets
}

/// Those packets that producers wrote, as they are.
pub(crate) fn of_producers(bytes: &[u8]) -> Vec<&[u8]> {
    let mut packets = packets_of(bytes);
    packets.retain(|packet| read(packet).sequence_ids.iter().any(|id| *id != SERVICE_SEQUENCE_ID));
    packets
}

/// Who wrote what of these packets, for the log.
pub(crate) fn summary(bytes: &[u8]) -> String {
    let of_one = |packet: &[u8]| {
        let read = read(packet);
        let ((producer, writer, life), serial) = writer_of(&read.text?)?;
        let loss = if read.loss == 0 { String::new() } else { format!(" after loss {:#x}", read.loss) };
        Some(format!("p{producer}/{writer}.{life}#{serial}{loss}"))
    };
    packets_of(bytes).into_iter().filter_map(of_one).collect::<Vec<_>>().join(", ")
}

impl Known<'_> {
    /// Whether what the filter does not let through may be missing.
    fn hides_fields(&self) -> bool {
        self.is_filtered || self.may_be_filtered
    }
}

impl Reader {
    /// Takes another part of the trace.
    pub(crate) fn take(&mut self, bytes: &[u8], known: &Known<'_>) {
        packets_of(bytes).into_iter().for_each(|packet| self.take_packet(packet, known));
    }

    fn take_packet(&mut self, packet: &[u8], known: &Known<'_>) {
        let read = read(packet);
        if known.is_filtered && !read.is_stats {
            filter::check(packet);
        }
        self.num_triggers += u64::from(read.is_trigger);
        let is_own = read.sequence_ids[..] == [SERVICE_SEQUENCE_ID];
        if is_own || (known.hides_fields() && read.sequence_ids.is_empty()) {
            return;
        }
        let [sequence_id] = read.sequence_ids[..] else {
            panic!("a packet of no or two sequences: {read:?}")
        };
        let found = read.text.as_deref().and_then(|text| Some((writer_of(text)?, text)));
        let Some(((writer, serial), text)) = found else { return self.take_of_liar(&read, known) };
        let written = text_of(writer, serial);
        let differs = text.bytes().zip(written.bytes()).position(|(read, written)| read != written);
        assert!(text == written, "changed: {writer:?} {serial}, {} bytes, at {differs:?}", written.len());
        self.check_identity(writer, &read, known);
        let of_sequence = (writer.0, writer.1);
        let first = *self.writer_of_sequence.entry(sequence_id).or_insert(of_sequence);
        assert_eq!(first, of_sequence, "two writers in the sequence {sequence_id}");
        assert!(self.seen.insert((writer, serial)), "read twice: {writer:?} {serial}");
        self.check_gap(writer, serial, read.loss, known);
        self.num_packets += 1;
    }

    /// It must not pass for an honest one's.
    fn take_of_liar(&self, read: &Read, known: &Known<'_>) {
        if known.hides_fields() {
            return;
        }
        let is_his = |identity: &Identity| {
            identity.is_liar
                && read.uids == [i64::from(identity.uid) as u64]
                && read.pids == [i64::from(identity.pid) as u64]
        };
        assert!(known.identities.values().any(is_his), "a packet that nobody wrote: {read:?}");
    }

    fn check_identity(&self, writer: WriterKey, read: &Read, known: &Known<'_>) {
        let identity = &known.identities[&writer.0];
        assert!(!identity.is_liar);
        if known.hides_fields() {
            return;
        }
        let machine_ids: &[u64] = match identity.machine_id {
            0 => &[],
            id => &[u64::from(id)],
        };
        assert_eq!(
            (&read.uids[..], &read.pids[..], &read.machine_ids[..]),
            (&[i64::from(identity.uid) as u64][..], &[i64::from(identity.pid) as u64][..], machine_ids),
            "the identity of {writer:?}"
        );
    }

    /// What is missing before a packet is told with it, and nothing is told that is not so.
    fn check_gap(&mut self, writer: WriterKey, serial: u64, loss: u64, known: &Known<'_>) {
        let sequence = known.ledger.sequences.get(&writer).expect("nobody writes it for this session");
        assert!(serial < sequence.next_serial, "read before it was written: {writer:?} {serial}");
        let last = self.last_serial.insert(writer, serial);
        assert!(last < Some(serial), "out of order: {writer:?} {serial} after {last:?}");
        let expected = last.map_or(sequence.first_serial, |last| last + 1);
        self.num_losses += u64::from(loss != 0);
        if known.has_holes {
            return;
        }
        let is_missing = |other: u64| (expected..serial).contains(&other);
        if let Some(missing) = sequence.owed().rev().find(|other| is_missing(*other)) {
            assert!(!known.is_roomy, "missing where there was room: {writer:?} {missing} before {serial}");
            assert!(loss != 0, "missing without a word: {writer:?} {missing} before {serial}");
        }
        // The first packet of a number's next life also tells what the last one has lost.
        let is_next_life = last.is_none() && writer.2 > 0 && !known.is_roomy;
        let is_told = loss == 0 || expected < serial || is_next_life;
        assert!(is_told || !known.is_roomy, "nothing is missing, but told: {writer:?} {serial} {loss:#x}");
        // A scrape finds chunks in no order: one of the last may be overwritten before the first is
        // there, which then tells of it.
        if !is_told {
            self.told_early.insert(writer);
        } else if expected < serial {
            self.told_early.remove(&writer);
        }
    }

    /// Everything that can be read was. Returns how many packets are missing behind the last one of
    /// their writer, which no packet can tell.
    pub(crate) fn drained(&self, known: &Known<'_>) -> u64 {
        if known.has_holes {
            return 0;
        }
        let mut num_missing = 0;
        for (writer, sequence) in &known.ledger.sequences {
            let last = self.last_serial.get(writer).copied();
            let behind = sequence.owed().filter(|serial| Some(*serial) > last);
            let missing: Vec<u64> = behind.collect();
            assert!(
                !known.is_roomy || missing.is_empty(),
                "not there where there was room: {writer:?} {missing:?} after {last:?}"
            );
            let is_told = missing.is_empty() && self.told_early.contains(writer);
            assert!(!is_told, "nothing is missing, but told: {writer:?}");
            num_missing += missing.len() as u64;
        }
        num_missing
    }
}

/// Whether the buffers have lost chunks, as the session's statistics say.
pub(crate) fn names_a_loss(stats: &protos::TraceStats) -> bool {
    let of_buffers = stats.buffer_stats.iter();
    let lost = of_buffers
        .map(|buffer| buffer.chunks_overwritten() + buffer.chunks_discarded() + buffer.abi_violations());
    lost.sum::<u64>() + stats.chunks_discarded() > 0
}
