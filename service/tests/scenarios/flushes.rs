//! Flushes: who is asked, who is waited for, what is counted, and scraping, which ends each of
//! them.

use watershed_service::limits::HELD_COMMIT_BYTES_MAX;
use watershed_service::{
    ConsumerEvent, ConsumerId, FlushFlags, FlushId, FlushRefused, ProducerCommand, ProducerHello, ProducerId,
    ProducerMemory, ScrapingMode,
};
use watershed_wire::protos;
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::commit_data_request::ChunksToMove;
use watershed_wire::protos::trace_config::WriteFlushMode;
use watershed_wire::protos::tracing_service_event::EventType;

use crate::support::config::{into_file, one_source};
use crate::support::producer::{moves, packet};
use crate::support::{World, hello};

fn flush(world: &mut World, consumer: ConsumerId) -> FlushId {
    world.service.handle_flush(consumer, 0, FlushFlags::EXPLICIT, &world.now).expect("the flush begins")
}

fn flushes(world: &mut World, producer: ProducerId) -> Vec<(u64, usize, u64)> {
    let commands = world.commands(producer);
    let flushes = commands.iter().filter_map(|command| match command {
        ProducerCommand::Flush { request_id, instance_ids, flags } => {
            Some((request_id.0, instance_ids.len(), flags.0))
        }
        _ => None,
    });
    flushes.collect()
}

fn acknowledge(world: &mut World, producer: ProducerId, flush_id: u64) {
    let request = protos::CommitDataRequest { flush_request_id: Some(flush_id), ..Default::default() };
    world.commit(producer, request);
}

fn counts(world: &mut World, consumer: ConsumerId) -> (u64, u64, u64) {
    let stats = world.service.trace_stats(consumer).expect("a session");
    (stats.flushes_requested(), stats.flushes_succeeded(), stats.flushes_failed())
}

fn done(flush_id: FlushId, success: bool) -> ConsumerEvent {
    ConsumerEvent::FlushDone { flush_id, success }
}

fn unflushable(name: &str) -> protos::DataSourceDescriptor {
    protos::DataSourceDescriptor { name: Some(name.to_owned()), no_flush: Some(true), ..Default::default() }
}

#[test]
fn a_flush_waits_for_every_producer() {
    let mut world = World::new();
    let (a, b) = (world.connect("a"), world.connect("b"));
    world.register(a, "src").register(a, "src").register(b, "src");
    let (consumer, _) = world.enable(&one_source("src"));
    let flush_id = flush(&mut world, consumer);
    assert_eq!(flushes(&mut world, a), [(1, 2, 0x34)]);
    assert_eq!(flushes(&mut world, b), [(1, 1, 0x34)]);
    acknowledge(&mut world, a, 1);
    world.run_due();
    assert!(world.events_of(consumer).is_empty());
    acknowledge(&mut world, b, 1);
    // It takes no time, but it is not over inside the commit.
    assert!(world.events_of(consumer).is_empty());
    world.run_due();
    assert_eq!(world.events_of(consumer), [done(flush_id, true)]);
    assert_eq!(counts(&mut world, consumer), (1, 1, 0));
}

#[test]
fn one_answer_counts_for_all_earlier_flushes_of_all_sessions() {
    let mut world = World::new();
    let (a, b) = (world.connect("a"), world.connect("b"));
    world.register(a, "src").register(b, "other");
    let (first, _) = world.enable(&one_source("src"));
    let (second, _) = world.enable(&one_source("src"));
    let (third, _) = world.enable(&one_source("other"));
    let ids = [first, second, third, first].map(|consumer| flush(&mut world, consumer));
    acknowledge(&mut world, a, 3);
    world.run_due();
    assert_eq!(world.events_of(first), [done(ids[0], true)], "the later one is still pending");
    assert_eq!(world.events_of(second), [done(ids[1], true)]);
    assert!(world.events_of(third).is_empty(), "another producer's");
    // An answer to a flush that was never made is one to all there were.
    acknowledge(&mut world, a, u64::MAX);
    world.run_due();
    assert_eq!(world.events_of(first), [done(ids[3], true)]);
}

