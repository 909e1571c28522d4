//! The official producer: track events, and a data source with packets of any size.

use std::sync::OnceLock;

use perfetto_sdk::data_source::{
    DataSource, DataSourceArgsBuilder, DataSourceBufferExhaustedPolicy, TraceContext,
};
use perfetto_sdk::producer::{Backends, Producer, ProducerInitArgsBuilder};
use perfetto_sdk::protos::trace::test_event::{TestEvent, TestEventTestPayload};
use perfetto_sdk::protos::trace::trace_packet::TracePacket;
use perfetto_sdk::track_event::{EventContext, TrackEvent, TrackEventDebugArg};
use perfetto_sdk::{track_event_categories, track_event_category_enabled, track_event_instant};

/// The data source of [`numbered`] packets.
pub(crate) const NUMBERED: &str = "watershed.numbered";
/// The category of track events.
pub(crate) const CATEGORY: &str = "numbered";
/// Length of the strings that a packet is made of.
const PIECE_SIZE_BYTES: usize = 700;

track_event_categories! {
    pub mod categories {
        ( "numbered", "Numbered events", [] ),
    }
}
use categories as perfetto_te_ns;

use crate::SOON;

static SOURCE: OnceLock<DataSource<'static>> = OnceLock::new();

/// Connects to the service, or waits in the background until there is one. The library's consumer
/// needs that too.
pub(crate) fn connect(shmem_size_hint_kb: u32) {
    let args =
        ProducerInitArgsBuilder::new().backends(Backends::SYSTEM).shmem_size_hint_kb(shmem_size_hint_kb);
    Producer::init(args.build());
}

/// Connects and registers. A packet of [`numbered`] waits for space in the shared memory; track
/// events never do, the library drops them.
pub(crate) fn start(shmem_size_hint_kb: u32) {
    connect(shmem_size_hint_kb);
    TrackEvent::init();
    categories::register().expect("categories are registered once");
    SOURCE.get_or_init(|| {
        let policy = DataSourceBufferExhaustedPolicy::StallAndAbort;
        let mut source = DataSource::new();
        source
            .register(NUMBERED, DataSourceArgsBuilder::new().buffer_exhausted_policy(policy).build())
            .expect("the data source is registered once");
        source
    });
}

/// Whether a session records both data sources.
pub(crate) fn is_recorded() -> bool {
    source().is_enabled() && track_event_category_enabled!("numbered")
}

fn source() -> &'static DataSource<'static> {
    SOURCE.get().expect("the producer was started")
}

/// How large packet `number` is: every tenth spreads over several chunks.
fn pieces(number: u32) -> usize {
    if number % 10 == 9 { 15 + number as usize % 14 } else { 0 }
}

/// What a packet's strings must be.
pub(crate) fn piece(thread: u64, number: u32, index: usize) -> String {
    let letter = char::from(b'a' + ((thread as usize + number as usize + index) % 26) as u8);
    letter.to_string().repeat(PIECE_SIZE_BYTES)
}

/// The strings of packet `number`.
pub(crate) fn strings(thread: u64, number: u32) -> Vec<String> {
    (0..pieces(number)).map(|index| piece(thread, number, index)).collect()
}

/// Writes a packet for each session that records. Large ones are nested messages whose sizes are
/// known only chunks later, and are patched then.
pub(crate) fn numbered(thread: u64, number: u32) {
    let strings = strings(thread, number);
    source().trace(|context: &mut TraceContext<'_>| {
        context.add_packet(|packet: &mut TracePacket| {
            packet.set_for_testing(|event: &mut TestEvent| {
                event.set_counter(thread).set_seq_value(number);
                if !strings.is_empty() {
                    event.set_payload(|outer: &mut TestEventTestPayload| {
                        outer.set_nested(|inner: &mut TestEventTestPayload| {
                            for string in &strings {
                                inner.set_str(string);
                            }
                        });
                    });
                }
            });
        });
    });
}

/// Commits what this thread has written; `done` is called once the service has it.
pub(crate) fn flush(done: impl Fn() + Send + Sync + Clone + 'static) {
    source().trace(|context: &mut TraceContext<'_>| context.flush(done.clone()));
}

/// Tells the service that something has happened.
pub(crate) fn trigger(name: &str) {
    Producer::activate_trigger(name, SOON).expect("the name has no zero in it");
}

/// Writes a track event with `filler`.
pub(crate) fn track_event(thread: u64, number: u32, filler: Option<&str>) {
    track_event_instant!("numbered", "event", |context: &mut EventContext| {
        context.add_debug_arg("thread", TrackEventDebugArg::Uint64(thread));
        context.add_debug_arg("number", TrackEventDebugArg::Uint64(number.into()));
        if let Some(filler) = filler {
            context.add_debug_arg("filler", TrackEventDebugArg::String(filler));
        }
    });
}

/// Runs `work` in so many threads at once; it is told which.
pub(crate) fn in_threads(count: u64, work: impl Fn(u64) + Sync) {
    std::thread::scope(|scope| {
        for thread in 0..count {
            let work = &work;
            scope.spawn(move || work(thread));
        }
    });
}
