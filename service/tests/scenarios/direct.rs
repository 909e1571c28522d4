//! Writers in the service's own process, which commit on their own threads, beside all that the
//! service does meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use watershed_service::{
    CloneRequest, CloneSource, ConsumerEvent, ConsumerId, DirectCommitter, FlushFlags, ProducerHello,
    ProducerId, ScrapingMode, SessionId,
};
use watershed_wire::protos::TraceConfig;

use crate::support::config::{buffer, one_source, source};
use crate::support::producer::{FakeProducer, packet};
use crate::support::trace::Trace;
use crate::support::{World, hello};

/// What does not happen within this time never will, however busy the machine is.
const WATCHDOG: Duration = Duration::from_secs(300);

fn world(num_shards: usize) -> (World, ProducerId) {
    let mut world = World::with_shards(num_shards);
    let hello = ProducerHello { name: "p".to_owned(), scraping: ScrapingMode::Enabled, ..hello() };
    let producer = world.connect_as(hello);
    world.register(producer, "src").register(producer, "other");
    (world, producer)
}

/// A thread's writer.
struct Writer {
    memory: FakeProducer,
    writer_id: u16,
    direct: DirectCommitter,
    next_chunk_id: u32,
    num_packets: u32,
}

impl Writer {
    fn new(world: &mut World, producer: ProducerId, writer_id: u16, target_buffer: u32) -> Writer {
        world.service.handle_register_trace_writer(producer, writer_id.into(), target_buffer);
        let direct = world.service.direct_commits();
        let direct = direct.committer(producer, writer_id, target_buffer as u16).expect("allowed");
        let mut memory = FakeProducer::new();
        memory.smb.clone_from(&world.producers[&producer].smb);
        Writer { memory, writer_id, direct, next_chunk_id: 0, num_packets: 0 }
    }

    /// A chunk of some packets, each of which is visible as soon as it is written. `written` is
    /// told how many there are then.
    fn write_chunk(&mut self, written: &AtomicU32) {
        let Some(mut chunk) = self.memory.try_chunk_with_id(self.writer_id, self.next_chunk_id) else {
            return std::thread::yield_now();
        };
        self.next_chunk_id += 1;
        for _ in 0..1 + self.next_chunk_id % 7 {
            let text = format!("{} {}", self.writer_id, self.num_packets);
            chunk = chunk.packet(&packet(&text)).begun();
            self.num_packets += 1;
            // Release: pairs with the Acquire of who flushes.
            written.store(self.num_packets, Ordering::Release);
        }
        // The last one that was begun stays empty.
        let chunk = chunk.packet(&[]);
        let (page, index) = chunk.place();
        chunk.complete();
        self.direct.commit_chunk(page as usize, index as usize);
    }
}

/// Checks that a trace goes on with a writer's packets where others have ended, and says where it
/// ends. `repeats`: it may begin with some that were in the last one.
fn end_of(trace: &Trace, writer_id: u16, from: u32, repeats: bool) -> u32 {
    let texts = trace.texts().into_iter().filter_map(|text| text.split_once(' '));
    let of_writer = texts.filter(|(of, _)| *of == writer_id.to_string());
    let numbers: Vec<u32> = of_writer.map(|(_, number)| number.parse().expect("a number")).collect();
    let (Some(&first), Some(&last)) = (numbers.first(), numbers.last()) else { return from };
    assert!(first == from || repeats && first < from, "writer {writer_id} goes on with {first}, not {from}");
    assert!(numbers.into_iter().eq(first..=last), "writer {writer_id}");
    from.max(last + 1)
}

fn flush(world: &mut World, consumer: ConsumerId, producer: ProducerId) {
    let now = world.now;
    world.service.handle_flush(consumer, 1000, FlushFlags::EXPLICIT, &now).expect("it runs");
    world.acknowledge_flush(producer);
    world.run_due();
}

/// A clone of the session, read.
fn clone(world: &mut World, session: SessionId, producer: ProducerId) -> Trace {
    let consumer = world.consumer();
    let source = CloneSource::Session(session);
    let request =
        CloneRequest { source, for_bugreport: false, skip_filter: false, trigger: None, into_file: false };
    let now = world.now;
    world.service.handle_clone_session(consumer, request, false, &now).expect("allowed");
    world.acknowledge_flush(producer);
    world.run_due();
    assert!(matches!(world.events_of(consumer)[..], [ConsumerEvent::Cloned { result: Ok(_), .. }]));
    let trace = world.read(consumer);
    world.free(consumer);
    trace
}

/// Two threads write into a buffer that is read and copied, a third one into a buffer that is
/// handed over to clones. What was written before a flush is in the read or the clone behind it;
/// everything is there in the end, in order, and what was read or copied is there once.
#[test]
fn commits_beside_flushes_reads_and_clones() {
    [1, 4].into_iter().for_each(commits_beside_others);
}

