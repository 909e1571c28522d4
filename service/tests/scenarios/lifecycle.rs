//! Sessions from config to end: matching, set-up, start, stop, disconnects, several at once.

use crate::support::config::{buffer, into_file, named, one_source, source};
use crate::support::producer::packet;
use crate::support::{World, hello};
use watershed_service::{
    ConsumerEvent, InstanceId, ObservedEvents, PeerIdentity, ProducerCommand, ProducerHello, SessionState,
};
use watershed_wire::protos;
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::trace_config::{DataSource, ProducerConfig};

/// What a producer is told, in short.
fn short(commands: &[ProducerCommand]) -> Vec<String> {
    let one = |command: &ProducerCommand| match command {
        ProducerCommand::SetupTracing { .. } => "memory".to_owned(),
        ProducerCommand::SetupDataSource { instance_id, .. } => format!("setup {instance_id}"),
        ProducerCommand::StartDataSource { instance_id, .. } => format!("start {instance_id}"),
        ProducerCommand::StopDataSource { instance_id } => format!("stop {instance_id}"),
        ProducerCommand::Flush { request_id, .. } => format!("flush {request_id}"),
        ProducerCommand::ClearIncrementalState { .. } => "clear".to_owned(),
    };
    commands.iter().map(one).collect()
}

fn notifying(name: &str) -> protos::DataSourceDescriptor {
    protos::DataSourceDescriptor {
        name: Some(name.to_owned()),
        will_notify_on_start: Some(true),
        will_notify_on_stop: Some(true),
        ..Default::default()
    }
}

#[test]
fn a_session_from_start_to_end() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let (consumer, session) = world.enable(&one_source("src"));
    assert_eq!(world.service.session_state(session), Some(SessionState::Started));
    assert_eq!(short(&world.commands(producer)), ["memory", "setup 1", "start 1"]);

    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("one"), packet("two")]);
    world.disable(consumer);
    assert_eq!(short(&world.commands(producer)), ["stop 1"]);
    assert_eq!(
        world.events_of(consumer),
        [ConsumerEvent::TracingDisabled { session_id: session, error: None }]
    );
    assert_eq!(world.read(consumer).texts(), ["one", "two"]);

    world.free(consumer);
    assert_eq!(world.service.session_state(session), None);
    assert!(world.try_enable(consumer, &one_source("src")).is_ok(), "the consumer may go on");
}

#[test]
fn set_up_and_start_carry_the_same_config_with_the_services_fields() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let mut config = one_source("src");
    config.buffers = vec![buffer(4), buffer(8)];
    config.duration_ms = Some(1234);
    let source_config = config.data_sources[0].config.as_mut().expect("set above");
    source_config.target_buffer = Some(1);
    source_config.legacy_config = Some("kept".to_owned());
    // What a consumer writes into the service's fields is replaced.
    source_config.tracing_session_id = Some(999);
    let (_, session) = world.enable(&config);

    let commands = world.commands(producer);
    let [
        _,
        ProducerCommand::SetupDataSource { config: set_up, .. },
        ProducerCommand::StartDataSource { config: start, .. },
    ] = &commands[..]
    else {
        panic!("{commands:?}")
    };
    assert_eq!(set_up, start);
    let received = <protos::DataSourceConfig as prost::Message>::decode(&set_up[..]).expect("a config");
    assert_eq!(received.target_buffer(), 2, "the second buffer of the first session");
    assert_eq!(received.trace_duration_ms(), 1234);
    assert_eq!(received.tracing_session_id(), session.0);
    assert_eq!(received.stop_timeout_ms(), 5000);
    assert_eq!(received.enable_extra_guardrails, Some(false));
    assert_eq!(received.session_initiator, Some(0), "always written");
    assert_eq!(received.prefer_suspend_clock_for_duration, None, "only written if true");
    assert_eq!(received.legacy_config(), "kept");
}

