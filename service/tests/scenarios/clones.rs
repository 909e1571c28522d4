//! Clones: what is in them, who gets them, and that the original goes on.

use std::sync::Arc;

use watershed_service::{
    AttachRefused, CloneRefused, CloneRequest, CloneSource, ConsumerEvent, ConsumerId, EnableError,
    ProducerCommand, ProducerId, ReceivedTrigger, SessionId, SessionState,
};
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::trace_stats::FinalFlushOutcome;

use crate::support::World;
use crate::support::config::{buffer, one_source, source};
use crate::support::producer::packet;
use crate::support::trace::Trace;

fn of(source: CloneSource) -> CloneRequest {
    CloneRequest { source, for_bugreport: false, skip_filter: false, trigger: None, into_file: false }
}

fn try_clone(
    world: &mut World,
    consumer: ConsumerId,
    source: CloneSource,
) -> Result<SessionId, CloneRefused> {
    let now = world.now;
    let result = world.service.handle_clone_session(consumer, of(source), false, &now);
    world.pump();
    result
}

/// A clone of the session for a new consumer, which every producer helps to flush.
fn clone(world: &mut World, session: SessionId, producers: &[ProducerId]) -> (ConsumerId, Trace) {
    let consumer = world.consumer();
    try_clone(world, consumer, CloneSource::Session(session)).expect("allowed");
    for producer in producers {
        world.acknowledge_flush(*producer);
    }
    world.run_due();
    assert!(matches!(world.events_of(consumer)[..], [ConsumerEvent::Cloned { result: Ok(_), .. }]));
    let trace = world.read(consumer);
    (consumer, trace)
}

fn world_with_session(config: &TraceConfig) -> (World, ProducerId, ConsumerId, SessionId) {
    let mut world = World::new();
    let producer = world.connect("p");
    for name in ["src", "other"] {
        world.register(producer, name);
    }
    let (consumer, session) = world.enable(config);
    (world, producer, consumer, session)
}

#[test]
fn a_clone_has_what_was_recorded_and_the_original_goes_on() {
    let (mut world, producer, original, session) = world_with_session(&one_source("src"));
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("a"), packet("b")]);
    let (consumer, trace) = clone(&mut world, session, &[producer]);
    let clone_id = world.service.session_of(consumer).expect("its session");
    assert_eq!(world.service.session_state(clone_id), Some(SessionState::Cloned));
    assert_eq!(trace.texts(), ["a", "b"]);
    assert_eq!(world.service.session_state(session), Some(SessionState::Started));
    world.write(producer, 1, target, &[packet("c")]);
    assert!(world.read(consumer).texts().is_empty(), "the clone does not grow");
    assert_eq!(world.read(original).texts(), ["a", "b", "c"]);
    // What was read is in no later clone.
    world.write(producer, 1, target, &[packet("d")]);
    assert_eq!(clone(&mut world, session, &[producer]).1.texts(), ["d"]);
    // A clone has no end to be told, and nothing of it is left when it is freed.
    world.free(consumer);
    assert!(world.events_of(consumer).is_empty());
    assert_eq!(world.service.session_state(clone_id), None);
}

#[test]
fn the_trace_of_a_clone_is_a_whole_one() {
    let (mut world, producer, original, session) = world_with_session(&one_source("src"));
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("a")]);
    world.advance_ms(50);
    let started_ns = world.now.boottime_ns;
    let (_, trace) = clone(&mut world, session, &[producer]);
    let kinds = trace.kinds();
    for kind in ["trace_config", "trace_uuid", "trace_provenance", "system_info", "synchronization_marker"] {
        assert_eq!(kinds.iter().filter(|found| **found == kind).count(), 1, "{kind}: {kinds:?}");
    }
    assert_eq!(kinds[..2], ["clock_snapshot", "clock_snapshot"]);
    let events: Vec<&str> = kinds.iter().copied().filter(|kind| kind.contains("clone")).collect();
    assert_eq!(events, ["clone_started", "buffer_cloned"]);
    assert!(kinds.contains(&"tracing_started") && kinds.contains(&"tracing_disabled"), "{kinds:?}");
    let at = |wanted: &str| {
        let index = kinds.iter().position(|kind| *kind == wanted).expect("there");
        trace.packets[index].timestamp()
    };
    assert_eq!(at("clone_started"), started_ns);
    let stats = trace.stats().expect("statistics");
    assert_eq!(stats.final_flush_outcome(), FinalFlushOutcome::FinalFlushSucceeded);
    assert_eq!((stats.flushes_requested(), stats.flushes_succeeded()), (1, 1));
    assert_eq!(stats.buffer_stats.len(), 1);
    assert_eq!(stats.buffer_stats[0].chunks_written(), 1);
    let uuid = |trace: &Trace| {
        let mut uuids = trace.packets.iter().filter_map(|packet| match &packet.data {
            Some(Data::TraceUuid(uuid)) => Some((uuid.msb(), uuid.lsb())),
            _ => None,
        });
        uuids.next_back().expect("a uuid")
    };
    let identity = |trace: &Trace| {
        let packet = trace.saying("a");
        (crate::support::trace::trusted_uid(packet), crate::support::trace::sequence_id(packet))
    };
    let of_original = world.read(original);
    assert_eq!(uuid(&trace).1, uuid(&of_original).1);
    assert_ne!(uuid(&trace).0, uuid(&of_original).0);
    assert_eq!(identity(&trace), identity(&of_original));
}

