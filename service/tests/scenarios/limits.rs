//! Lists that a peer makes longer: they end somewhere, and what one call does is linear in what
//! that peer has, whatever others have.

use prost::Message;
use watershed_service::limits::{
    CONSUMERS_MAX, DATA_SOURCES_PER_CONFIG_MAX, DATA_SOURCES_PER_PRODUCER_MAX,
    DESCRIPTOR_BYTES_PER_PRODUCER_MAX, INSTANCES_PER_PRODUCER_MAX, PENDING_FLUSHES_MAX, PRODUCER_WISHES_MAX,
    SEMAPHORES_PER_CONFIG_MAX, START_TIMES_MAX,
};
use watershed_service::{
    ConnectError, EnableError, FlushFlags, ProducerHello, ProducerId, ProducerMemory, ScrapingMode, Warning,
};
use watershed_wire::protos;
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::trace_config::{ProducerConfig, SessionSemaphore};

use crate::support::config::{buffer, one_source, source};
use crate::support::{World, hello};

fn connect(world: &mut World, name: &str) -> ProducerId {
    let hello = ProducerHello { name: name.to_owned(), memory: ProducerMemory::Emulated, ..hello() };
    world.connect_as(hello)
}

/// Work of one call, in what it looked at.
fn work(world: &mut World, call: impl FnOnce(&mut World)) -> u64 {
    let before = world.service.looked_at();
    call(world);
    world.service.looked_at() - before
}

fn num_sources(world: &World) -> usize {
    world.service.data_sources().count()
}

#[test]
fn a_disconnect_is_linear_in_what_the_producer_had() {
    let works = [256, 1024].map(|num_sources| {
        let mut world = World::new();
        for _ in 0..3 {
            world.enable(&one_source("src"));
        }
        let producer = connect(&mut world, "many");
        for _ in 0..num_sources {
            world.register(producer, "src");
        }
        // Who else is there does not matter.
        let others = connect(&mut world, "others");
        for _ in 0..100 {
            world.register(others, "src");
        }
        let disconnecting = work(&mut world, |world| {
            world.disconnect(producer);
        });
        assert!(world.producers[&others].instances.len() == 300, "they go on");
        let again = connect(&mut world, "one");
        let registering = work(&mut world, |world| {
            world.register(again, "src");
        });
        (disconnecting, registering)
    });
    // Each source once, and each of its three instances when it is found and when it is stopped.
    assert_eq!(works, [(256 * 7, 3), (1024 * 7, 3)]);
}

#[test]
fn one_that_leaves_costs_nothing_for_the_others() {
    let mut world = World::new();
    world.enable(&one_source("src"));
    let others = connect(&mut world, "others");
    for _ in 0..1000 {
        world.register(others, "src");
    }
    let alone = connect(&mut world, "alone");
    world.register(alone, "src").register(alone, "not wanted");
    let unregistering = work(&mut world, |world| {
        world.service.handle_unregister_data_source(alone, "not wanted", &world.now);
    });
    let disconnecting = work(&mut world, |world| {
        world.disconnect(alone);
    });
    assert_eq!((unregistering, disconnecting), (1, 3));
}

#[test]
fn data_sources_of_a_producer_are_limited() {
    let mut world = World::new();
    let (producer, other) = (connect(&mut world, "many"), connect(&mut world, "other"));
    for i in 0..DATA_SOURCES_PER_PRODUCER_MAX + 3 {
        world.register(producer, &format!("source {i}"));
    }
    assert_eq!(num_sources(&world), DATA_SOURCES_PER_PRODUCER_MAX);
    let warning = Warning::TooManyDataSources { producer_name: "many".to_owned() };
    assert_eq!(world.warnings, [warning], "once for a connection");
    world.register(other, "src");
    assert_eq!(num_sources(&world), DATA_SOURCES_PER_PRODUCER_MAX + 1, "others are not concerned");
    world.service.handle_unregister_data_source(producer, "source 5", &world.now);
    world.register(producer, "in its place");
    let names: Vec<_> = world.service.data_sources().map(|source| source.name.to_owned()).collect();
    assert_eq!(names.len(), DATA_SOURCES_PER_PRODUCER_MAX + 1);
    assert_eq!(names[DATA_SOURCES_PER_PRODUCER_MAX - 1..], ["src", "in its place"]);
    world.disconnect(producer);
    assert_eq!(num_sources(&world), 1);
}

