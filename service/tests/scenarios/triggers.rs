//! Triggers: sessions that start, stop, or tell that they should be cloned.

use watershed_service::{
    ConsumerEvent, ConsumerId, ObservedEvents, ProducerId, SessionId, SessionState, Warning,
};
use watershed_wire::protos::trace_config::TriggerConfig;
use watershed_wire::protos::trace_config::trigger_config::{Trigger, TriggerMode};
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{self, TraceConfig};

use crate::support::World;
use crate::support::config::{into_file, one_source};
use crate::support::producer::packet;
use crate::support::trace::Trace;

fn trigger(name: &str, stop_delay_ms: u32) -> Trigger {
    Trigger { name: Some(name.to_owned()), stop_delay_ms: Some(stop_delay_ms), ..Default::default() }
}

fn triggered(mode: TriggerMode, triggers: Vec<Trigger>) -> TraceConfig {
    let config = TriggerConfig {
        trigger_mode: Some(mode.into()),
        triggers,
        trigger_timeout_ms: Some(30_000),
        ..Default::default()
    };
    TraceConfig { trigger_config: Some(config), flush_timeout_ms: Some(10), ..one_source("src") }
}

fn activate(world: &mut World, producer: ProducerId, name: &str) -> usize {
    let now = world.now;
    let taken = world.service.handle_activate_triggers(producer, &[name.to_owned()], &now);
    world.run_due();
    taken
}

fn world_with_source() -> (World, ProducerId) {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    (world, producer)
}

fn state(world: &World, session: SessionId) -> Option<SessionState> {
    world.service.session_state(session)
}

fn ended(session_id: SessionId) -> ConsumerEvent {
    ConsumerEvent::TracingDisabled { session_id, error: None }
}

/// Triggers in the trace: name, producer, delay.
fn triggers_in(trace: &Trace) -> Vec<(u64, &str, &str, u64)> {
    let packets = trace.packets.iter().filter_map(|packet| match &packet.data {
        Some(Data::Trigger(trigger)) => Some((
            packet.timestamp(),
            trigger.trigger_name(),
            trigger.producer_name(),
            trigger.stop_delay_ms(),
        )),
        _ => None,
    });
    packets.collect()
}

#[test]
fn a_session_starts_at_its_trigger_and_stops_after_its_delay() {
    let (mut world, producer) = world_with_source();
    let (consumer, session) = world.enable(&triggered(TriggerMode::StartTracing, vec![trigger("go", 2000)]));
    world.advance_ms(29_000);
    assert_eq!(state(&world, session), Some(SessionState::Configured));
    assert_eq!(activate(&mut world, producer, "stop"), 0, "not one of its triggers");
    assert_eq!(activate(&mut world, producer, "go"), 1);
    assert_eq!(state(&world, session), Some(SessionState::Started));
    let at_ns = world.now.boottime_ns;
    let config = &world.producers[&producer].instances[0].1;
    assert_eq!(config.trace_duration_ms(), 0, "it was set up before");
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("recorded")]);
    // Again is noted, and changes nothing.
    world.advance_ms(1000);
    assert_eq!(activate(&mut world, producer, "go"), 1);
    // What comes late is told how long the session takes.
    let late = world.connect("late");
    world.register(late, "src");
    assert_eq!(world.producers[&late].instances[0].1.trace_duration_ms(), 2000);
    world.advance_ms(999);
    assert_eq!(state(&world, session), Some(SessionState::Started));
    world.advance_ms(1 + 10);
    assert_eq!(world.events_of(consumer), [ended(session)]);
    let trace = world.read(consumer);
    assert_eq!(trace.texts(), ["recorded"]);
    let second_ns = at_ns + 1_000_000_000;
    assert_eq!(triggers_in(&trace), [(at_ns, "go", "p", 2000), (second_ns, "go", "p", 2000)]);
    let kinds = trace.kinds();
    let config_at = kinds.iter().position(|kind| *kind == "trace_config").expect("a config");
    assert_eq!(kinds[config_at + 1..][..3], ["trigger", "trigger", "trace_uuid"]);
}