#[test]
fn buffers_are_copied_handed_over_or_cleared_as_the_config_says() {
    let config = |change: fn(&mut TraceConfig)| {
        let mut config = TraceConfig {
            buffers: vec![buffer(64), buffer(64)],
            data_sources: vec![source("src", 0), source("other", 1)],
            ..TraceConfig::default()
        };
        change(&mut config);
        config
    };
    let run = |config: &TraceConfig| {
        let (mut world, producer, original, session) = world_with_session(config);
        let targets = [0, 1].map(|index| world.producers[&producer].target_buffer(index));
        for (target, text) in targets.into_iter().zip(["x", "y"]) {
            world.write(producer, target as u16, target, &[packet(text)]);
        }
        let consumer = world.consumer();
        try_clone(&mut world, consumer, CloneSource::Session(session)).expect("allowed");
        let flushes = world.commands(producer).into_iter().filter_map(|command| match command {
            ProducerCommand::Flush { instance_ids, flags, .. } => Some((instance_ids.len(), flags.0)),
            _ => None,
        });
        let flushes: Vec<(usize, u64)> = flushes.collect();
        // Written after the clone began and before its flush was answered.
        world.write(producer, targets[0] as u16, targets[0], &[packet("late")]);
        world.acknowledge_flush(producer);
        let of_clone = world.read(consumer);
        let texts = |trace: &Trace| trace.texts().into_iter().map(str::to_owned).collect::<Vec<_>>();
        (flushes, texts(&of_clone), texts(&world.read(original)))
    };
    let (flushes, of_clone, of_original) = run(&config(|_| {}));
    assert_eq!(flushes, [(2, 0x13)]);
    assert_eq!((of_clone, of_original), (texts(&["x", "late", "y"]), texts(&["x", "late", "y"])));
    let (flushes, of_clone, of_original) =
        run(&config(|config| config.buffers[0].transfer_on_clone = Some(true)));
    assert_eq!(flushes, [(1, 0x13), (1, 0x13)], "each kind of buffer has its own flush");
    assert_eq!((of_clone, of_original), (texts(&["x", "late", "y"]), texts(&["y"])));
    let (_, of_clone, of_original) = run(&config(|config| config.buffers[0].clear_before_clone = Some(true)));
    assert_eq!((of_clone, of_original), (texts(&["late", "y"]), texts(&["late", "y"])));
}

fn texts(all: &[&str]) -> Vec<String> {
    all.iter().map(|&text| text.to_owned()).collect()
}

#[test]
fn a_flush_that_fails_is_said_and_the_clone_is_made() {
    let config = TraceConfig { flush_timeout_ms: Some(300), ..one_source("src") };
    let (mut world, producer, _, session) = world_with_session(&config);
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("a")]);
    let consumer = world.consumer();
    let clone_id = try_clone(&mut world, consumer, CloneSource::Session(session)).expect("allowed");
    world.advance_ms(299);
    assert!(world.events_of(consumer).is_empty());
    world.advance_ms(1);
    match &world.events_of(consumer)[..] {
        [ConsumerEvent::Cloned { session_id: told, result: Ok(_) }] => assert_eq!(*told, clone_id),
        other => panic!("{other:?}"),
    }
    let trace = world.read(consumer);
    assert_eq!(trace.texts(), ["a"]);
    let stats = trace.stats().expect("statistics");
    assert_eq!(stats.final_flush_outcome(), FinalFlushOutcome::FinalFlushFailed);
    assert!(trace.kinds().contains(&"last_flush_slow_data_sources"));
}

