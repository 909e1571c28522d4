//! What a filter costs a small packet: a session that is read out with one and without.

use crate::measure::{Contestant, Lap, LapResult, Options, Series, WrongAnswer, cpu_time, interleave};
use crate::report::Measurement;
use prost::Message as _;
use std::cell::RefCell;
use std::sync::Arc;
use watershed_service::{
    ClockReadings, ConsumerId, HugePages, OutputFile, PeerIdentity, ProducerHello, ProducerMemory,
    ReadProgress, Service, ServiceOptions, Shards, SystemInfo,
};
use watershed_smb::SharedMemory;
use watershed_wire::protos::commit_data_request::ChunksToMove;
use watershed_wire::protos::trace_config::TraceFilter;
use watershed_wire::protos::{
    CommitDataRequest, DataSourceDescriptor, DebugAnnotation, TraceConfig, TracePacket, TrackEvent,
    debug_annotation, track_event,
};

const SOURCE: &str = "perf.filtered";
const RING_KB: u32 = 32 << 10;
const PACKET_BYTES: usize = 60;
const CHUNK_PAYLOAD_BYTES: usize = 4080;
/// Opcodes of a filter's words.
const SIMPLE: u32 = 1;
const NESTED: u32 = 3;
const END_OF_MESSAGE: u32 = 0;

