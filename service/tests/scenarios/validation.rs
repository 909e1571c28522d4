//! Every reason for which a config is refused, by its message, and the order in which they are
//! looked for.

use crate::support::World;
use crate::support::config::{buffer, discard, named, one_source, source};
use watershed_service::{EnableError, OutputFile, Warning};
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::trace_config::{
    CompressionConfig, GuardrailOverrides, LockdownModeOperation, SessionSemaphore, TraceFilter,
};

fn refusal(config: &TraceConfig) -> String {
    refusal_in(&mut World::new(), config)
}

fn refusal_in(world: &mut World, config: &TraceConfig) -> String {
    let consumer = world.consumer();
    let before = world.service.session_of(consumer);
    let error = world.try_enable(consumer, config).expect_err("a refusal");
    assert_eq!(world.service.session_of(consumer), before, "nothing is left behind");
    error.to_string()
}

fn guarded(config: TraceConfig) -> TraceConfig {
    TraceConfig { enable_extra_guardrails: Some(true), ..config }
}

#[test]
fn what_is_no_config() {
    let mut world = World::new();
    let consumer = world.consumer();
    let result = world.service.handle_enable_tracing(consumer, &[0x0a, 200], OutputFile::None, &world.now);
    assert!(
        result
            .expect_err("a refusal")
            .to_string()
            .starts_with("the trace config is not a TraceConfig message: ")
    );
}

#[test]
fn one_session_for_one_consumer() {
    let mut world = World::new();
    let (consumer, session) = world.enable(&one_source("src"));
    let error = world.try_enable(consumer, &one_source("src")).expect_err("a refusal");
    assert_eq!(error.to_string(), "this consumer already has a tracing session");
    assert_eq!(world.service.session_of(consumer), Some(session));
    world.disable(consumer);
    assert_eq!(
        world.try_enable(consumer, &one_source("src")),
        Err(EnableError::AlreadyHasSession),
        "until it is freed"
    );
}

#[test]
fn durations() {
    let week = 7 * 24 * 3600 * 1000;
    let of = |duration_ms| TraceConfig { duration_ms: Some(duration_ms), ..TraceConfig::default() };
    World::new().enable(&of(week));
    assert_eq!(refusal(&of(week + 1)), "duration_ms is 604800001, at most 604800000 is allowed");
    World::new().enable(&guarded(of(week / 7)));
    assert_eq!(refusal(&guarded(of(week / 7 + 1))), "duration_ms is 86400001, at most 86400000 is allowed");
}

#[test]
fn what_is_not_supported_is_refused_rather_than_ignored() {
    let config = TraceConfig { priority_boost: Some(Default::default()), ..TraceConfig::default() };
    assert_eq!(refusal(&config), "priority_boost is not supported by this service");
}

#[test]
fn what_can_be_left_out_is_warned_about() {
    let deflate = CompressionConfig { deflate: Some(Default::default()), ..Default::default() };
    for (compression, field, instead) in [
        (CompressionConfig::default(), "compression", "the trace is not compressed"),
        (deflate, "compression without write_into_file", "what is read is not compressed"),
    ] {
        let mut world = World::new();
        let config = TraceConfig { compression: Some(compression), ..TraceConfig::default() };
        let (_, session_id) = world.enable(&config);
        assert_eq!(world.warnings, [Warning::ConfigIgnored { session_id, field, instead }]);
        let text = format!("session 1: {field} is not supported, {instead}");
        assert_eq!(world.warnings[0].to_string(), text);
    }
}

#[test]
fn bugreport_filenames() {
    let of = |name: &str| TraceConfig { bugreport_filename: Some(name.to_owned()), ..TraceConfig::default() };
    World::new().enable(&of("Trace_1.pftrace-x"));
    assert_eq!(
        refusal(&of("a/b")),
        "bugreport_filename may contain only letters, digits, '_', '.' and '-', not '/'"
    );
}