#[test]
fn a_session_that_is_over_can_be_cloned() {
    let (mut world, producer, original, session) = world_with_session(&one_source("src"));
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("a")]);
    world.disable(original);
    let consumer = world.consumer();
    try_clone(&mut world, consumer, CloneSource::Session(session)).expect("allowed");
    assert!(matches!(world.events_of(consumer)[..], [ConsumerEvent::Cloned { result: Ok(_), .. }]));
    assert_eq!(world.read(consumer).texts(), ["a"]);
}

#[test]
fn sessions_are_found_by_number_name_and_score() {
    let mut world = World::new();
    let scored = |name: &str, score| TraceConfig {
        unique_session_name: Some(name.to_owned()),
        bugreport_score: score,
        ..TraceConfig::default()
    };
    let (_, low) = world.enable(&scored("low", Some(1)));
    let (_, _) = world.enable(&scored("none", None));
    let mut cloned = |source: CloneSource| {
        let consumer = world.consumer();
        let result = try_clone(&mut world, consumer, source);
        world.run_due();
        let config = world.read(consumer).packets.into_iter().find_map(|packet| match packet.data {
            Some(Data::TraceConfig(config)) => config.unique_session_name,
            _ => None,
        });
        world.free(consumer);
        result.map(|_| config.unwrap_or_default())
    };
    assert_eq!(cloned(CloneSource::Session(low)).as_deref(), Ok("low"));
    assert_eq!(cloned(CloneSource::Session(SessionId(99))), Err(CloneRefused::NotFound));
    assert_eq!(cloned(CloneSource::Named("none".to_owned())).as_deref(), Ok("none"));
    assert_eq!(cloned(CloneSource::Named("nobody".to_owned())), Err(CloneRefused::NotFound));
    assert_eq!(cloned(CloneSource::ForBugreport).as_deref(), Ok("low"));
}

#[test]
fn only_its_user_and_root_may_clone_a_session() {
    let (mut world, _, _, session) = world_with_session(&TraceConfig::default());
    let stranger = world.consumer_of(1001);
    let refused = try_clone(&mut world, stranger, CloneSource::Session(session));
    assert_eq!(refused, Err(CloneRefused::NotAllowed));
    assert_eq!(
        try_clone(&mut world, stranger, CloneSource::ForBugreport),
        Err(CloneRefused::NoneForBugreport)
    );
    let root = world.consumer_of(0);
    try_clone(&mut world, root, CloneSource::Session(session)).expect("root may");
    world.run_due();
    let again = try_clone(&mut world, root, CloneSource::Session(session));
    assert_eq!(again, Err(CloneRefused::AlreadyHasSession));
}

#[test]
fn all_sessions_can_be_cloned_at_one_time() {
    let mut world = World::new();
    let mut sessions = Vec::new();
    for uid in [1, 2, 3].into_iter().flat_map(|uid| [uid; 5]) {
        let consumer = world.consumer_of(uid);
        sessions.push((uid, world.try_enable(consumer, &TraceConfig::default()).expect("below the limit")));
    }
    for (uid, session) in &sessions {
        let consumer = world.consumer_of(*uid);
        try_clone(&mut world, consumer, CloneSource::Session(*session)).expect("a clone of each");
    }
    let root = world.consumer_of(0);
    let another = CloneSource::Session(sessions[0].1);
    assert_eq!(try_clone(&mut world, root, another.clone()), Err(CloneRefused::TooManyClones));
    world.run_due();
    assert_eq!(try_clone(&mut world, root, another), Err(CloneRefused::TooManyClones));
}

#[test]
fn clones_are_limited_and_hold_no_names() {
    let named = TraceConfig { unique_session_name: Some("name".to_owned()), ..TraceConfig::default() };
    let (mut world, _, original, session) = world_with_session(&named);
    let consumers: Vec<ConsumerId> = (0..6).map(|_| world.consumer()).collect();
    let asked =
        consumers.iter().map(|consumer| try_clone(&mut world, *consumer, CloneSource::Session(session)));
    let asked: Vec<_> = asked.map(|result| result.is_ok()).collect();
    assert_eq!(asked, [true, true, true, true, true, false], "five clones of one user");
    let refused = try_clone(&mut world, consumers[5], CloneSource::Session(session));
    assert_eq!(refused, Err(CloneRefused::TooManyClonesOfUid { uid: 1000 }), "while they are made");
    world.run_due();
    let refused = try_clone(&mut world, consumers[5], CloneSource::Session(session));
    assert_eq!(refused, Err(CloneRefused::TooManyClonesOfUid { uid: 1000 }), "when they are there");
    world.free(original);
    let (_, again) = world.enable(&named);
    assert_eq!(world.service.session_state(again), Some(SessionState::Started));
}