#[test]
fn a_session_that_nothing_starts_ends_and_is_empty() {
    let (mut world, producer) = world_with_source();
    let (consumer, session) = world.enable(&triggered(TriggerMode::StartTracing, vec![trigger("go", 2000)]));
    world.advance_ms(29_999);
    assert!(world.events_of(consumer).is_empty());
    world.advance_ms(1);
    assert_eq!(world.events_of(consumer), [ended(session)]);
    assert_eq!(activate(&mut world, producer, "go"), 0, "it is over");
    assert!(world.read_bytes(consumer).is_empty());
}

#[test]
fn the_file_of_a_session_that_nothing_starts_is_empty() {
    let (mut world, _) = world_with_source();
    let config = TraceConfig {
        write_into_file: Some(true),
        ..triggered(TriggerMode::StartTracing, vec![trigger("go", 2000)])
    };
    let (consumer, session) = world.enable(&config);
    world.advance_ms(30_000);
    assert_eq!(world.events_of(consumer), [ended(session)]);
    assert!(world.files[&session].closed && world.files[&session].bytes.is_empty());
}

#[test]
fn a_session_stops_after_its_first_trigger() {
    let (mut world, producer) = world_with_source();
    let config = triggered(TriggerMode::StopTracing, vec![trigger("a", 5000), trigger("b", 1)]);
    let (consumer, session) = world.enable(&config);
    assert_eq!(state(&world, session), Some(SessionState::Started));
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("before")]);
    assert!(world.read_bytes(consumer).is_empty(), "nothing was triggered yet");
    world.advance_ms(29_000);
    assert_eq!(activate(&mut world, producer, "a"), 1);
    world.write(producer, 1, target, &[packet("after")]);
    world.advance_ms(1000);
    assert_eq!(activate(&mut world, producer, "b"), 1);
    // The time in which a trigger had to come is over, and that of the first counts.
    world.advance_ms(3999);
    assert!(world.events_of(consumer).is_empty());
    world.advance_ms(1 + 10);
    assert_eq!(world.events_of(consumer), [ended(session)]);
    let trace = world.read(consumer);
    assert_eq!(trace.texts(), ["before", "after"]);
    let names: Vec<&str> = triggers_in(&trace).into_iter().map(|(_, name, ..)| name).collect();
    assert_eq!(names, ["a", "b"]);
}

#[test]
fn a_session_that_nothing_stops_ends_and_cannot_be_read() {
    let (mut world, producer) = world_with_source();
    let (consumer, session) = world.enable(&triggered(TriggerMode::StopTracing, vec![trigger("a", 5000)]));
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("recorded")]);
    world.advance_ms(30_000 + 10);
    assert_eq!(world.events_of(consumer), [ended(session)]);
    assert!(world.read_bytes(consumer).is_empty());
}

/// A consumer that is told of triggers, with a session that is to be cloned at `a`.
fn snapshot_session(world: &mut World, delay_ms: u32) -> (ConsumerId, SessionId) {
    let consumer = world.consumer();
    world.service.handle_observe_events(consumer, ObservedEvents::CLONE_TRIGGER_HITS);
    let config = triggered(TriggerMode::CloneSnapshot, vec![trigger("a", delay_ms)]);
    let session = world.try_enable(consumer, &config).expect("accepted");
    (consumer, session)
}

#[test]
fn the_consumer_is_told_of_each_trigger_after_its_delay() {
    let (mut world, producer) = world_with_source();
    let (consumer, session) = snapshot_session(&mut world, 500);
    let at_ns = world.now.boottime_ns;
    activate(&mut world, producer, "a");
    world.advance_ms(100);
    activate(&mut world, producer, "a");
    world.advance_ms(399);
    assert!(world.events_of(consumer).is_empty());
    world.advance_ms(1);
    let hits = |events: Vec<ConsumerEvent>| -> Vec<(SessionId, u64, String, u64)> {
        let hit = |event| match event {
            ConsumerEvent::CloneTriggerHit { session_id, trigger } => {
                assert_eq!((&*trigger.producer_name, trigger.producer_uid), ("p", 77));
                (session_id, trigger.boottime_ns, trigger.name.to_string(), trigger.stop_delay_ms)
            }
            other => panic!("{other:?}"),
        };
        events.into_iter().map(hit).collect()
    };
    assert_eq!(hits(world.events_of(consumer)), [(session, at_ns, "a".to_owned(), 500)]);
    world.advance_ms(100);
    assert_eq!(hits(world.events_of(consumer)), [(session, at_ns + 100_000_000, "a".to_owned(), 500)]);
    assert!(world.read_bytes(consumer).is_empty(), "it is read from its clones");
    // Its time is that in which triggers may come.
    world.advance_ms(29_400 + 10);
    assert_eq!(world.events_of(consumer), [ended(session)]);
    assert!(world.read_bytes(consumer).is_empty());
}