#[test]
fn guardrails() {
    let deferred = guarded(TraceConfig { deferred_start: Some(true), ..TraceConfig::default() });
    assert_eq!(refusal(&deferred), "with enable_extra_guardrails deferred_start is not allowed");

    let of = |sizes: &[u32]| {
        guarded(TraceConfig {
            buffers: sizes.iter().map(|kb| buffer(*kb)).collect(),
            ..TraceConfig::default()
        })
    };
    assert_eq!(
        refusal(&of(&[4, 6])),
        "with enable_extra_guardrails size_kb must be a multiple of 4, buffer 1 has 6"
    );
    World::new().enable(&of(&[64 * 1024, 64 * 1024]));
    assert_eq!(
        refusal(&of(&[64 * 1024, 64 * 1024, 4])),
        "with enable_extra_guardrails all buffers together may have 131072 KiB, not 131076"
    );
    let raised = GuardrailOverrides { max_tracing_buffer_size_kb: Some(131_076), ..Default::default() };
    World::new().enable(&TraceConfig { guardrail_overrides: Some(raised), ..of(&[64 * 1024, 64 * 1024, 4]) });
    let lowered = GuardrailOverrides { max_tracing_buffer_size_kb: Some(4), ..Default::default() };
    World::new().enable(&TraceConfig { guardrail_overrides: Some(lowered), ..of(&[8]) });
}

#[test]
fn sessions_of_one_name_start_five_minutes_apart() {
    let mut world = World::new();
    // No name is a name, too.
    let (consumer, _) = world.enable(&guarded(TraceConfig::default()));
    world.free(consumer).advance_ms(299_999);
    assert_eq!(
        refusal_in(&mut world, &guarded(TraceConfig::default())),
        "with enable_extra_guardrails a session with the name \"\" may start only 300 s after the last one"
    );
    world.enable(&TraceConfig::default());
    world.advance_ms(1);
    world.enable(&guarded(TraceConfig::default()));
}

#[test]
fn buffers() {
    let of = |buffers| TraceConfig { buffers, ..TraceConfig::default() };
    World::new().enable(&of(vec![buffer(4); 128]));
    assert_eq!(refusal(&of(vec![buffer(4); 129])), "the config has 129 buffers, at most 128 are allowed");
    assert_eq!(
        refusal(&of(vec![named("x", 4), buffer(4), named("x", 4)])),
        "two buffers have the name \"x\""
    );
    assert_eq!(
        refusal(&of(vec![buffer(4), buffer(0)])),
        "buffer 1: size_kb must be from 1 to 4194303, not 0"
    );
    assert_eq!(
        refusal(&of(vec![discard(4_194_304)])),
        "buffer 0: size_kb must be from 1 to 4194303, not 4194304"
    );
}

#[test]
fn targets_of_data_sources() {
    let with = |change: fn(&mut TraceConfig)| {
        let mut config = TraceConfig { buffers: vec![named("a", 4), named("b", 4)], ..one_source("src") };
        change(&mut config);
        config
    };
    fn target(config: &mut TraceConfig, name: &str, index: Option<u32>) {
        let source = config.data_sources[0].config.as_mut().expect("one source");
        source.target_buffer_name = Some(name.to_owned());
        source.target_buffer = index;
    }
    World::new().enable(&with(|config| target(config, "b", Some(1))));
    World::new().enable(&with(|config| target(config, "b", Some(0))));
    assert_eq!(
        refusal(&with(|config| target(config, "c", None))),
        "data source \"src\" wants buffer \"c\", which the config does not have"
    );
    assert_eq!(
        refusal(&with(|config| target(config, "a", Some(1)))),
        "data source \"src\" wants buffer \"a\", which has index 0, and target_buffer 1"
    );
    assert_eq!(
        refusal(&with(|config| config.data_sources[0] = source("src", 2))),
        "data source \"src\" wants target_buffer 2, the config has 2 buffers"
    );
    assert_eq!(
        refusal(&TraceConfig { buffers: Vec::new(), ..one_source("src") }),
        "data source \"src\" wants target_buffer 0, the config has 0 buffers"
    );
    World::new().enable(&TraceConfig::default());
}

