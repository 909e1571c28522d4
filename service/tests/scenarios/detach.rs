//! Sessions that are left behind and taken over, and configs that change meanwhile.

use watershed_service::{
    AttachRefused, ConsumerEvent, DetachRefused, EnableError, ObservedEvents, ProducerId,
};
use watershed_wire::protos::TraceConfig;

use crate::support::World;
use crate::support::config::{into_file, one_source};
use crate::support::producer::packet;

#[test]
fn a_session_goes_from_one_consumer_to_another_of_its_user() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let (first, session) = world.enable(&one_source("src"));
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("before")]);
    assert_eq!(world.service.handle_detach(first, "key"), Ok(session));
    assert_eq!(world.service.session_of(first), None);
    // The connection that left it may go, and the session goes on.
    let now = world.now;
    world.service.handle_consumer_disconnect(first, &now);
    world.advance_ms(60_000);
    world.write(producer, 1, target, &[packet("meanwhile")]);

    let stranger = world.consumer_of(1001);
    assert_eq!(world.service.handle_attach(stranger, "key", &now), Err(AttachRefused::NoSuchSession));
    let second = world.consumer();
    assert_eq!(world.service.handle_attach(second, "other", &now), Err(AttachRefused::NoSuchSession));
    assert_eq!(world.service.handle_attach(second, "", &now), Err(AttachRefused::NoSuchSession));
    let (attached, config) = world.service.handle_attach(second, "key", &now).expect("it is there");
    assert_eq!(attached, session);
    assert_eq!(config, prost::Message::encode_to_vec(&one_source("src")));
    let third = world.consumer();
    let again = world.service.handle_attach(third, "key", &now);
    assert_eq!(again, Err(AttachRefused::NoSuchSession), "it is not detached any more");

    world.disable(second);
    let ended = ConsumerEvent::TracingDisabled { session_id: session, error: None };
    assert_eq!(world.events_of(second), [ended]);
    assert_eq!(world.read(second).texts(), ["before", "meanwhile"]);
}

#[test]
fn keys_are_one_users_and_not_empty() {
    let mut world = World::new();
    let (mine, _) = world.enable(&TraceConfig::default());
    let (other, _) = world.enable(&TraceConfig::default());
    let foreign = world.consumer_of(5);
    world.try_enable(foreign, &TraceConfig::default()).expect("another user's");
    assert_eq!(world.service.handle_detach(mine, ""), Err(DetachRefused::BadKey));
    assert_eq!(world.service.handle_detach(mine, &"k".repeat(1025)), Err(DetachRefused::BadKey));
    world.service.handle_detach(mine, "k").expect("a good key");
    assert_eq!(world.service.handle_detach(mine, "k"), Err(DetachRefused::NoSession));
    assert_eq!(world.service.handle_detach(other, "k"), Err(DetachRefused::KeyTaken));
    world.service.handle_detach(foreign, "k").expect("keys of users do not meet");
    let now = world.now;
    let attached = world.service.handle_attach(other, "k", &now);
    assert_eq!(attached, Err(AttachRefused::AlreadyHasSession));
    // The consumer is free for another session meanwhile, which is its own.
    world.try_enable(mine, &TraceConfig::default()).expect("it left its session");
}

#[test]
fn the_end_is_told_to_whoever_asks_after_it() {
    let mut world = World::new();
    let (first, session) = world.enable(&TraceConfig { deferred_start: Some(true), ..one_source("src") });
    world.disable(first);
    world.service.handle_detach(first, "key").expect("detached");
    let ended = || ConsumerEvent::TracingDisabled { session_id: session, error: None };
    assert_eq!(world.events_of(first), [ended()]);
    let second = world.consumer();
    let now = world.now;
    world.service.handle_attach(second, "key", &now).expect("it is there");
    assert!(world.events_of(second).is_empty());
    world.service.handle_end_wanted(second);
    assert_eq!(world.events_of(second), [ended()]);
    // A consumer without a session is told nothing.
    world.service.handle_end_wanted(first);
    assert!(world.events_of(first).is_empty());
}

#[test]
fn a_detached_session_whose_time_is_over_leaves_its_file() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let config = TraceConfig { duration_ms: Some(1000), flush_timeout_ms: Some(10), ..into_file("src") };
    let (consumer, session) = world.enable(&config);
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("kept")]);
    world.service.handle_detach(consumer, "key").expect("detached");
    world.advance_ms(2000);
    assert_eq!(world.service.session_state(session), None, "freed");
    assert!(world.files[&session].closed);
    let trace = crate::support::trace::Trace::parse(&world.files[&session].bytes);
    assert_eq!(trace.texts(), ["kept"]);
    assert!(world.events_of(consumer).is_empty(), "it has left");
}