#[test]
fn a_flush_ends_when_its_time_is_over() {
    let cases = [(0, None, 5000), (0, Some(300), 300), (150, Some(300), 150)];
    for (asked_ms, configured_ms, expected_ms) in cases {
        let mut world = World::new();
        let producer = world.connect("p");
        world.register(producer, "src");
        let (consumer, _) =
            world.enable(&TraceConfig { flush_timeout_ms: configured_ms, ..one_source("src") });
        let flush_id =
            world.service.handle_flush(consumer, asked_ms, FlushFlags::EXPLICIT, &world.now).expect("begins");
        world.advance_ms(expected_ms - 1);
        assert!(world.events_of(consumer).is_empty());
        world.advance_ms(1);
        assert_eq!(world.events_of(consumer), [done(flush_id, false)]);
        // Too late.
        acknowledge(&mut world, producer, flush_id.0);
        assert!(world.events_of(consumer).is_empty());
        assert_eq!(counts(&mut world, consumer), (1, 0, 1));
    }
}

#[test]
fn nobody_to_ask_is_success_at_once() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register_as(producer, unflushable("src"));
    let (consumer, _) = world.enable(&one_source("src"));
    let flush_id = flush(&mut world, consumer);
    world.run_due();
    assert_eq!(world.events_of(consumer), [done(flush_id, true)]);
    assert!(flushes(&mut world, producer).is_empty(), "no_flush is never asked");
}

#[test]
fn a_producer_that_disconnects_is_not_waited_for() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let (consumer, _) = world.enable(&one_source("src"));
    let flush_id = flush(&mut world, consumer);
    world.disconnect(producer).run_due();
    assert_eq!(world.events_of(consumer), [done(flush_id, true)]);
}

#[test]
fn flushes_that_are_refused() {
    let mut world = World::new();
    let consumer = world.consumer();
    let ask = |world: &mut World| world.service.handle_flush(consumer, 0, FlushFlags::EXPLICIT, &world.now);
    let refused = ask(&mut world).expect_err("no session");
    assert_eq!(
        (refused, refused.to_string().as_str()),
        (FlushRefused::NoSession, "there is no session to flush")
    );

    let producer = world.connect("p");
    world.register(producer, "src");
    let config = TraceConfig { deferred_start: Some(true), ..one_source("src") };
    world.try_enable(consumer, &config).expect("accepted");
    let refused = ask(&mut world).expect_err("not started");
    assert_eq!(
        (refused, refused.to_string().as_str()),
        (FlushRefused::NotStarted, "the session is not started")
    );

    world.service.handle_start_tracing(consumer, &world.now);
    for _ in 0..1000 {
        ask(&mut world).expect("within the limit");
    }
    let refused = ask(&mut world).expect_err("too many");
    assert_eq!(refused.to_string(), "too many flushes are pending (1000 at most)");
    assert_eq!(refused, FlushRefused::TooManyPending);
    // Those who wait are told when the session goes.
    world.free(consumer);
    let events = world.events_of(consumer);
    let failed =
        events.iter().filter(|event| matches!(event, ConsumerEvent::FlushDone { success: false, .. }));
    assert_eq!(failed.count(), 1000);
}

#[test]
fn periodic_flushes() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let (consumer, _) = world.enable(&TraceConfig { flush_period_ms: Some(300), ..one_source("src") });
    world.advance_ms(99);
    assert!(flushes(&mut world, producer).is_empty());
    world.advance_ms(1);
    assert_eq!(flushes(&mut world, producer), [(1, 1, 0x11)], "at multiples of the period on the clock");
    world.advance_ms(600);
    assert_eq!(flushes(&mut world, producer), [(2, 1, 0x11), (3, 1, 0x11)]);
    world.disable(consumer).advance_ms(5000);
    assert!(flushes(&mut world, producer).is_empty());
}

#[test]
fn when_a_session_with_a_file_is_flushed() {
    use WriteFlushMode::{WriteFlushAuto, WriteFlushDisabled, WriteFlushEnabled};
    // Every second for 21 s, from 5 s on: at which times a flush began, after the start.
    let times = |write_period_ms, flush_period_ms, mode: Option<WriteFlushMode>| {
        let mut world = World::new();
        let producer = world.connect("p");
        world.register(producer, "src");
        world.enable(&TraceConfig {
            file_write_period_ms: write_period_ms,
            flush_period_ms,
            write_flush_mode: mode.map(i32::from),
            ..into_file("src")
        });
        let mut times = Vec::new();
        for second in 1..=21 {
            world.advance_ms(1000);
            times.extend(flushes(&mut world, producer).iter().map(|_| second));
        }
        times
    };
    // Often written: every five seconds, whatever the config says.
    assert_eq!(times(None, None, None), [5, 10, 15, 20]);
    assert_eq!(times(Some(1000), Some(1000), Some(WriteFlushAuto)), [5, 10, 15, 20]);
    // Seldom written: before each write (the flush fails after five seconds, and the next period
    // begins then).
    assert_eq!(times(Some(10_000), None, None), [5, 15]);
    assert_eq!(times(Some(10_000), None, Some(WriteFlushEnabled)), [5, 15]);
    // As the config says.
    assert_eq!(times(Some(10_000), None, Some(WriteFlushDisabled)), []);
    assert_eq!(times(Some(10_000), Some(9000), Some(WriteFlushDisabled)), [4, 13]);
}

