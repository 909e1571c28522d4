//! Clones of buffers that are emptied or handed over while writers are in chunks that were scraped.

use watershed_service::{
    CloneRequest, CloneSource, ConsumerId, FlushFlags, ProducerHello, ProducerId, ScrapingMode, SessionId,
};
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::trace_config::BufferConfig;

use crate::support::config::one_source;
use crate::support::producer::{entry, moves, packet};
use crate::support::{World, hello};

/// A session whose producer is scraped, and has a writer.
fn world_with(change: fn(&mut BufferConfig)) -> (World, ProducerId, u32, ConsumerId, SessionId) {
    with_session(World::new(), change)
}

fn with_session(
    mut world: World,
    change: fn(&mut BufferConfig),
) -> (World, ProducerId, u32, ConsumerId, SessionId) {
    let producer = world.connect_as(ProducerHello { scraping: ScrapingMode::Enabled, ..hello() });
    world.register(producer, "src");
    let mut config: TraceConfig = one_source("src");
    change(&mut config.buffers[0]);
    let (consumer, session) = world.enable(&config);
    let target = world.producers[&producer].target_buffer(0);
    world.service.handle_register_trace_writer(producer, 1, target);
    (world, producer, target, consumer, session)
}

fn request(session_id: SessionId) -> CloneRequest {
    CloneRequest {
        source: CloneSource::Session(session_id),
        for_bugreport: false,
        skip_filter: false,
        trigger: None,
        into_file: false,
    }
}

/// What a clone has, whose flush ends with a scrape.
fn clone(world: &mut World, session_id: SessionId, producer: ProducerId) -> Vec<String> {
    let (consumer, now) = (world.consumer(), world.now);
    world.service.handle_clone_session(consumer, request(session_id), false, &now).expect("allowed");
    world.pump();
    world.acknowledge_flush(producer);
    world.run_due();
    world.read(consumer).texts().into_iter().map(str::to_owned).collect()
}

/// One clone after another: each packet is in one of them.
#[test]
fn what_was_handed_over_of_a_chunk_is_not_handed_over_again() {
    let (mut world, producer, target, consumer, session) =
        world_with(|buffer| buffer.transfer_on_clone = Some(true));
    let chunk = world.producers.get_mut(&producer).expect("connected").chunk(1);
    let chunk = chunk.packet(&packet("one")).packet(&packet("two")).begun();
    assert_eq!(clone(&mut world, session, producer), ["one", "two"]);
    let chunk = chunk.packet(&packet("three")).begun();
    assert_eq!(clone(&mut world, session, producer), ["three"]);
    world.commit(producer, chunk.packet(&packet("four")).move_to(target));
    let trace = world.read(consumer);
    assert_eq!(trace.texts(), ["four"]);
    assert_eq!(trace.saying("four").previous_packet_dropped, None);
}

/// What was read before the buffer was emptied is not read again, and what was thrown away stays
/// away.
#[test]
fn what_was_read_of_a_chunk_is_not_read_again_from_an_emptied_buffer() {
    for is_read in [true, false] {
        let (mut world, producer, target, consumer, session) =
            world_with(|buffer| buffer.clear_before_clone = Some(true));
        let chunk = world.producers.get_mut(&producer).expect("connected").chunk(1);
        let chunk = chunk.packet(&packet("one")).begun();
        let now = world.now;
        world.service.handle_flush(consumer, 0, FlushFlags::EXPLICIT, &now).expect("it is on");
        world.pump();
        world.acknowledge_flush(producer);
        world.run_due();
        if is_read {
            assert_eq!(world.read(consumer).texts(), ["one"]);
        }
        let chunk = chunk.packet(&packet("two")).begun();
        assert_eq!(clone(&mut world, session, producer), ["two"]);
        world.commit(producer, chunk.packet(&packet("three")).move_to(target));
        assert_eq!(world.read(consumer).texts(), ["two", "three"], "read before: {is_read}");
    }
}

/// A chunk that was scraped when it was complete is committed after the clone.
#[test]
fn a_late_commit_of_what_was_scraped_is_no_second_copy() {
    let (mut world, producer, target, consumer, session) =
        world_with(|buffer| buffer.transfer_on_clone = Some(true));
    let chunk = world.producers.get_mut(&producer).expect("connected").chunk(1).packet(&packet("one"));
    let (page, index) = chunk.place();
    chunk.complete();
    assert_eq!(clone(&mut world, session, producer), ["one"]);
    world.commit(producer, moves(vec![entry(page, index, target)]));
    world.write(producer, 1, target, &[packet("two")]);
    let trace = world.read(consumer);
    assert_eq!(trace.texts(), ["two"]);
    assert_eq!(trace.saying("two").previous_packet_dropped, None);
}