#[test]
fn other_filters_bring_other_producers() {
    let mut world = World::new();
    let (a, b, c) = (world.connect("a"), world.connect("b"), world.connect("c"));
    world.register(a, "src").register(b, "src").register(b, "other").register(c, "src");
    let with_filter = |name: &str| {
        let mut config = one_source("src");
        config.data_sources[0].producer_name_filter = vec![name.to_owned()];
        config
    };
    let (consumer, _) = world.enable(&with_filter("a"));
    let set_up = |world: &mut World, producer: ProducerId| world.commands(producer).len();
    assert_eq!([a, b, c].map(|producer| set_up(&mut world, producer)), [3, 0, 0], "memory, set-up, start");
    let change = |world: &mut World, config: &TraceConfig| {
        let now = world.now;
        let bytes = prost::Message::encode_to_vec(config);
        let changed = world.service.handle_change_trace_config(consumer, &bytes, &now);
        world.pump();
        changed
    };
    change(&mut world, &TraceConfig { duration_ms: Some(1), ..with_filter("b") }).expect("changed");
    assert_eq!([a, b, c].map(|producer| set_up(&mut world, producer)), [0, 3, 0], "who is there stays");
    // The same again brings nothing: both take part already.
    change(&mut world, &with_filter("b")).expect("changed");
    assert_eq!([a, b, c].map(|producer| set_up(&mut world, producer)), [0, 0, 0]);
    // Those who come later are chosen by what counts then.
    let late = world.connect("b");
    world.register(late, "src");
    assert_eq!(set_up(&mut world, late), 3);

    let mut bad = with_filter("b");
    bad.data_sources[0].producer_name_regex_filter = vec!["(".to_owned()];
    assert!(matches!(change(&mut world, &bad), Err(EnableError::BadPattern { .. })));
    let now = world.now;
    let malformed = world.service.handle_change_trace_config(consumer, &[0x0a, 9], &now);
    assert!(matches!(malformed, Err(EnableError::Malformed(_))));
    // The trace has the filters that counted last, and the duration that the session has.
    world.disable(consumer);
    let trace = world.read(consumer);
    let config = trace.packets.iter().find_map(|packet| match &packet.data {
        Some(watershed_wire::protos::trace_packet::Data::TraceConfig(config)) => Some(config),
        _ => None,
    });
    let config = config.expect("the config is in the trace");
    assert_eq!(config.data_sources[0].producer_name_filter, ["b"]);
    assert_eq!(config.duration_ms, None);
    assert!(change(&mut world, &with_filter("c")).is_ok(), "ignored: it is over");
    assert_eq!(set_up(&mut world, c), 0);
}

#[test]
fn who_attaches_is_told_what_it_observes() {
    let mut world = World::new();
    let (first, session) = world.enable(&TraceConfig { deferred_start: Some(true), ..one_source("src") });
    world.service.handle_detach(first, "key").expect("detached");
    let second = world.consumer();
    world.service.handle_observe_events(second, ObservedEvents::ALL_DATA_SOURCES_STARTED);
    let now = world.now;
    world.service.handle_attach(second, "key", &now).expect("it is there");
    assert!(world.events_of(second).is_empty());
    world.service.handle_start_tracing(second, &now);
    assert_eq!(world.events_of(second), [ConsumerEvent::AllDataSourcesStarted { session_id: session }]);
}

/// Its time is over and nobody has it: it is erased when its file is closed, and until then nobody
/// can take it over.
#[test]
fn a_session_that_is_about_to_be_erased_is_not_taken_over() {
    let mut world = World::new();
    world.writes_files = false;
    let (consumer, session) = world.enable(&TraceConfig { duration_ms: Some(1000), ..into_file("src") });
    world.service.handle_detach(consumer, "key").expect("a good key");
    world.advance_ms(1000);
    assert!(world.service.session_state(session).is_some(), "its file is not written");
    let now = world.now;
    let attached = world.service.handle_attach(consumer, "key", &now);
    assert_eq!(attached, Err(AttachRefused::NoSuchSession));
    while world.write_file_once() {}
    assert_eq!(world.service.session_state(session), None);
    assert!(world.try_enable(consumer, &one_source("src")).is_ok(), "the consumer has room for another");
}
