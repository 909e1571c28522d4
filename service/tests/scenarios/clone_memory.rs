//! Clones for which another thread makes memory ready and copies: the service waits for neither.

use watershed_service::{
    CloneRequest, CloneSource, ConsumerEvent, ConsumerId, ProducerCommand, ProducerId, SessionId,
};
use watershed_wire::protos::TraceConfig;

use crate::support::World;
use crate::support::config::{buffer, one_source, source};
use crate::support::producer::packet;

/// A session with a packet in it, of a service whose shell makes memory ready.
fn world_with_session(config: &TraceConfig) -> (World, ProducerId, ConsumerId, SessionId) {
    let mut world = World::that_never_waits();
    let producer = world.connect("p");
    for name in ["src", "other"] {
        world.register(producer, name);
    }
    let (consumer, session) = world.enable(config);
    world.commands(producer);
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("before")]);
    (world, producer, consumer, session)
}

fn ask_for_clone(world: &mut World, session: SessionId) -> ConsumerId {
    let (consumer, now) = (world.consumer(), world.now);
    let request = CloneRequest {
        source: CloneSource::Session(session),
        for_bugreport: false,
        skip_filter: false,
        trigger: None,
        into_file: false,
    };
    world.service.handle_clone_session(consumer, request, false, &now).expect("allowed");
    world.pump();
    consumer
}

/// The flush is over, and the buffers are copied.
fn flush_and_copy(world: &mut World, producer: ProducerId) {
    world.acknowledge_flush(producer);
    world.run_due();
    let (mut work, now) = (world.service.poll_clone(), world.now);
    assert!(work.is_some(), "buffers are to be copied");
    while let Some(some) = work {
        world.service.handle_clone_work(some.run(), &now);
        work = world.service.poll_clone();
    }
    world.run_due();
}

fn num_flushes(world: &mut World, producer: ProducerId) -> usize {
    let is_flush = |command: &ProducerCommand| matches!(command, ProducerCommand::Flush { .. });
    world.commands(producer).iter().filter(|command| is_flush(command)).count()
}

#[test]
fn data_sources_are_flushed_when_the_memory_is_ready() {
    let (mut world, producer, _, session) = world_with_session(&one_source("src"));
    let consumer = ask_for_clone(&mut world, session);
    let work = world.service.poll_clone().expect("memory is wanted");
    assert!(world.service.poll_clone().is_none(), "once");
    world.advance_ms(60_000);
    world.run_due();
    assert_eq!(num_flushes(&mut world, producer), 0, "no time-out runs yet");
    assert!(world.events_of(consumer).is_empty());
    // What is committed meanwhile is in the clone.
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("meanwhile")]);
    let now = world.now;
    world.service.handle_clone_work(work.run(), &now);
    world.pump();
    assert_eq!(num_flushes(&mut world, producer), 1);
    assert!(world.service.poll_clone().is_none());
    flush_and_copy(&mut world, producer);
    assert!(matches!(world.events_of(consumer)[..], [ConsumerEvent::Cloned { result: Ok(_), .. }]));
    assert_eq!(world.read(consumer).texts(), ["before", "meanwhile"]);
}

#[test]
fn memory_is_made_ready_only_for_buffers_that_are_copied() {
    let mut config = TraceConfig {
        buffers: vec![buffer(64), buffer(128)],
        data_sources: vec![source("src", 0), source("other", 1)],
        ..TraceConfig::default()
    };
    config.buffers[0].transfer_on_clone = Some(true);
    let (mut world, producer, _, session) = world_with_session(&config);
    let target = world.producers[&producer].target_buffer(1);
    world.write(producer, 2, target, &[packet("copied")]);
    let consumer = ask_for_clone(&mut world, session);
    let work = world.service.poll_clone().expect("one of them is copied");
    let now = world.now;
    world.service.handle_clone_work(work.run(), &now);
    world.pump();
    assert_eq!(num_flushes(&mut world, producer), 2);
    flush_and_copy(&mut world, producer);
    assert_eq!(world.read(consumer).texts(), ["before", "copied"]);

    config.buffers[1].transfer_on_clone = Some(true);
    let (mut world, producer, _, session) = world_with_session(&config);
    ask_for_clone(&mut world, session);
    assert!(world.service.poll_clone().is_none(), "nothing is copied");
    assert_eq!(num_flushes(&mut world, producer), 1, "both are handed over");
}

#[test]
fn memory_that_comes_too_late_is_dropped() {
    let (mut world, producer, original, session) = world_with_session(&one_source("src"));
    let gone = ask_for_clone(&mut world, session);
    let of_gone = world.service.poll_clone().expect("memory is wanted");
    let now = world.now;
    world.service.handle_consumer_disconnect(gone, &now);
    let consumer = ask_for_clone(&mut world, session);
    let work = world.service.poll_clone().expect("memory is wanted");
    world.service.handle_clone_work(of_gone.run(), &now);
    world.pump();
    assert_eq!(num_flushes(&mut world, producer), 0, "nobody wants it");
    world.free(original);
    assert!(matches!(world.events_of(consumer)[..], [ConsumerEvent::Cloned { result: Err(_), .. }]));
    world.service.handle_clone_work(work.run(), &now);
    world.pump();
    assert!(world.events_of(consumer).is_empty());
}

/// Each is a job for another thread: there is none without anything in it.
#[test]
fn a_consumer_leaves_to_be_dropped_what_was_its_own() {
    let (mut world, _, original, session) = world_with_session(&one_source("src"));
    let idle = world.consumer();
    let cloning = ask_for_clone(&mut world, session);
    for (consumer, num_dropped) in [(idle, 0), (cloning, 1), (original, 1)] {
        let now = world.now;
        world.service.handle_consumer_disconnect(consumer, &now);
        world.pump();
        assert_eq!(std::iter::from_fn(|| world.service.poll_dropped()).count(), num_dropped);
    }
}