#[test]
fn fields_that_the_schema_does_not_know_reach_the_data_source() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    // TraceConfig { buffers { size_kb: 64 } data_sources { config { name: "src" 20000: "new" } }
    // 9999: 7 }
    let mut unknown = vec![0x82, 0xe2, 0x09, 3];
    unknown.extend_from_slice(b"new");
    let mut inner = vec![0x0a, 3];
    inner.extend_from_slice(b"src");
    inner.extend_from_slice(&unknown);
    let mut entry = vec![0x0a, inner.len() as u8];
    entry.extend_from_slice(&inner);
    let mut config = vec![0x0a, 2, 0x08, 64, 0x12, entry.len() as u8];
    config.extend_from_slice(&entry);
    config.extend_from_slice(&[0xf8, 0xf0, 0x04, 7]);

    let consumer = world.consumer();
    world
        .service
        .handle_enable_tracing(consumer, &config, watershed_service::OutputFile::None, &world.now)
        .expect("accepted");
    let commands = world.commands(producer);
    let Some(ProducerCommand::SetupDataSource { config: received, .. }) = commands.get(1) else {
        panic!("{commands:?}")
    };
    assert!(received.windows(unknown.len()).any(|window| window == unknown));

    // The echo is the same, byte for byte.
    let mut trace = Vec::new();
    while world.service.read_framed(consumer, &mut trace, &world.now) == watershed_service::ReadProgress::More
    {
    }
    assert!(trace.windows(config.len()).any(|window| window == config));
}

#[test]
fn a_deferred_session_starts_when_it_is_told_to() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let (consumer, session) = world.enable(&TraceConfig { deferred_start: Some(true), ..one_source("src") });
    assert_eq!(world.service.session_state(session), Some(SessionState::Configured));
    assert_eq!(short(&world.commands(producer)), ["memory", "setup 1"]);
    world.service.handle_start_tracing(consumer, &world.now);
    assert_eq!(short(&world.commands(producer)), ["start 1"]);
    // Again: ignored.
    world.service.handle_start_tracing(consumer, &world.now);
    assert!(world.commands(producer).is_empty());
}

#[test]
fn a_configured_session_stops_without_waiting() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register_as(producer, notifying("src"));
    let (consumer, session) = world.enable(&TraceConfig { deferred_start: Some(true), ..one_source("src") });
    world.disable(consumer);
    assert_eq!(short(&world.commands(producer)), ["memory", "setup 1", "stop 1"]);
    assert_eq!(world.service.session_state(session), Some(SessionState::Disabled));
}

#[test]
fn a_source_that_registers_late_joins() {
    let mut world = World::new();
    let (consumer, _) = world.enable(&one_source("src"));
    let producer = world.connect("late");
    world.register(producer, "other").register(producer, "src");
    assert_eq!(short(&world.commands(producer)), ["memory", "setup 1", "start 1"]);
    world.disable(consumer);
    world.register(producer, "src");
    assert_eq!(short(&world.commands(producer)), ["stop 1"], "not after the end");
}

#[test]
fn every_source_of_a_name_is_used_and_an_entry_twice_is_two_instances() {
    let mut world = World::new();
    let (first, second) = (world.connect("a"), world.connect("b"));
    world.register(first, "src").register(second, "src");
    let mut config = one_source("src");
    config.data_sources.push(source("src", 0));
    world.enable(&config);
    // Entries first, then registrations.
    assert_eq!(short(&world.commands(first)), ["memory", "setup 1", "setup 3", "start 1", "start 3"]);
    assert_eq!(short(&world.commands(second)), ["memory", "setup 2", "setup 4", "start 2", "start 4"]);
}

#[test]
fn producers_are_chosen_by_name_or_pattern() {
    let mut world = World::new();
    let names = ["exact", "com.one", "com.two.more", "xcom.one"];
    let producers: Vec<_> = names.iter().map(|name| world.connect(name)).collect();
    producers.iter().for_each(|producer| {
        world.register(*producer, "src");
    });
    let mut config = one_source("src");
    config.data_sources[0].producer_name_filter = vec!["exact".to_owned()];
    config.data_sources[0].producer_name_regex_filter = vec![r"com\.\w+".to_owned()];
    world.enable(&config);
    let chosen: Vec<bool> = producers.iter().map(|producer| !world.commands(*producer).is_empty()).collect();
    assert_eq!(chosen, [true, true, false, false], "a pattern has to match the whole name");
}