#[test]
fn patterns() {
    let mut config = one_source("src");
    config.data_sources[0].producer_name_regex_filter = vec!["com.(".to_owned()];
    let error = refusal(&config);
    assert!(
        error.starts_with("data source \"src\": producer_name_regex_filter \"com.(\" is not a pattern: "),
        "{error}"
    );
}

#[test]
fn exclusive_sessions() {
    let exclusive = |priority| TraceConfig { exclusive_prio: Some(priority), ..TraceConfig::default() };
    let mut world = World::new();
    let (common, common_session) = world.enable(&TraceConfig::default());
    let (first, _) = world.enable(&exclusive(5));
    // Whoever was there is told why it ended, and has no session any more.
    let events = world.events_of(common);
    let error = Some("aborted: a session with a higher exclusive_prio begins".to_owned());
    assert_eq!(
        events,
        [watershed_service::ConsumerEvent::TracingDisabled { session_id: common_session, error }]
    );
    assert_eq!(world.service.session_of(common), None);
    for priority in [0, 4, 5] {
        assert_eq!(
            refusal_in(&mut world, &exclusive(priority)),
            format!("an exclusive session with priority 5 is active, this one asks for {priority}")
        );
    }
    world.enable(&exclusive(6));
    assert_eq!(world.service.session_of(first), None);
}

#[test]
fn an_exclusive_session_that_is_refused_ends_nothing() {
    let mut world = World::new();
    let (consumer, _) = world.enable(&TraceConfig::default());
    let config = TraceConfig { exclusive_prio: Some(1), buffers: vec![buffer(0)], ..TraceConfig::default() };
    refusal_in(&mut world, &config);
    assert!(world.service.session_of(consumer).is_some());
}

#[test]
fn unique_names() {
    let of =
        |name: &str| TraceConfig { unique_session_name: Some(name.to_owned()), ..TraceConfig::default() };
    let mut world = World::new();
    let (consumer, _) = world.enable(&of("x"));
    world.enable(&of("y"));
    world.disable(consumer);
    assert_eq!(
        refusal_in(&mut world, &of("x")),
        "a session with the name \"x\" exists",
        "also when it is over"
    );
    world.free(consumer);
    world.enable(&of("x"));
}

#[test]
fn semaphores() {
    let of = |name: &str, others| TraceConfig {
        session_semaphores: vec![SessionSemaphore {
            name: Some(name.to_owned()),
            max_other_session_count: Some(others),
        }],
        ..TraceConfig::default()
    };
    let mut world = World::new();
    world.enable(&of("other", 0));
    world.enable(&of("s", 2));
    let (second, _) = world.enable(&of("s", 1));
    // The smallest limit of all holders counts.
    assert_eq!(refusal_in(&mut world, &of("s", 9)), "semaphore \"s\": 2 other sessions hold it, 1 may");
    world.disable(second);
    world.enable(&of("s", 9));
}

#[test]
fn limits_of_sessions() {
    let mut world = World::new();
    for uid in [1, 2, 3] {
        for _ in 0..5 {
            let consumer = world.consumer_of(uid);
            world.try_enable(consumer, &TraceConfig::default()).expect("within the limit");
        }
    }
    let sixth = world.consumer_of(1);
    let error = world.try_enable(sixth, &TraceConfig::default()).expect_err("a refusal");
    assert_eq!(error.to_string(), "uid 1 has 5 sessions, more are not allowed");
    assert_eq!(
        refusal_in(&mut world, &TraceConfig::default()),
        "there are 15 sessions, more are not allowed"
    );
}

