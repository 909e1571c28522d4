//! Detached sessions, triggers and clones over the sockets.

mod support;

use prost::Message;
use support::{Consumer, Producer, TestDaemon, config, numbers};
use watershed_wire::ipc::messages::{EnableTracingRequest, TraceConfigMessage};
use watershed_wire::ipc::{ConsumerMethod, Event, ProducerMethod};
use watershed_wire::protos::clone_session_request::Selector;
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

/// Clones the only session, while the producer answers flushes.
fn clone(consumer: &mut Consumer, producer: &mut Producer) -> protos::CloneSessionResponse {
    let id = consumer.state().tracing_sessions[0].id();
    let request =
        protos::CloneSessionRequest { selector: Some(Selector::SessionId(id)), ..Default::default() };
    let request_id = consumer.0.call(ConsumerMethod::CloneSession, &request);
    loop {
        producer.serve_now();
        match consumer.0.try_next() {
            Some(Some(Event::Reply { request_id: of, reply, .. })) if of == request_id => {
                return protos::CloneSessionResponse::decode(&reply[..]).unwrap();
            }
            Some(None) => panic!("the daemon closed the connection"),
            Some(_) => {}
            None => std::thread::sleep(std::time::Duration::from_micros(200)),
        }
    }
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