#[test]
fn producers_of_other_machines_need_to_be_asked_for() {
    let remote = || ProducerHello {
        identity: PeerIdentity { machine_id: 9, machine_name: "vm".to_owned(), ..hello().identity },
        ..hello()
    };
    let chosen = |entry: fn(&mut DataSource), all: bool| {
        let mut world = World::new();
        let (local, far) = (world.connect("local"), world.connect_as(remote()));
        world.register(local, "src").register(far, "src");
        let mut config = TraceConfig { trace_all_machines: Some(all), ..one_source("src") };
        entry(&mut config.data_sources[0]);
        world.enable(&config);
        (!world.commands(local).is_empty(), !world.commands(far).is_empty())
    };
    assert_eq!(chosen(|_| {}, false), (true, false));
    assert_eq!(chosen(|_| {}, true), (true, true));
    assert_eq!(chosen(|entry| entry.machine_name_filter = vec!["vm".to_owned()], false), (false, true));
    assert_eq!(chosen(|entry| entry.machine_name_filter = vec!["host".to_owned()], true), (true, false));
}

#[test]
fn buffers_are_found_by_name() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let mut config = one_source("src");
    config.buffers = vec![named("first", 4), named("second", 4)];
    let source_config = config.data_sources[0].config.as_mut().expect("set above");
    source_config.target_buffer = None;
    source_config.target_buffer_name = Some("second".to_owned());
    world.enable(&config);
    assert_eq!(world.producers[&producer].target_buffer(0), 2);
}

#[test]
fn memory_sizes_come_from_the_config_then_the_producer_then_the_default() {
    let sizes = |hello: ProducerHello, wish: ProducerConfig| {
        let mut world = World::new();
        let producer = world.connect_as(hello);
        world.register(producer, "src");
        world.enable(&TraceConfig { producers: vec![wish], ..one_source("src") });
        let smb = world.producers[&producer].smb.clone().expect("memory was set up");
        (smb.page_size_bytes(), smb.size_bytes())
    };
    let hinting = || ProducerHello { page_size_hint_bytes: 8192, shm_size_hint_bytes: 65536, ..hello() };
    let wish = |name: &str, page_size_kb, shm_size_kb| ProducerConfig {
        producer_name: Some(name.to_owned()),
        page_size_kb: Some(page_size_kb),
        shm_size_kb: Some(shm_size_kb),
    };
    assert_eq!(sizes(hello(), wish("other", 16, 512)), (4096, 256 * 1024));
    assert_eq!(sizes(hinting(), wish("other", 16, 512)), (8192, 65536));
    assert_eq!(sizes(hinting(), wish("producer", 16, 512)), (16384, 512 * 1024));
    // A pair that does not fit is not rounded.
    assert_eq!(sizes(hello(), wish("producer", 12, 512)), (4096, 256 * 1024));
}

#[test]
fn a_stop_waits_for_those_who_say_when_they_have_stopped() {
    let mut world = World::new();
    let (quick, slow) = (world.connect("quick"), world.connect("slow"));
    world.register(quick, "src").register_as(slow, notifying("src"));
    let (consumer, session) = world.enable(&one_source("src"));
    world.service.handle_data_source_started(slow, InstanceId(2), &world.now);
    world.disable(consumer);
    assert_eq!(world.service.session_state(session), Some(SessionState::Stopping));
    assert!(world.events_of(consumer).is_empty());
    // Nobody can say it for another, nor for an instance that does not exist.
    world.service.handle_data_source_stopped(quick, InstanceId(2), &world.now);
    world.service.handle_data_source_stopped(slow, InstanceId(7), &world.now);
    assert_eq!(world.service.session_state(session), Some(SessionState::Stopping));
    world.service.handle_data_source_stopped(slow, InstanceId(2), &world.now);
    assert_eq!(world.service.session_state(session), Some(SessionState::Disabled));
    assert_eq!(world.events_of(consumer).len(), 1);
}