#[test]
fn late_sources_are_named_where_their_data_is_lost() {
    let mut world = World::new();
    let (a, b) = (world.connect("a"), world.connect("b"));
    world.register(a, "src").register(b, "src").register_as(b, unflushable("src"));
    let (consumer, _) = world.enable(&TraceConfig { duration_ms: Some(100), ..one_source("src") });
    world.advance_ms(100).acknowledge_flush(a).advance_ms(5000);
    let trace = world.read(consumer);
    let late = trace.events().into_iter().find_map(|(_, event)| match event {
        EventType::LastFlushSlowDataSources(late) => Some(late.data_source),
        _ => None,
    });
    let late = late.expect("the event");
    assert_eq!(late.len(), 1, "only who was asked");
    assert_eq!((late[0].producer_name(), late[0].data_source_name()), ("b", "src"));
    let stats = trace.stats().expect("statistics");
    assert_eq!(stats.final_flush_outcome(), protos::trace_stats::FinalFlushOutcome::FinalFlushFailed);
}

#[test]
fn slow_starters_are_named() {
    let mut world = World::new();
    let producer = world.connect("slow");
    let notifying = protos::DataSourceDescriptor {
        name: Some("src".to_owned()),
        will_notify_on_start: Some(true),
        ..Default::default()
    };
    world.register_as(producer, notifying).register(producer, "src");
    let (consumer, _) = world.enable(&one_source("src"));
    world.advance_ms(19_999);
    let named = |world: &mut World| {
        world.read(consumer).events().into_iter().find_map(|(_, event)| match event {
            EventType::SlowStartingDataSources(slow) => Some(slow.data_source.len()),
            _ => None,
        })
    };
    assert_eq!(named(&mut world), None);
    world.advance_ms(1);
    assert_eq!(named(&mut world), Some(1));
}

fn scraped(world: &mut World, no_flush: bool) -> (ConsumerId, ProducerId, u32) {
    let producer = world.connect_as(ProducerHello { scraping: ScrapingMode::Enabled, ..hello() });
    if no_flush {
        world.register_as(producer, unflushable("src"));
    } else {
        world.register(producer, "src");
    }
    let (consumer, _) = world.enable(&one_source("src"));
    (consumer, producer, world.producers[&producer].target_buffer(0))
}

#[test]
fn a_flush_ends_with_a_scrape() {
    let mut world = World::new();
    let (consumer, producer, target) = scraped(&mut world, true);
    world.service.handle_register_trace_writer(producer, 1, target);
    let fake =
        |world: &mut World, writer| world.producers.get_mut(&producer).expect("connected").chunk(writer);
    let chunk = fake(&mut world, 1).packet(&packet("one")).packet(&packet("two")).begun();
    // Not registered: nobody knows where it would go.
    let stray = fake(&mut world, 2).packet(&packet("stray")).begun();
    // Nothing of it is finished.
    world.service.handle_register_trace_writer(producer, 3, target);
    let young = fake(&mut world, 3).packet(&packet("unfinished"));
    flush(&mut world, consumer);
    world.run_due();
    assert_eq!(world.read(consumer).texts(), ["one", "two"]);

    // The chunk is still the writer's, goes on, and is committed: only what is new is read.
    let request = chunk.packet(&packet("three")).move_to(target);
    world.commit(producer, request);
    assert_eq!(world.read(consumer).texts(), ["three"]);
    for (chunk, text) in [(stray, "stray"), (young, "unfinished")] {
        let request = chunk.settled().move_to(target);
        world.commit(producer, request);
        assert_eq!(world.read(consumer).texts(), [text]);
    }
}

