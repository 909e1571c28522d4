//! Detached sessions, triggers and clones over the sockets.

mod support;

use std::fs::File;

use prost::Message;
use support::{Consumer, Producer, TestDaemon, clone, cloned, config, numbers, of_only_session};
use watershed_wire::ipc::messages::{EnableTracingRequest, TraceConfigMessage};
use watershed_wire::ipc::{ConsumerMethod, ProducerMethod};
use watershed_wire::protos::trace_config::TriggerConfig;
use watershed_wire::protos::trace_config::trigger_config::{Trigger, TriggerMode};
use watershed_wire::protos::{self, observable_events};

fn detach(consumer: &mut Consumer, key: &str) -> bool {
    let request = protos::DetachRequest { key: Some(key.to_owned()) };
    consumer.0.ask::<protos::DetachResponse>(ConsumerMethod::Detach, &request).is_some()
}

fn attach(consumer: &mut Consumer, key: &str) -> Option<Vec<u8>> {
    let request = protos::AttachRequest { key: Some(key.to_owned()) };
    let reply: TraceConfigMessage = consumer.0.ask(ConsumerMethod::Attach, &request)?;
    reply.trace_config()
}

fn activate(producer: &mut Producer, name: &str) -> bool {
    let request = protos::ActivateTriggersRequest { trigger_names: vec![name.to_owned()] };
    let reply: Option<protos::ActivateTriggersResponse> =
        producer.client.ask(ProducerMethod::ActivateTriggers, &request);
    reply.is_some()
}

#[test]
fn a_session_outlives_its_connection() {
    let daemon = TestDaemon::start(1);
    let (mut producer, mut consumer) = (daemon.producer(), daemon.consumer());
    consumer.enable(&config());
    producer.serve_until(|producer| !producer.buffers.is_empty());
    producer.write(1, 1);
    producer.sync();
    assert!(!detach(&mut consumer, ""), "an empty key is rejected");
    assert!(detach(&mut consumer, "key"));
    assert!(!detach(&mut consumer, "key"), "there is nothing left to detach");
    drop(consumer);
    producer.write(1, 2);
    producer.sync();

    let mut other = daemon.consumer();
    assert_eq!(attach(&mut other, "another"), None);
    assert_eq!(attach(&mut other, "key"), Some(config().encode_to_vec()));
    let end = other.0.call(ConsumerMethod::EnableTracing, &EnableTracingRequest::of_attached());
    other.disable();
    assert_eq!(other.ended(end), None);
    assert_eq!(numbers(&other.read()), [1, 2]);
}

#[test]
fn a_clone_is_read_while_the_original_goes_on() {
    for num_workers in [0, 2] {
        let daemon = TestDaemon::start(num_workers);
        let (mut producer, mut original) = (daemon.producer(), daemon.consumer());
        let end = original.enable(&config());
        producer.serve_until(|producer| !producer.buffers.is_empty());
        for number in 1..=300 {
            producer.write(1, number);
        }
        let mut consumer = daemon.consumer();
        producer.sync();
        let cloned = clone(&mut consumer, &mut producer);
        assert_eq!((cloned.success(), cloned.was_write_into_file()), (true, false), "{cloned:?}");
        producer.write(1, 301);
        producer.sync();
        assert_eq!(numbers(&consumer.read()), (1..=300).collect::<Vec<_>>());
        let states: Vec<String> =
            consumer.state().tracing_sessions.iter().map(|session| session.state().to_owned()).collect();
        assert_eq!(states, ["STARTED", "CLONED_READ_ONLY"]);
        let second = clone(&mut consumer, &mut producer);
        assert_eq!(second.error(), "this consumer already has a tracing session");
        drop(consumer);
        original.disable();
        assert_eq!(original.ended(end), None);
        assert_eq!(numbers(&original.read()), (1..=301).collect::<Vec<_>>());
    }
}