#[test]
fn a_stop_does_not_wait_for_ever() {
    for (configured, expected_ms) in [(None, 5000), (Some(700), 700)] {
        let mut world = World::new();
        let producer = world.connect("p");
        world.register_as(producer, notifying("src"));
        let config = TraceConfig { data_source_stop_timeout_ms: configured, ..one_source("src") };
        let (consumer, session) = world.enable(&config);
        world.disable(consumer).advance_ms(expected_ms - 1);
        assert_eq!(world.service.session_state(session), Some(SessionState::Stopping));
        world.advance_ms(1);
        assert_eq!(world.service.session_state(session), Some(SessionState::Disabled));
        // A late word is of no consequence.
        world.service.handle_data_source_stopped(producer, InstanceId(1), &world.now);
        assert_eq!(world.events_of(consumer).len(), 1);
    }
}

#[test]
fn the_last_producer_of_a_stopping_session_disconnects() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register_as(producer, notifying("src"));
    let (consumer, session) = world.enable(&one_source("src"));
    world.disable(consumer).disconnect(producer);
    assert_eq!(world.service.session_state(session), Some(SessionState::Disabled));
}

#[test]
fn the_duration_ends_the_session_after_a_flush() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let (consumer, session) = world.enable(&TraceConfig { duration_ms: Some(1000), ..one_source("src") });
    let target = world.producers[&producer].target_buffer(0);
    world.commands(producer);
    world.advance_ms(999);
    assert!(world.commands(producer).is_empty());
    world.advance_ms(1);
    assert_eq!(short(&world.commands(producer)), ["flush 1"]);
    assert_eq!(world.service.session_state(session), Some(SessionState::Started), "the flush comes first");
    world.write(producer, 1, target, &[packet("late")]).acknowledge_flush(producer);
    assert_eq!(short(&world.commands(producer)), ["stop 1"]);
    assert_eq!(world.service.session_state(session), Some(SessionState::Disabled));
    let trace = world.read(consumer);
    assert_eq!(trace.texts(), ["late"]);
    assert_eq!(
        trace.stats().expect("statistics").final_flush_outcome(),
        protos::trace_stats::FinalFlushOutcome::FinalFlushSucceeded
    );
}

#[test]
fn the_duration_counts_sleep_only_where_it_is_asked_to() {
    for (counts_sleep, expected) in [(false, SessionState::Started), (true, SessionState::Disabled)] {
        let mut world = World::new();
        let config = TraceConfig {
            duration_ms: Some(1000),
            prefer_suspend_clock_for_duration: Some(counts_sleep),
            ..one_source("nobody")
        };
        let (_, session) = world.enable(&config);
        world.suspend_ms(2000);
        world.run_due();
        assert_eq!(world.service.session_state(session), Some(expected));
    }
}

#[test]
fn two_sessions_at_once_share_a_producer_and_nothing_else() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let (first_consumer, first) = world.enable(&one_source("src"));
    let (second_consumer, second) = world.enable(&one_source("src"));
    assert_eq!(short(&world.commands(producer)), ["memory", "setup 1", "start 1", "setup 2", "start 2"]);
    let (to_first, to_second) =
        (world.producers[&producer].target_buffer(0), world.producers[&producer].target_buffer(1));
    assert_ne!(to_first, to_second);
    world.write(producer, 1, to_first, &[packet("first")]).write(producer, 2, to_second, &[packet("second")]);
    world.disable(first_consumer);
    assert_eq!(short(&world.commands(producer)), ["stop 1"]);
    assert_eq!(world.service.session_state(second), Some(SessionState::Started));
    assert_eq!(world.read(first_consumer).texts(), ["first"]);
    assert_eq!(world.read(second_consumer).texts(), ["second"]);
    world.free(first_consumer);
    assert_eq!(world.service.session_state(first), None);
    world.write(producer, 2, to_second, &[packet("more")]);
    assert_eq!(world.read(second_consumer).texts(), ["more"]);
}