/// Nanoseconds a packet: reading with a filter that lets everything pass, less reading without.
pub(super) fn packet(name: &str, options: &Options) -> Result<Measurement, WrongAnswer> {
    let num_chunks = options.size(4_000, 40);
    let told_ns = RefCell::new(Vec::new());
    let lap = |filter: Option<TraceFilter>| -> LapResult {
        let is_filtered = filter.is_some();
        let mut session = Session::filled(filter, num_chunks);
        let (lap, bytes) = session.read_out();
        let stats = session.service.trace_stats(session.consumer_id).ok_or("no session")?;
        let filtered = stats.filter_stats.as_ref();
        if stats.buffer_stats[0].chunks_read() != u64::from(num_chunks) || stats.invalid_packets() > 0 {
            return Err("not everything was read".to_owned());
        }
        if bytes < lap.units * PACKET_BYTES as u64 || filtered.is_some_and(|filter| filter.errors() > 0) {
            return Err("the filter has left something out".to_owned());
        }
        if filtered.is_some() != is_filtered {
            return Err("statistics of a filter that there is not".to_owned());
        }
        if let Some(filter) = filtered {
            told_ns.borrow_mut().push(filter.time_taken_ns() as f64 / filter.input_packets() as f64);
        }
        Ok(lap)
    };
    let contestants: [Contestant<'_>; 2] = [Box::new(|| lap(Some(program()))), Box::new(|| lap(None))];
    let [filtered, plain] = interleave(options, contestants)?;
    let filter = filtered.by_round(&plain, |filtered, plain| filtered - plain);
    let told_ns = Series::new(told_ns.into_inner());
    Ok(Measurement::ns_per("packet", name, &filter)
        .with("ns_read_filtered", filtered.median())
        .with("ns_read_plain", plain.median())
        .with("ns_told_by_statistics", told_ns.median()))
}

/// A track event of 60 bytes: a slice with a name, a category, an integer and a string.
fn text() -> Vec<u8> {
    let annotation = |iid, value| DebugAnnotation {
        name_field: Some(debug_annotation::NameField::NameIid(iid)),
        value: Some(value),
        ..Default::default()
    };
    let packet = |padding: usize| {
        let string = debug_annotation::Value::StringValue("x".repeat(padding));
        let event = TrackEvent {
            r#type: Some(track_event::Type::SliceBegin.into()),
            track_uuid: Some(0x1234_5678_9abc_def0),
            category_iids: vec![1],
            name_field: Some(track_event::NameField::NameIid(7)),
            debug_annotations: vec![
                annotation(3, debug_annotation::Value::IntValue(1_000_000)),
                annotation(4, string),
            ],
            ..Default::default()
        };
        let data = Some(watershed_wire::protos::trace_packet::Data::TrackEvent(event));
        TracePacket { timestamp: Some(12_345_678_901), data, ..Default::default() }.encode_to_vec()
    };
    packet(PACKET_BYTES - packet(0).len())
}

/// Lets all of `text` pass, and what the service adds to it.
fn program() -> TraceFilter {
    let simple = |numbers: &[u32]| numbers.iter().map(|number| number << 3 | SIMPLE).collect::<Vec<_>>();
    let (packet, event, annotation) = (1, 2, 3);
    let trace = [1 << 3 | NESTED, packet, END_OF_MESSAGE];
    let of_packet =
        [simple(&[3, 8, 10]), vec![11 << 3 | NESTED, event], simple(&[42, 58, 79, 98]), vec![END_OF_MESSAGE]];
    let of_event =
        [simple(&[3]), vec![4 << 3 | NESTED, annotation], simple(&[9, 10, 11, 22, 23]), vec![END_OF_MESSAGE]];
    let of_annotation = [simple(&[1, 3, 4, 6, 10]), vec![END_OF_MESSAGE]];
    let words = [&trace[..], &of_packet.concat(), &of_event.concat(), &of_annotation.concat()].concat();
    let mut bytecode = Vec::new();
    for word in words.iter().chain([&checksum(&words)]) {
        prost::encoding::encode_varint(u64::from(*word), &mut bytecode);
    }
    TraceFilter { bytecode: Some(bytecode), ..Default::default() }
}

/// Lower half of FNV-1a with 64 bits over the words of a program.
fn checksum(words: &[u32]) -> u32 {
    let bytes = words.iter().flat_map(|word| word.to_le_bytes());
    bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
        as u32
}

/// A session with a full buffer, of a service in this process.
struct Session {
    service: Service,
    consumer_id: ConsumerId,
    packets: u64,
}

impl Session {
    fn filled(filter: Option<TraceFilter>, num_chunks: u32) -> Session {
        let mut service = Service::new(ServiceOptions {
            seed: 1,
            uid: 0,
            version: "Perfetto v58.0-perf".to_owned(),
            system: SystemInfo::default(),
            scraping_by_default: false,
            shards: Shards::Wanted(1),
            huge_pages: HugePages::Advise,
            workers: None,
            memory: Box::new(|size_bytes| SharedMemory::anonymous(size_bytes).map(Arc::new)),
            read_pool: Box::new(|| None),
            never_waits: false,
            filter_clock: Some(watershed_shell::machine::monotonic_ns),
        });
        let now = ClockReadings::default();
        let identity = PeerIdentity { uid: 1000, pid: Some(12_345), ..PeerIdentity::default() };
        let hello = ProducerHello { identity, memory: ProducerMemory::Emulated, ..ProducerHello::default() };
        let producer_id = service.handle_producer_connect(hello).expect("there is room").producer_id;
        let source = DataSourceDescriptor { name: Some(SOURCE.to_owned()), ..Default::default() };
        service.handle_register_data_source(producer_id, &source.encode_to_vec(), &now);
        let consumer_id = service.handle_consumer_connect(PeerIdentity::default()).expect("there is room");
        let config = TraceConfig { trace_filter: filter, ..super::trace::config(SOURCE, RING_KB) };
        let config = config.encode_to_vec();
        service.handle_enable_tracing(consumer_id, &config, OutputFile::None, &now).expect("it is accepted");
        let text = text();
        let in_chunk = CHUNK_PAYLOAD_BYTES / (1 + text.len());
        let payload = [&[text.len() as u8][..], &text].concat().repeat(in_chunk);
        for chunk_id in 0..num_chunks {
            let head = [&chunk_id.to_le_bytes()[..], &1_u16.to_le_bytes(), &(in_chunk as u16).to_le_bytes()];
            let data = Some([&head.concat(), &payload[..]].concat());
            let chunk = ChunksToMove { target_buffer: Some(1), data, ..Default::default() };
            let request = CommitDataRequest { chunks_to_move: vec![chunk], ..Default::default() };
            assert!(service.handle_commit_data(producer_id, &request), "there is room for it");
        }
        Session { service, consumer_id, packets: u64::from(num_chunks) * in_chunk as u64 }
    }

    /// As a file is written, in blocks; by the CPU time of this thread.
    fn read_out(&mut self) -> (Lap, u64) {
        let (now, mut block) = (ClockReadings::default(), Vec::with_capacity(2 << 20));
        let (mut bytes, mut progress) = (0, ReadProgress::More);
        let before = cpu_time();
        while progress == ReadProgress::More {
            block.clear();
            progress = self.service.read_framed(self.consumer_id, &mut block, &now);
            bytes += block.len() as u64;
        }
        (Lap { elapsed: cpu_time() - before, units: self.packets }, bytes)
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn packets_have_the_size_that_the_limit_is_for() {
        assert_eq!(super::text().len(), super::PACKET_BYTES);
    }
}