#[test]
fn a_session_with_a_file_is_cloned_into_another_one() {
    let daemon = TestDaemon::start(1);
    let (mut producer, mut original) = (daemon.producer(), daemon.consumer());
    let files = ["original", "clone"].map(|name| {
        let path = daemon.path(name);
        File::options().read(true).write(true).create_new(true).open(path).unwrap()
    });
    let numbers_in = |name: &str| {
        let bytes = std::fs::read(daemon.path(name)).unwrap();
        numbers(&protos::Trace::decode(&bytes[..]).unwrap().packet)
    };
    let [original_file, clone_file] = files;
    let into_file =
        protos::TraceConfig { write_into_file: Some(true), file_write_period_ms: Some(100), ..config() };
    let end = original.enable_into(&into_file, original_file.into());
    producer.serve_until(|producer| !producer.buffers.is_empty());
    (1..=300).for_each(|number| producer.write(1, number));
    producer.sync();
    while numbers_in("original").len() < 300 {
        producer.serve_now();
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    (301..=310).for_each(|number| producer.write(1, number));
    producer.sync();
    let mut consumer = daemon.consumer();
    let without_file = clone(&mut consumer, &mut producer);
    assert!(without_file.error().contains("needs an open file"), "{without_file:?}");
    let request = of_only_session(&mut consumer);
    let request_id = consumer.0.call_with(ConsumerMethod::CloneSession, &request, clone_file.into());
    let reply = cloned(&mut consumer, &mut producer, request_id);
    assert_eq!((reply.success(), reply.was_write_into_file()), (true, true), "{reply:?}");
    assert_eq!(numbers_in("clone"), (1..=310).collect::<Vec<_>>());
    producer.write(1, 311);
    producer.sync();
    original.disable();
    assert_eq!(original.ended(end), None);
    let mut all = numbers_in("original");
    all.sort_unstable();
    // What was cloned from the buffer is written into the original's own file, too.
    assert_eq!(all, (1..=311).collect::<Vec<_>>());
    assert_eq!(numbers_in("clone"), (1..=310).collect::<Vec<_>>());
}

/// Such a file cannot be read back, and the clone is refused; its original goes on.
#[test]
fn a_file_that_cannot_be_read_is_not_cloned() {
    let daemon = TestDaemon::start(1);
    let (mut producer, mut original, mut consumer) =
        (daemon.producer(), daemon.consumer(), daemon.consumer());
    let into_file =
        protos::TraceConfig { write_into_file: Some(true), file_write_period_ms: Some(100), ..config() };
    let write_only = File::create(daemon.path("original")).unwrap();
    let end = original.enable_into(&into_file, write_only.into());
    producer.serve_until(|producer| !producer.buffers.is_empty());
    producer.write(1, 1);
    while daemon.path("original").metadata().unwrap().len() == 0 {
        producer.serve_now();
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    let file = File::create_new(daemon.path("clone")).unwrap();
    let request = of_only_session(&mut consumer);
    let request_id = consumer.0.call_with(ConsumerMethod::CloneSession, &request, file.into());
    let reply = cloned(&mut consumer, &mut producer, request_id);
    assert!(reply.error().contains("writing the trace file failed"), "{reply:?}");
    original.disable();
    assert_eq!(original.ended(end), None);
}

#[test]
fn a_trigger_has_the_consumer_clone() {
    let daemon = TestDaemon::start(1);
    let (mut producer, mut consumer) = (daemon.producer(), daemon.consumer());
    let hit = observable_events::Type::CloneTriggerHit;
    let request = protos::ObserveEventsRequest { events_to_observe: vec![hit.into()] };
    let observing = consumer.0.call(ConsumerMethod::ObserveEvents, &request);
    let trigger = Trigger { name: Some("now".to_owned()), ..Default::default() };
    let triggers = TriggerConfig {
        trigger_mode: Some(TriggerMode::CloneSnapshot.into()),
        triggers: vec![trigger],
        trigger_timeout_ms: Some(60_000),
        ..Default::default()
    };
    consumer.enable(&protos::TraceConfig { trigger_config: Some(triggers), ..config() });
    producer.serve_until(|producer| !producer.buffers.is_empty());
    let id = consumer.state().tracing_sessions[0].id();
    producer.write(1, 1);
    assert!(!activate(&mut producer, "other"), "no session takes it");
    for _ in 0..2 {
        assert!(activate(&mut producer, "now"));
    }
    for _ in 0..2 {
        let (reply, _) = consumer.0.answer(observing).expect("it is not rejected");
        let events = protos::ObserveEventsResponse::decode(&reply[..]).unwrap().events.unwrap();
        let hit = events.clone_trigger_hit.expect("a trigger");
        assert_eq!((hit.trigger_name(), hit.producer_name()), ("now", "test"));
        assert_eq!(hit.tracing_session_id().cast_unsigned(), id);
    }
    assert_eq!(numbers(&consumer.read()), [0; 0], "it is read from its clones");
    let mut reader = daemon.consumer();
    assert!(clone(&mut reader, &mut producer).success());
    assert_eq!(numbers(&reader.read()), [1]);
}