#[test]
fn stop_can_mean_clone_where_the_config_allows_it() {
    let (mut world, producer) = world_with_source();
    let mut config = triggered(TriggerMode::StopTracing, vec![trigger("a", 0)]);
    config.trigger_config.as_mut().expect("there").use_clone_snapshot_if_available = Some(true);
    let consumer = world.consumer();
    world.service.handle_observe_events(consumer, ObservedEvents::CLONE_TRIGGER_HITS);
    let session = world.try_enable(consumer, &config).expect("accepted");
    activate(&mut world, producer, "a");
    assert!(matches!(world.events_of(consumer)[..], [ConsumerEvent::CloneTriggerHit { .. }]));
    assert_eq!(state(&world, session), Some(SessionState::Started));
}

#[test]
fn a_trigger_counts_only_from_the_producers_that_may_send_it() {
    let (mut world, producer) = world_with_source();
    let from = Trigger { producer_name_regex: Some("q.*".to_owned()), ..trigger("a", 0) };
    let (_, session) = world.enable(&triggered(TriggerMode::StartTracing, vec![from]));
    assert_eq!(activate(&mut world, producer, "a"), 0);
    let like_it = world.connect("xq");
    assert_eq!(activate(&mut world, like_it, "a"), 0, "the whole name has to match");
    let right = world.connect("quux");
    assert_eq!(activate(&mut world, right, "a"), 1);
    assert_eq!(state(&world, session), Some(SessionState::Started));
}

#[test]
fn a_trigger_counts_as_often_as_it_may_within_a_day() {
    let (mut world, producer) = world_with_source();
    let limited = Trigger { max_per_24_h: Some(2), ..trigger("a", 0) };
    let mut config = triggered(TriggerMode::CloneSnapshot, vec![limited]);
    config.trigger_config.as_mut().expect("there").trigger_timeout_ms = Some(7 * 24 * 3600 * 1000);
    world.enable(&config);
    let taken: Vec<usize> = (0..4).map(|_| activate(&mut world, producer, "a")).collect();
    assert_eq!(taken, [1, 1, 0, 0]);
    world.advance_ms(24 * 3600 * 1000 - 1);
    assert_eq!(activate(&mut world, producer, "a"), 0);
    world.advance_ms(1);
    assert_eq!(activate(&mut world, producer, "a"), 1);
}

#[test]
fn a_trigger_is_skipped_as_often_as_the_config_says() {
    let mut world = World::with_seed(7);
    let producer = world.connect("p");
    world.register(producer, "src");
    let skipped = |probability| Trigger { skip_probability: Some(probability), ..trigger("a", 0) };
    let often = |world: &mut World, probability| {
        let (consumer, _) = world.enable(&triggered(TriggerMode::CloneSnapshot, vec![skipped(probability)]));
        let taken = (0..200).map(|_| activate(world, producer, "a")).sum::<usize>();
        world.free(consumer);
        taken
    };
    assert_eq!(often(&mut world, 0.0), 200);
    assert_eq!(often(&mut world, 1.0), 0);
    let half = often(&mut world, 0.5);
    assert!((70..130).contains(&half), "{half} of 200");
}