#[test]
fn a_stop_ends_with_a_scrape_of_complete_chunks_too() {
    let mut world = World::new();
    let (consumer, producer, target) = scraped(&mut world, false);
    world.service.handle_register_trace_writer(producer, 1, target);
    let chunk = world.producers.get_mut(&producer).expect("connected").chunk(1).packet(&packet("complete"));
    let (page, index) = chunk.place();
    chunk.complete();
    world.disable(consumer);
    // Its regular commit is late: the same chunk again.
    world.commit(producer, moves(vec![crate::support::producer::entry(page, index, target)]));
    let trace = world.read(consumer);
    assert_eq!(trace.texts(), ["complete"]);
    assert_eq!(trace.saying("complete").previous_packet_dropped, None);
}

#[test]
fn a_dying_producer_is_scraped() {
    let mut world = World::new();
    let (consumer, producer, target) = scraped(&mut world, false);
    world.service.handle_register_trace_writer(producer, 1, target);
    let chunk =
        world.producers.get_mut(&producer).expect("connected").chunk(1).packet(&packet("last words")).begun();
    world.disconnect(producer);
    assert_eq!(world.read(consumer).texts(), ["last words"]);
    drop(chunk);
}

#[test]
fn memory_of_those_who_do_not_want_it_is_not_scraped() {
    for scraping in [ScrapingMode::Disabled, ScrapingMode::Default] {
        let mut world = World::new();
        let producer = world.connect_as(ProducerHello { scraping, ..hello() });
        world.register(producer, "src");
        let (consumer, _) = world.enable(&one_source("src"));
        let target = world.producers[&producer].target_buffer(0);
        world.service.handle_register_trace_writer(producer, 1, target);
        let chunk = world
            .producers
            .get_mut(&producer)
            .expect("connected")
            .chunk(1)
            .packet(&packet("private"))
            .begun();
        world.disable(consumer);
        assert!(world.read(consumer).texts().is_empty());
        drop(chunk);
    }
}

#[test]
fn a_scrape_takes_only_what_belongs_to_the_session() {
    let mut world = World::new();
    let (first, producer, _) = scraped(&mut world, false);
    let (second, _) = world.enable(&one_source("src"));
    let of_second = world.producers[&producer].target_buffer(1);
    world.service.handle_register_trace_writer(producer, 1, of_second);
    let chunk =
        world.producers.get_mut(&producer).expect("connected").chunk(1).packet(&packet("second's")).begun();
    world.disable(first);
    assert!(world.read(second).texts().is_empty());
    world.disable(second);
    assert_eq!(world.read(second).texts(), ["second's"]);
    drop(chunk);
}

/// A producer whose chunks come by message, and which scrapes itself.
fn emulated(world: &mut World) -> ProducerId {
    world.connect_as(ProducerHello {
        memory: ProducerMemory::Emulated,
        scraping: ScrapingMode::Enabled,
        ..hello()
    })
}

#[test]
fn producers_without_shared_memory_are_asked_to_scrape_themselves() {
    let mut world = World::new();
    let producer = emulated(&mut world);
    world.register_as(producer, unflushable("src"));
    let (consumer, _) = world.enable(&one_source("src"));
    let flush_id = flush(&mut world, consumer);
    assert_eq!(flushes(&mut world, producer), [(flush_id.0, 0, 0x34)], "for no instance in particular");
    acknowledge(&mut world, producer, flush_id.0);
    world.run_due();
    assert_eq!(world.events_of(consumer), [done(flush_id, true)]);
}

/// A chunk in a message: of writer 1, with one packet.
fn by_message(chunk_id: u8, text: &str, target: u32) -> ChunksToMove {
    let packet = packet(text);
    let data = [&[chunk_id, 0, 0, 0, 1, 0, 1, 0, packet.len() as u8][..], &packet].concat();
    ChunksToMove { data: Some(data), target_buffer: Some(target), ..Default::default() }
}