/// What is committed waits until another thread has looked at the old buffer, whatever happens
/// meanwhile.
#[test]
fn commits_wait_for_what_the_new_buffer_has_to_know() {
    let (mut world, producer, target, consumer, session) =
        with_session(World::that_never_waits(), |buffer| buffer.transfer_on_clone = Some(true));
    let chunk = world.producers.get_mut(&producer).expect("connected").chunk(1);
    let chunk = chunk.packet(&packet("one")).begun();
    assert_eq!(clone(&mut world, session, producer), ["one"]);
    let first = world.service.poll_clone().expect("a look at the old buffer");
    assert!(world.service.poll_clone().is_none());
    world.commit(producer, chunk.packet(&packet("two")).move_to(target));
    assert!(world.service.is_waiting(producer));
    // The next clone takes the buffer that does not know yet; its successor is the first to know.
    let chunk = world.producers.get_mut(&producer).expect("connected").chunk(1).packet(&packet("three"));
    let (of_clone, now) = (world.consumer(), world.now);
    world.service.handle_clone_session(of_clone, request(session), false, &now).expect("allowed");
    world.pump();
    world.acknowledge_flush(producer);
    world.run_due();
    assert!(world.events_of(of_clone).is_empty(), "what was committed before is to be in it");
    world.service.handle_clone_work(first.run(), &now);
    world.pump();
    assert!(!world.service.is_waiting(producer));
    assert_eq!(world.read(of_clone).texts(), ["two"]);
    let second = world.service.poll_clone().expect("a look at the second buffer");
    world.commit(producer, chunk.move_to(target));
    assert_ne!(world.service.poll_timeout().wait_ns(&now), Some(0), "whoever looks tells");
    world.service.handle_clone_work(second.run(), &now);
    assert_eq!(world.read(consumer).texts(), ["three"]);
    assert!(world.service.poll_clone().is_none());
}

/// A shell that ends runs nothing on another thread any more.
#[test]
fn what_waits_for_another_thread_is_committed_at_the_end() {
    let (mut world, producer, target, consumer, session) =
        with_session(World::that_never_waits(), |buffer| buffer.transfer_on_clone = Some(true));
    for is_handed_out in [false, true] {
        world.write(producer, 1, target, &[packet("before")]);
        assert_eq!(clone(&mut world, session, producer), ["before"]);
        let handed_out = if is_handed_out { world.service.poll_clone() } else { None };
        world.write(producer, 1, target, &[packet("after")]);
        assert!(world.service.is_waiting(producer));
        world.service.finish_successions();
        assert!(!world.service.is_waiting(producer));
        assert_eq!(world.read(consumer).texts(), ["after"]);
        let now = world.now;
        for work in handed_out
            .into_iter()
            .chain(std::iter::from_fn(|| world.service.poll_clone()))
            .collect::<Vec<_>>()
        {
            world.service.handle_clone_work(work.run(), &now);
        }
    }
}

/// Where the look takes long, since the owner of a shard is stopped, commits go on without it.
#[test]
fn commits_do_not_wait_for_ever() {
    let (mut world, producer, target, consumer, session) =
        with_session(World::that_never_waits(), |buffer| buffer.transfer_on_clone = Some(true));
    let chunk = world.producers.get_mut(&producer).expect("connected").chunk(1);
    let chunk = chunk.packet(&packet("one")).begun();
    assert_eq!(clone(&mut world, session, producer), ["one"]);
    let look = world.service.poll_clone().expect("a look at the old buffer");
    world.commit(producer, chunk.packet(&packet("two")).move_to(target));
    world.advance_ms(99);
    assert!(world.service.is_waiting(producer));
    world.advance_ms(1);
    assert!(!world.service.is_waiting(producer));
    assert_eq!(world.read(consumer).texts(), ["one", "two"], "nobody knows what was scraped");
    // It comes too late, and changes nothing.
    let now = world.now;
    world.service.handle_clone_work(look.run(), &now);
    world.write(producer, 1, target, &[packet("three")]);
    let trace = world.read(consumer);
    assert_eq!(trace.texts(), ["three"]);
    assert_eq!(trace.saying("three").previous_packet_dropped, None);
}