#[test]
fn triggers_that_nobody_reads_are_bounded() {
    let (mut world, producer) = world_with_source();
    world.enable(&triggered(TriggerMode::CloneSnapshot, vec![trigger("a", 20_000)]));
    for _ in 0..2000 {
        assert_eq!(activate(&mut world, producer, "a"), 1);
    }
    let forgotten = |warning: &Warning| matches!(warning, Warning::TriggersForgotten { .. });
    assert!(world.warnings.iter().any(forgotten), "{:?}", world.warnings);
    let names = vec!["a".to_owned(); 1000];
    let now = world.now;
    assert_eq!(world.service.handle_activate_triggers(producer, &names, &now), 256);
    world.pump();
    let cut = |warning: &Warning| matches!(warning, Warning::TooManyTriggers { .. });
    assert!(world.warnings.iter().any(cut), "{:?}", world.warnings);
    assert_eq!(world.service.handle_activate_triggers(ProducerId(999), &names, &now), 0, "nobody");
}

#[test]
fn triggers_without_a_mode_are_ignored_and_said_to_be() {
    let (mut world, producer) = world_with_source();
    let mut config = triggered(TriggerMode::Unspecified, vec![trigger("a", 1)]);
    config.duration_ms = Some(1000);
    let (consumer, session) = world.enable(&config);
    let warned = Warning::ConfigIgnored {
        session_id: session,
        field: "trigger_config",
        instead: "its triggers do nothing without a trigger_mode",
    };
    assert!(world.warnings.contains(&warned), "{:?}", world.warnings);
    assert_eq!(activate(&mut world, producer, "a"), 0);
    assert!(!world.read_bytes(consumer).is_empty());
}

#[test]
fn the_trace_can_leave_triggers_out() {
    let (mut world, producer) = world_with_source();
    let builtin =
        protos::trace_config::BuiltinDataSource { disable_trace_config: Some(true), ..Default::default() };
    let config = TraceConfig {
        builtin_data_sources: Some(builtin),
        ..triggered(TriggerMode::StopTracing, vec![trigger("a", 0)])
    };
    let (consumer, _) = world.enable(&config);
    activate(&mut world, producer, "a");
    assert!(triggers_in(&world.read(consumer)).is_empty());
}

#[test]
fn what_a_config_may_not_say_of_triggers() {
    let refusal = |config: &TraceConfig| {
        let mut world = World::new();
        let consumer = world.consumer();
        world.try_enable(consumer, config).expect_err("a refusal").to_string()
    };
    let stop = || triggered(TriggerMode::StopTracing, vec![trigger("a", 0)]);
    let with = |change: fn(&mut TriggerConfig)| {
        let mut config = stop();
        change(config.trigger_config.as_mut().expect("there"));
        config
    };
    assert_eq!(refusal(&with(|config| config.trigger_mode = Some(3))), "trigger_mode 3 is unknown");
    assert_eq!(
        refusal(&with(|config| config.trigger_timeout_ms = None)),
        "trigger_timeout_ms must be from 1 to 604800000, not 0"
    );
    let clone_instead = "use_clone_snapshot_if_available is for trigger_mode STOP_TRACING only";
    let start_or_clone = with(|config| {
        config.trigger_mode = Some(TriggerMode::StartTracing.into());
        config.use_clone_snapshot_if_available = Some(true);
    });
    assert_eq!(refusal(&start_or_clone), clone_instead);
    assert_eq!(
        refusal(&TraceConfig { duration_ms: Some(1), ..stop() }),
        "duration_ms cannot be used with triggers, which have trigger_timeout_ms and stop_delay_ms"
    );
    assert_eq!(
        refusal(&TraceConfig { trigger_config: stop().trigger_config, ..into_file("src") }),
        "write_into_file cannot be used with triggers that stop a session or have it cloned"
    );
    assert_eq!(
        refusal(&with(|config| config.triggers.push(trigger("a", 7)))),
        "two triggers have the name \"a\""
    );
    let pattern = refusal(&with(|config| config.triggers[0].producer_name_regex = Some("(".to_owned())));
    assert!(pattern.starts_with("trigger \"a\": producer_name_regex \"(\" is not a pattern"), "{pattern}");
    let many = refusal(&with(|config| {
        config.triggers = (0..1025).map(|number| trigger(&number.to_string(), 0)).collect();
    }));
    assert_eq!(many, "the config has 1025 triggers, at most 1024 are allowed");
}