fn commits_beside_others(num_shards: usize) {
    const CHUNKS: u32 = 4000;
    const COPIED: [u16; 2] = [1, 2];
    const TRANSFERRED: u16 = 3;
    let (mut world, producer) = world(num_shards);
    let mut config = TraceConfig {
        buffers: vec![buffer(16 << 10), buffer(16 << 10)],
        data_sources: vec![source("src", 0), source("other", 1)],
        ..TraceConfig::default()
    };
    config.buffers[1].transfer_on_clone = Some(true);
    let (consumer, session) = world.enable(&config);
    let targets = [0, 1].map(|index| world.producers[&producer].target_buffer(index));
    let threads = [1, 2, 3].map(|id| {
        let mut writer = Writer::new(&mut world, producer, id, targets[usize::from(id == TRANSFERRED)]);
        let written = Arc::new(AtomicU32::new(0));
        let told = Arc::clone(&written);
        let write = move || {
            while writer.next_chunk_id < CHUNKS {
                writer.write_chunk(&told);
            }
        };
        (std::thread::spawn(write), written)
    });

    let started = Instant::now();
    // Of each writer, by its number.
    let mut read = [0; 4];
    let mut are_done = false;
    for round in 0.. {
        assert!(started.elapsed() < WATCHDOG, "the threads never end");
        are_done = are_done || threads.iter().all(|(thread, _)| thread.is_finished());
        // Acquire: pairs with the Release of who writes.
        let written = |id: u16| threads[usize::from(id) - 1].1.load(Ordering::Acquire);
        let before = [0, written(1), written(2), written(3)];
        let is_flushed = are_done || round % 3 != 2;
        let (trace, is_clone) = match round % 3 {
            1 if !are_done => (clone(&mut world, session, producer), true),
            _ => {
                if is_flushed {
                    flush(&mut world, consumer, producer);
                }
                (world.read(consumer), false)
            }
        };
        for id in COPIED.into_iter().chain([TRANSFERRED]) {
            let at = usize::from(id);
            // A chunk that is being written when its buffer is handed over comes again as a whole.
            let end = end_of(&trace, id, read[at], id == TRANSFERRED);
            assert!(!is_flushed || end >= before[at], "writer {id}: {end} of {before:?} in round {round}");
            if !is_clone || id == TRANSFERRED {
                read[at] = end;
            }
        }
        if are_done {
            assert_eq!(read, before, "{round} rounds");
            break;
        }
    }
    threads.into_iter().for_each(|(thread, _)| thread.join().expect("no panic"));
    let smb = world.producers[&producer].smb.as_ref().expect("memory");
    assert!((0..smb.num_pages()).all(|page| smb.snapshot(page).expect("a page").is_free()));
}

/// Threads go on when their session has gone. What they write then is in no trace, and their memory
/// is free again.
#[test]
fn commits_beside_sessions_that_come_and_go() {
    const SESSIONS: u16 = 30;
    let (mut world, producer) = world(4);
    let num_rows = world.service.num_rows();
    for round in 0..SESSIONS {
        let (consumer, _) = world.enable(&one_source("src"));
        let target = world.producers[&producer].target_buffer(round.into());
        let ids = [2 * round + 1, 2 * round + 2];
        let stop = Arc::new(AtomicBool::new(false));
        let threads = ids.map(|id| {
            let mut writer = Writer::new(&mut world, producer, id, target);
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let written = AtomicU32::new(0);
                // Relaxed: it says nothing else.
                while !stop.load(Ordering::Relaxed) {
                    writer.write_chunk(&written);
                }
                writer
            })
        });
        let started = Instant::now();
        let mut found = 0;
        while found < 20 {
            assert!(started.elapsed() < WATCHDOG, "nothing comes");
            flush(&mut world, consumer, producer);
            let trace = world.read(consumer);
            found += trace.texts().len();
            let of = |text: &str| text.split_once(' ').and_then(|(id, _)| id.parse().ok());
            assert!(trace.texts().into_iter().filter_map(of).all(|id: u16| ids.contains(&id)));
        }
        if round % 2 == 0 {
            world.disable(consumer);
        }
        let now = world.now;
        world.service.handle_consumer_disconnect(consumer, &now);
        world.run_due();
        stop.store(true, Ordering::Relaxed);
        for thread in threads {
            let writer = thread.join().expect("no panic");
            world.service.handle_unregister_trace_writer(producer, writer.writer_id.into());
        }
    }
    assert_eq!(world.service.num_rows(), num_rows);
    let smb = world.producers[&producer].smb.as_ref().expect("memory");
    assert!((0..smb.num_pages()).all(|page| smb.snapshot(page).expect("a page").is_free()));
}

/// The end of a writer comes behind what it has committed; its number may come back then.
#[test]
fn a_writer_ends_and_its_number_comes_back() {
    let (mut world, producer) = world(2);
    let (consumer, _) = world.enable(&one_source("src"));
    let target = world.producers[&producer].target_buffer(0);
    let written = AtomicU32::new(0);
    for _ in 0..3 {
        let mut writer = Writer::new(&mut world, producer, 7, target);
        (0..5).for_each(|_| writer.write_chunk(&written));
        world.service.handle_unregister_trace_writer(producer, 7);
        let trace = world.read(consumer);
        assert_eq!(end_of(&trace, 7, 0, false), written.load(Ordering::Relaxed));
        assert!(trace.packets.iter().all(|packet| packet.previous_packet_dropped.unwrap_or(0) == 0));
    }
    let stats = world.disable(consumer).read(consumer);
    assert_eq!(stats.stats().expect("statistics").chunks_discarded(), 0);
}

/// A producer that goes takes its writers with it.
#[test]
fn a_producer_that_has_gone_commits_nothing() {
    let (mut world, producer) = world(2);
    let (consumer, _) = world.enable(&one_source("src"));
    let target = world.producers[&producer].target_buffer(0);
    let written = AtomicU32::new(0);
    let mut writer = Writer::new(&mut world, producer, 1, target);
    writer.write_chunk(&written);
    world.disconnect(producer);
    let before = written.load(Ordering::Relaxed);
    writer.write_chunk(&written);
    let trace = world.disable(consumer).read(consumer);
    assert_eq!(end_of(&trace, 1, 0, false), before);
    assert_eq!(trace.stats().expect("statistics").chunks_discarded(), 1);
}