#[test]
fn descriptors_of_a_producer_are_limited_in_bytes() {
    let mut world = World::new();
    let producer = connect(&mut world, "large");
    let descriptor = |id: u64, unknown_bytes: usize| {
        let known = protos::DataSourceDescriptor {
            name: Some("n".repeat(if id == 9 { 1025 } else { 1024 })),
            id: Some(id),
            ..Default::default()
        };
        let mut bytes = known.encode_to_vec();
        prost::encoding::bytes::encode(1000, &vec![0; unknown_bytes], &mut bytes);
        bytes
    };
    let half = DESCRIPTOR_BYTES_PER_PRODUCER_MAX / 2 - 2000;
    let register = |world: &mut World, bytes: &[u8]| {
        world.service.handle_register_data_source(producer, bytes, &world.now);
        world.pump();
    };
    register(&mut world, &descriptor(9, 0));
    assert_eq!(num_sources(&world), 0, "its name is too long");
    for id in 1..4 {
        register(&mut world, &descriptor(id, half));
    }
    assert_eq!((num_sources(&world), world.warnings.len()), (2, 1));
    // An update may not grow beyond it either, and one that does changes nothing.
    world.service.handle_update_data_source(producer, &descriptor(1, half + 4000));
    let sizes = |world: &World| {
        world.service.data_sources().map(|source| source.descriptor.len()).collect::<Vec<_>>()
    };
    let size_bytes = descriptor(1, half).len();
    assert_eq!(sizes(&world), [size_bytes; 2]);
    world.service.handle_update_data_source(producer, &descriptor(1, 0));
    register(&mut world, &descriptor(3, half));
    assert_eq!(sizes(&world), [descriptor(1, 0).len(), size_bytes, size_bytes]);
}

#[test]
fn instances_of_a_producer_are_limited_in_each_session() {
    let mut world = World::new();
    let config = TraceConfig {
        buffers: vec![buffer(64)],
        data_sources: vec![source("src", 0); 3],
        ..TraceConfig::default()
    };
    let (_, session_id) = world.enable(&config);
    let (producer, other) = (connect(&mut world, "many"), connect(&mut world, "other"));
    for _ in 0..500 {
        world.register(producer, "src");
    }
    world.register(other, "src");
    assert_eq!(world.producers[&producer].instances.len(), INSTANCES_PER_PRODUCER_MAX);
    assert_eq!(world.producers[&other].instances.len(), 3, "others are not concerned");
    let warning = Warning::TooManyInstances { session_id, producer_name: "many".to_owned() };
    assert_eq!(world.warnings, [warning], "once");
    // A session that comes later finds the same.
    world.enable(&config);
    assert_eq!(world.producers[&producer].instances.len(), 2 * INSTANCES_PER_PRODUCER_MAX);
}

#[test]
fn lists_of_a_config_are_limited() {
    let with_sources = |count: usize| TraceConfig {
        buffers: vec![buffer(64)],
        data_sources: vec![source("src", 0); count],
        ..TraceConfig::default()
    };
    let with_wishes = |count: usize| TraceConfig {
        producers: vec![ProducerConfig::default(); count],
        ..TraceConfig::default()
    };
    let with_semaphores = |count: usize| TraceConfig {
        session_semaphores: vec![SessionSemaphore::default(); count],
        ..TraceConfig::default()
    };
    let lists: [(_, _, &dyn Fn(usize) -> TraceConfig); 3] = [
        ("data_sources", DATA_SOURCES_PER_CONFIG_MAX, &with_sources),
        ("producers", PRODUCER_WISHES_MAX, &with_wishes),
        ("session_semaphores", SEMAPHORES_PER_CONFIG_MAX, &with_semaphores),
    ];
    for (field, max, config) in lists {
        let mut world = World::new();
        let consumer = world.consumer();
        let refused = EnableError::ListTooLong { field, count: max + 1, max };
        assert_eq!(world.try_enable(consumer, &config(max + 1)), Err(refused));
        assert!(world.try_enable(consumer, &config(max)).is_ok(), "{field}");
    }
}