#[test]
fn who_waits_for_a_clone_is_told_when_the_original_goes() {
    let (mut world, _, original, session) = world_with_session(&one_source("src"));
    let consumer = world.consumer();
    let clone_id = try_clone(&mut world, consumer, CloneSource::Session(session)).expect("allowed");
    world.free(original);
    let result = Err("the original session has ended".to_owned());
    assert_eq!(world.events_of(consumer), [ConsumerEvent::Cloned { session_id: clone_id, result }]);
    world.try_enable(consumer, &TraceConfig::default()).expect("it has no session");
}

#[test]
fn a_consumer_that_goes_leaves_no_clone() {
    let (mut world, producer, _, session) = world_with_session(&one_source("src"));
    let consumer = world.consumer();
    try_clone(&mut world, consumer, CloneSource::Session(session)).expect("allowed");
    let now = world.now;
    world.service.handle_consumer_disconnect(consumer, &now);
    world.acknowledge_flush(producer);
    let asker = world.consumer();
    let state = world.service.query_state(asker, true);
    assert_eq!(state.num_sessions, Some(1));
}

#[test]
fn triggers_go_to_the_clone_that_was_made_for_them() {
    use watershed_wire::protos::trace_config::TriggerConfig;
    use watershed_wire::protos::trace_config::trigger_config::{Trigger, TriggerMode};
    let trigger = Trigger { name: Some("t".to_owned()), ..Default::default() };
    let triggers = TriggerConfig {
        trigger_mode: Some(TriggerMode::CloneSnapshot.into()),
        triggers: vec![trigger],
        trigger_timeout_ms: Some(60_000),
        ..Default::default()
    };
    let config = TraceConfig { trigger_config: Some(triggers), ..one_source("src") };
    let (mut world, producer, _, session) = world_with_session(&config);
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("a")]);
    let now = world.now;
    assert_eq!(world.service.handle_activate_triggers(producer, &["t".to_owned()], &now), 1);
    let hit = ReceivedTrigger {
        boottime_ns: now.boottime_ns,
        name: Arc::from("t"),
        producer_name: Arc::from("p"),
        producer_uid: 77,
        stop_delay_ms: 0,
    };
    let consumer = world.consumer();
    let request = CloneRequest { trigger: Some(hit), ..of(CloneSource::Session(session)) };
    world.service.handle_clone_session(consumer, request, false, &now).expect("allowed");
    world.acknowledge_flush(producer);
    let trace = world.read(consumer);
    assert_eq!(trace.texts(), ["a"]);
    let of_triggers: Vec<&str> = trace.kinds().into_iter().filter(|kind| kind.contains("trigger")).collect();
    assert_eq!(of_triggers, ["clone_snapshot_trigger", "trigger"]);
    let (_, next) = clone(&mut world, session, &[producer]);
    assert!(!next.kinds().contains(&"trigger"), "it went to the first clone");
    assert_eq!(next.texts(), ["a"]);
}

/// What was taken out of the original's buffers would be lost if there were no room for the clone.
#[test]
fn who_waits_for_a_clone_gets_no_other_session() {
    let mut config = one_source("src");
    config.buffers[0].transfer_on_clone = Some(true);
    let (mut world, producer, _, session) = world_with_session(&config);
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("a")]);
    let left = world.consumer();
    world.try_enable(left, &TraceConfig::default()).expect("a good config");
    world.service.handle_detach(left, "key").expect("a good key");
    let consumer = world.consumer();
    try_clone(&mut world, consumer, CloneSource::Session(session)).expect("allowed");
    let now = world.now;
    let refused = world.try_enable(consumer, &one_source("src"));
    assert_eq!(refused, Err(EnableError::AlreadyHasSession));
    let refused = world.service.handle_attach(consumer, "key", &now);
    assert_eq!(refused, Err(AttachRefused::AlreadyHasSession));
    world.acknowledge_flush(producer).run_due();
    assert_eq!(world.read(consumer).texts(), ["a"]);
}