#[test]
fn a_consumer_that_goes_takes_its_session_along() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let (consumer, session) = world.enable(&one_source("src"));
    world.commands(producer);
    world.service.handle_consumer_disconnect(consumer, &world.now);
    assert_eq!(short(&world.commands(producer)), ["stop 1"]);
    assert_eq!(world.service.session_state(session), None);
    let (_, of_file) = world.enable(&into_file("src"));
    assert_eq!(world.service.session_state(of_file), Some(SessionState::Started));
}

#[test]
fn data_of_a_producer_that_has_gone_stays() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register(producer, "src");
    let (consumer, _) = world.enable(&one_source("src"));
    let target = world.producers[&producer].target_buffer(0);
    world.write(producer, 1, target, &[packet("kept")]).disconnect(producer);
    let trace = world.read(consumer);
    assert_eq!(crate::support::trace::trusted_uid(trace.saying("kept")), Some(77));
    assert_eq!(trace.saying("kept").trusted_pid(), 1234);
}

#[test]
fn a_consumer_is_told_what_it_wants_to_know() {
    let mut world = World::new();
    let producer = world.connect("p");
    world.register_as(producer, notifying("src"));
    let consumer = world.consumer();
    let all = ObservedEvents::INSTANCE_STATES.and(ObservedEvents::ALL_DATA_SOURCES_STARTED);
    world.service.handle_observe_events(consumer, all);
    let session_id = world.try_enable(consumer, &one_source("src")).expect("accepted");
    let state = |started| ConsumerEvent::InstanceState {
        producer_name: "p".to_owned(),
        data_source_name: "src".to_owned(),
        started,
    };
    assert_eq!(world.events_of(consumer), [state(false)], "set up; on its way is not told");
    world.service.handle_data_source_started(producer, InstanceId(1), &world.now);
    let started = [state(true), ConsumerEvent::AllDataSourcesStarted { session_id }];
    assert_eq!(world.events_of(consumer), started);
    // Who asks later is told what is so already.
    world.service.handle_observe_events(consumer, all);
    assert_eq!(world.events_of(consumer), started);
    world.disable(consumer);
    assert!(world.events_of(consumer).is_empty());
    world.service.handle_data_source_stopped(producer, InstanceId(1), &world.now);
    let over = ConsumerEvent::TracingDisabled { session_id, error: None };
    assert_eq!(world.events_of(consumer), [state(false), over]);
}

#[test]
fn no_sources_are_all_started_at_once() {
    let mut world = World::new();
    let consumer = world.consumer();
    world.service.handle_observe_events(consumer, ObservedEvents::ALL_DATA_SOURCES_STARTED);
    let session_id = world.try_enable(consumer, &TraceConfig::default()).expect("an empty config is one");
    assert_eq!(world.events_of(consumer), [ConsumerEvent::AllDataSourcesStarted { session_id }]);
}

#[test]
fn incremental_state_is_cleared_where_that_is_understood() {
    let mut world = World::new();
    let (with, without) = (world.connect("with"), world.connect("without"));
    let clears = protos::DataSourceDescriptor {
        name: Some("src".to_owned()),
        handles_incremental_state_clear: Some(true),
        ..Default::default()
    };
    world.register_as(with, clears).register(without, "src");
    let incremental = protos::trace_config::IncrementalStateConfig { clear_period_ms: Some(300) };
    world.enable(&TraceConfig { incremental_state_config: Some(incremental), ..one_source("src") });
    world.commands(with);
    world.commands(without);
    world.advance_ms(1000);
    // At multiples of the period on the clock, which began at 5 s: 5.1, 5.4, 5.7, 6.0.
    assert_eq!(short(&world.commands(with)), ["clear"; 4]);
    assert!(world.commands(without).is_empty());
}