#[test]
fn files() {
    let config = |path: &str| TraceConfig {
        write_into_file: Some(true),
        output_path: Some(path.to_owned()),
        ..TraceConfig::default()
    };
    let mut world = World::new();
    let consumer = world.consumer();
    let mut enable = |config: &TraceConfig, file: OutputFile<'_>| {
        world.try_enable_with(consumer, config, file).expect_err("a refusal").to_string()
    };
    let neither = "write_into_file needs a file: either one that is passed along, or output_path";
    assert_eq!(enable(&config(""), OutputFile::None), neither);
    assert_eq!(enable(&config(""), OutputFile::Create(&mut |_| panic!("no path"))), neither);
    assert_eq!(
        enable(&config("/t"), OutputFile::Provided),
        "write_into_file got both an open file and output_path, one of them is enough"
    );
    assert_eq!(
        enable(&config("/t"), OutputFile::Create(&mut |path| Err(format!("{path} exists")))),
        "output_path \"/t\" could not be created: /t exists"
    );
    // The file is made only when everything before it is in order.
    let bad = TraceConfig { duration_ms: Some(u32::MAX), ..config("/t") };
    enable(&bad, OutputFile::Create(&mut |_| panic!("made for nothing")));
    let mut made = Vec::new();
    let create = &mut |path: &str| {
        made.push(path.to_owned());
        Ok(())
    };
    world.try_enable_with(consumer, &config("/t"), OutputFile::Create(create)).expect("accepted");
    assert_eq!(made, ["/t"]);
}

#[test]
fn lockdown_keeps_others_out_even_if_the_config_is_refused() {
    let mut world = World::new();
    let set = TraceConfig {
        lockdown_mode: Some(LockdownModeOperation::LockdownSet.into()),
        duration_ms: Some(u32::MAX),
        ..TraceConfig::default()
    };
    let before = world.connect("before");
    refusal_in(&mut world, &set);
    let error = world.service.handle_producer_connect(crate::support::hello()).expect_err("locked down");
    assert_eq!(
        error.to_string(),
        "the service is locked down and takes producers of its own user only, not of uid 77"
    );
    // Those who are connected get nothing new.
    world.register(before, "src");
    world.enable(&one_source("src"));
    assert!(world.commands(before).is_empty());
    let identity = watershed_service::PeerIdentity { uid: crate::support::SERVICE_UID, ..Default::default() };
    world.connect_as(watershed_service::ProducerHello { identity, ..crate::support::hello() });

    let clear = TraceConfig {
        lockdown_mode: Some(LockdownModeOperation::LockdownClear.into()),
        ..TraceConfig::default()
    };
    world.enable(&clear);
    world.connect("after");
}

#[test]
fn the_first_failure_wins() {
    // Every step is wrong; mending one uncovers the next.
    let mut config = guarded(TraceConfig {
        duration_ms: Some(u32::MAX),
        bugreport_filename: Some("/".to_owned()),
        deferred_start: Some(true),
        buffers: vec![named("x", 6), named("x", 0)],
        data_sources: vec![source("src", 9)],
        unique_session_name: Some("taken".to_owned()),
        trace_filter: Some(TraceFilter::default()),
        write_into_file: Some(true),
        output_path: Some("/t".to_owned()),
        ..TraceConfig::default()
    });
    let mut world = World::new();
    world.enable(&TraceConfig { unique_session_name: Some("taken".to_owned()), ..TraceConfig::default() });
    type Mend = fn(&mut TraceConfig);
    let steps: [(&str, Mend); 8] = [
        ("duration_ms is", |config| config.duration_ms = None),
        ("bugreport_filename may contain", |config| config.bugreport_filename = None),
        ("with enable_extra_guardrails deferred", |config| config.deferred_start = None),
        ("with enable_extra_guardrails size_kb", |config| config.enable_extra_guardrails = None),
        ("two buffers have the name", |config| config.buffers[1].name = None),
        ("data source \"src\" wants target_buffer 9", |config| config.data_sources.clear()),
        ("a session with the name \"taken\"", |config| config.unique_session_name = None),
        ("trace_filter cannot be used: it has no bytecode", |config| config.trace_filter = None),
    ];
    for (begin, mend) in steps {
        let error = refusal_in(&mut world, &config);
        assert!(error.starts_with(begin), "{error:?} instead of {begin:?}");
        mend(&mut config);
    }
    assert!(refusal_in(&mut world, &config).starts_with("write_into_file got both"));
    config.write_into_file = None;
    assert!(refusal_in(&mut world, &config).starts_with("buffer 1: size_kb"));
}