#[test]
fn consumers_are_limited() {
    let mut world = World::new();
    let consumers: Vec<_> = (0..CONSUMERS_MAX).map(|_| world.consumer()).collect();
    assert_eq!(world.try_consumer(1), Err(ConnectError::TooManyConsumers));
    let first = consumers[0];
    assert!(world.try_enable(first, &one_source("src")).is_ok(), "those that are there go on");
    world.service.handle_consumer_disconnect(first, &world.now);
    let next = world.try_consumer(1).expect("there is room for one");
    assert!(!consumers.contains(&next), "a number is not used twice");
    assert_eq!(world.try_consumer(1), Err(ConnectError::TooManyConsumers));
}

#[test]
fn starts_of_sessions_with_guardrails_are_remembered_for_a_bounded_number_of_names() {
    let mut world = World::new();
    let consumer = world.consumer();
    let start = |world: &mut World, name: usize| {
        let config = TraceConfig {
            unique_session_name: Some(name.to_string()),
            enable_extra_guardrails: Some(true),
            ..one_source("src")
        };
        let started = world.try_enable(consumer, &config);
        world.free(consumer);
        world.advance_ms(1);
        started.is_ok()
    };
    assert!((0..=START_TIMES_MAX).all(|name| start(&mut world, name)));
    assert!((1..=START_TIMES_MAX).all(|name| !start(&mut world, name)), "they started just now");
    assert!(start(&mut world, 0), "the start that was longest ago is forgotten");
}

/// More than the system's pool has: the session has ordinary pages, and is told.
#[cfg(target_os = "linux")]
#[test]
fn a_buffer_for_which_there_are_no_huge_pages_is_told() {
    let meminfo = std::fs::read_to_string("/proc/meminfo").unwrap();
    let pool = meminfo.lines().find_map(|line| line.strip_prefix("HugePages_Total:"));
    let pool_kb = pool.map_or(0, |pages| pages.trim().parse::<u32>().unwrap()) * 2048;
    let config = |size_kb| protos::TraceConfig { buffers: vec![buffer(size_kb)], ..Default::default() };
    let mut world = World::with_huge_pages();
    let (_, session_id) = world.enable(&config(pool_kb + 4096));
    assert_eq!(world.warnings, [Warning::NoHugePages { session_id, index: 0 }]);
    let mut others = World::new();
    others.enable(&config(pool_kb + 4096));
    assert_eq!(others.warnings, [], "nobody asked for them");
}

#[test]
fn flushes_that_end_together_are_looked_at_once_each() {
    let mut world = World::new();
    let hello = ProducerHello { scraping: ScrapingMode::Enabled, ..hello() };
    let producer = world.connect_as(hello);
    let other = connect(&mut world, "other");
    world.register(producer, "src").register(other, "other");
    let (consumer, _) = world.enable(&one_source("src"));
    let (waiting, _) = world.enable(&one_source("other"));
    for (consumer, timeout_ms) in [(consumer, 0), (waiting, 60_000)] {
        for _ in 0..PENDING_FLUSHES_MAX {
            let flags = FlushFlags::EXPLICIT;
            world.service.handle_flush(consumer, timeout_ms, flags, &world.now).expect("there is room");
        }
    }
    let acknowledge = |world: &mut World| {
        let flush_request_id = Some(u64::MAX);
        world.commit(producer, protos::CommitDataRequest { flush_request_id, ..Default::default() });
    };
    world.pump();
    let num = PENDING_FLUSHES_MAX as u64;
    assert_eq!(work(&mut world, acknowledge), num, "those of others are not looked at");
    assert_eq!(work(&mut world, acknowledge), 0, "once each");
    let ending = work(&mut world, |world| {
        world.run_due();
    });
    assert_eq!(ending, num + 1, "and one scrape for all");
    assert_eq!(world.events_of(consumer).len(), PENDING_FLUSHES_MAX);
    assert_eq!(world.events_of(waiting).len(), 0);
    world.advance_ms(70_000);
    assert_eq!(world.events_of(waiting).len(), PENDING_FLUSHES_MAX);
    assert_eq!(work(&mut world, acknowledge), 0);
}