/// They scrape their memory in no order of chunks, and send it in several requests.
#[test]
fn no_read_falls_into_the_scrape_of_a_producer_without_shared_memory() {
    for ends_by in
        ["acknowledgement", "timeout", "disconnect", "stop", "size", "empty entries", "empty requests"]
    {
        let mut world = World::new();
        let producer = emulated(&mut world);
        world.register(producer, "src");
        let (consumer, _) = world.enable(&one_source("src"));
        let target = world.producers[&producer].target_buffer(0);
        world.commit(producer, moves(vec![by_message(0, "before", target)]));
        assert_eq!(world.read(consumer).texts(), ["before"]);
        flush(&mut world, consumer);
        world.commit(producer, moves(vec![by_message(2, "second", target)]));
        assert!(world.read(consumer).texts().is_empty(), "the first one is still to come");
        world.commit(producer, moves(vec![by_message(1, "first", target)]));
        assert!(world.read(consumer).texts().is_empty(), "there may be more");
        let mut flood = |request: protos::CommitDataRequest, size_bytes| {
            for _ in 0..HELD_COMMIT_BYTES_MAX / size_bytes + 1 {
                world.commit(producer, request.clone());
            }
        };
        match ends_by {
            "size" => {
                // Chunks that nobody wants.
                let nothing = moves(vec![by_message(9, &"x".repeat(100), target + 1); 1000]);
                let size_bytes = prost::Message::encoded_len(&nothing);
                flood(nothing, size_bytes);
            }
            // What is encoded as next to nothing takes memory.
            "empty entries" => {
                flood(moves(vec![ChunksToMove::default(); 1000]), 1000 * size_of::<ChunksToMove>());
            }
            "empty requests" => flood(moves(Vec::new()), size_of::<protos::CommitDataRequest>()),
            "acknowledgement" => _ = world.acknowledge_flush(producer),
            "timeout" => _ = world.advance_ms(6000),
            "disconnect" => _ = world.disconnect(producer),
            _ => _ = world.disable(consumer),
        }
        let trace = world.read(consumer);
        assert_eq!(trace.texts(), ["first", "second"], "by {ends_by}");
        let lost = trace.packets.iter().filter(|packet| packet.previous_packet_dropped() != 0);
        assert_eq!(lost.count(), 0, "by {ends_by}");
    }
}

/// The end of a writer comes behind all its chunks, and tears those of another apart as little.
#[test]
fn the_end_of_a_writer_falls_into_the_scrape_of_another() {
    let mut world = World::new();
    let producer = emulated(&mut world);
    world.register(producer, "src");
    let (consumer, _) = world.enable(&one_source("src"));
    let target = world.producers[&producer].target_buffer(0);
    let of_second_writer = |chunk_id, text| {
        let mut chunk = by_message(chunk_id, text, target);
        chunk.data.as_mut().unwrap()[4] = 2;
        chunk
    };
    world.commit(producer, moves(vec![by_message(0, "before", target)]));
    assert_eq!(world.read(consumer).texts(), ["before"]);
    flush(&mut world, consumer);
    world.commit(producer, moves(vec![by_message(2, "second", target), of_second_writer(0, "other's")]));
    world.service.handle_unregister_trace_writer(producer, 2);
    // Its number is another one's now, who counts anew.
    world.commit(producer, moves(vec![of_second_writer(0, "new one's")]));
    assert_eq!(world.read(consumer).texts(), ["other's"], "the first one is still to come");
    world.commit(producer, moves(vec![by_message(1, "first", target)]));
    world.acknowledge_flush(producer);
    let trace = world.read(consumer);
    assert_eq!(trace.texts(), ["first", "second", "new one's"]);
    assert!(trace.packets.iter().all(|packet| packet.previous_packet_dropped() == 0));
}

/// What another session does meanwhile tears nothing apart: neither its end nor its time-out.
#[test]
fn a_scrape_for_one_session_is_whole_whatever_becomes_of_another() {
    for other_ends_by in ["stop", "timeout"] {
        let mut world = World::new();
        let producer = emulated(&mut world);
        world.register(producer, "src");
        let (other, _) = world.enable(&one_source("src"));
        let (consumer, _) = world.enable(&one_source("src"));
        let [others, target] = [0, 1].map(|index| world.producers[&producer].target_buffer(index));
        world.commit(producer, moves(vec![by_message(0, "before", target)]));
        assert_eq!(world.read(consumer).texts(), ["before"]);
        let _ = world.service.handle_flush(other, 1000, FlushFlags::EXPLICIT, &world.now);
        let _ = world.service.handle_flush(consumer, 5000, FlushFlags::EXPLICIT, &world.now);
        world
            .commit(producer, moves(vec![by_message(2, "second", target), by_message(0, "other's", others)]));
        match other_ends_by {
            "stop" => _ = world.disable(other),
            _ => _ = world.advance_ms(1500),
        }
        assert_eq!(world.read(other).texts(), ["other's"], "by {other_ends_by}");
        assert!(world.read(consumer).texts().is_empty(), "the first one is still to come, {other_ends_by}");
        world.commit(producer, moves(vec![by_message(1, "first", target)]));
        world.acknowledge_flush(producer);
        let trace = world.read(consumer);
        assert_eq!(trace.texts(), ["first", "second"], "by {other_ends_by}");
        assert!(trace.packets.iter().all(|packet| packet.previous_packet_dropped() == 0), "{other_ends_by}");
    }
}
