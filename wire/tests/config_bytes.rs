//! Configs as bytes: nothing that is passed on loses a byte, known to the schema or not.

use proptest::prelude::*;
use prost::Message as _;
use watershed_wire::config::{ConfigError, DataSourceConfig, ServiceFields, TraceConfig};
use watershed_wire::protos;
use watershed_wire::protos::data_source_config::SessionInitiator;
use watershed_wire::raw::{Fields, Rewrite};

/// Field 9999 of a message, length-delimited.
const UNKNOWN: &[u8] = &[0xfa, 0xf0, 0x04, 3, 0xde, 0xad, 0x7f];

const FIELDS: ServiceFields = ServiceFields {
    target_buffer: 7,
    trace_duration_ms: 10_000,
    tracing_session_id: 3,
    enable_extra_guardrails: false,
    stop_timeout_ms: 5000,
    session_initiator: SessionInitiator::Unspecified,
    prefer_suspend_clock_for_duration: false,
};

fn message(number: u8, contents: &[u8]) -> Vec<u8> {
    let mut bytes = vec![number << 3 | 2, contents.len() as u8];
    bytes.extend_from_slice(contents);
    bytes
}

/// A config with unknown fields at every level, and fields in an unusual order.
fn strange_config() -> (Vec<u8>, Vec<u8>) {
    let name = message(1, b"linux.sys_stats");
    // Field 101 is a message that the schema declares but does not look into.
    let chrome = [&[0xaa, 0x06, 4][..], &message(1, b"{}")].concat();
    let source = [UNKNOWN, &chrome, &[2 << 3, 1], &name].concat();
    let entry = [&message(1, &source)[..], UNKNOWN].concat();
    let config = [UNKNOWN, &[3 << 3, 100], &message(2, &entry), UNKNOWN].concat();
    (config, source)
}

#[test]
fn binary_is_kept_as_it_is() {
    let (bytes, source) = strange_config();
    let config = TraceConfig::parse(&bytes).unwrap();
    assert_eq!(config.bytes(), bytes);
    assert_eq!(config.view().duration_ms(), 100);
    let sources = config.data_sources().unwrap();
    assert_eq!(sources.len(), 1);
    assert_eq!(sources[0].bytes(), source);
    assert_eq!(sources[0].name(), "linux.sys_stats");
    // A struct would have lost them.
    assert_ne!(config.view().encode_to_vec(), bytes);
}

#[test]
fn unknown_fields_are_shown_in_the_text() {
    let (bytes, _) = strange_config();
    let text = TraceConfig::parse(&bytes).unwrap().to_text();
    assert!(text.contains("9999:"), "{text}");
    assert!(text.contains("chrome_config {"), "{text}");
}

#[test]
fn stamping_keeps_everything_else() {
    let (bytes, source) = strange_config();
    let config = TraceConfig::parse(&bytes).unwrap();
    let stamped = config.data_sources().unwrap()[0].stamped(&FIELDS).unwrap();
    assert_eq!(stamped.view().target_buffer(), 7);
    assert_eq!(stamped.view().trace_duration_ms(), 10_000);
    assert_eq!(stamped.view().tracing_session_id(), 3);
    assert_eq!(stamped.view().stop_timeout_ms(), 5000);
    assert_eq!(stamped.view().session_initiator, Some(0));
    assert_eq!(stamped.view().enable_extra_guardrails, Some(false));
    assert_eq!(stamped.view().prefer_suspend_clock_for_duration, None);
    // All fields of the source in their order, but the one that was replaced.
    let kept: Vec<u8> = Fields::new(&source)
        .map(Result::unwrap)
        .filter(|field| field.number != 2)
        .flat_map(|field| field.bytes.to_vec())
        .collect();
    assert_eq!(stamped.bytes()[..kept.len()], kept);
    assert_eq!(stamped.stamped(&FIELDS).unwrap().bytes(), stamped.bytes(), "stamping is idempotent");
}

#[test]
fn suspend_clock_is_written_only_if_true() {
    let config = DataSourceConfig::from_binary(Vec::new()).unwrap();
    let fields = ServiceFields { prefer_suspend_clock_for_duration: true, ..FIELDS };
    let stamped = config.stamped(&fields).unwrap();
    assert!(stamped.view().prefer_suspend_clock_for_duration());
}

#[test]
fn an_entry_without_config_has_an_empty_one_and_parts_are_merged() {
    let parts = [message(1, &message(1, b"a")), message(1, &[2 << 3, 9])].concat();
    let bytes = [message(2, &[]), message(2, &parts)].concat();
    let sources = TraceConfig::from_binary(bytes).unwrap().data_sources().unwrap();
    assert_eq!(sources[0].bytes(), b"");
    assert_eq!(sources[1].name(), "a");
    assert_eq!(sources[1].view().target_buffer(), 9);
}

#[test]
fn other_filters_leave_the_rest_alone() {
    let (bytes, source) = strange_config();
    let config = TraceConfig::parse(&bytes).unwrap();
    let name = config.data_sources().unwrap()[0].name().to_owned();
    let filtered = |name: &str, filters: &[&str]| protos::trace_config::DataSource {
        config: Some(protos::DataSourceConfig { name: Some(name.to_owned()), ..Default::default() }),
        producer_name_filter: filters.iter().map(|&filter| filter.to_owned()).collect(),
        ..Default::default()
    };
    let other = |data_sources| {
        TraceConfig::from(protos::TraceConfig { data_sources, duration_ms: Some(1), ..Default::default() })
    };
    let sources = vec![filtered("another", &["c"]), filtered(&name, &["a", "b"]), filtered(&name, &["d"])];
    let changed = config.with_filters_of(&other(sources)).unwrap();
    let entry = &changed.view().data_sources[0];
    assert_eq!(entry.producer_name_filter, ["a", "b"]);
    assert_eq!(changed.view().duration_ms, config.view().duration_ms);
    assert_eq!(changed.data_sources().unwrap()[0].bytes(), source);
    let unknown = Fields::new(changed.bytes()).filter(|field| field.unwrap().number == 9999);
    assert_eq!(unknown.count(), 2);
    let without = config.with_filters_of(&other(Vec::new())).unwrap();
    assert_eq!(without.view(), config.view());
}

#[test]
fn rewritten_fields() {
    let (bytes, _) = strange_config();
    let config = TraceConfig::parse(&bytes).unwrap();
    let changed = config.rewritten(&Rewrite::new().set_varint(3, 77)).unwrap();
    assert_eq!(changed.view().duration_ms(), 77);
    assert_eq!(changed.bytes().len(), bytes.len());
    // Field 1 is a message: a config with an integer there is refused, whoever wrote it.
    assert!(config.rewritten(&Rewrite::new().set_varint(1, 1)).is_err());
}

#[test]
fn binary_errors_have_a_place() {
    // duration_ms, then a buffer of 5 bytes of which 2 are there.
    let bytes = [3 << 3, 1, 0x0a, 5, 8, 1];
    let Err(ConfigError::Binary(error)) = TraceConfig::parse(&bytes) else {
        panic!("a cut config was taken")
    };
    assert_eq!(error.offset_bytes, 2);
    // A data source whose name is no UTF-8, in the second field.
    let bad = message(2, &message(1, &message(1, b"\xff\xfe")));
    let bytes = [&[3 << 3, 1][..], &bad].concat();
    let Err(ConfigError::Binary(error)) = TraceConfig::parse(&bytes) else {
        panic!("a name that is no text was taken")
    };
    assert_eq!(error.offset_bytes, 2);
    assert!(error.to_string().contains("name"), "{error}");
}

/// Found by fuzzing: `prost` takes groups, which nothing else here can take apart.
#[test]
fn groups_are_refused_at_every_level_that_is_taken_apart() {
    let group = [15 << 3 | 3, 15 << 3 | 4];
    let entry = message(2, &group);
    let source = message(2, &message(1, &group));
    for bytes in [&group[..], &entry, &source] {
        assert!(matches!(TraceConfig::from_binary(bytes.to_vec()), Err(ConfigError::Binary(_))), "{bytes:?}");
    }
    assert!(DataSourceConfig::from_binary(group.to_vec()).is_err());
}

proptest! {
    /// Whatever can be read comes out of every way through as it went in; nothing panics.
    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        if let Ok(config) = TraceConfig::from_binary(bytes.clone()) {
            prop_assert_eq!(config.bytes(), &bytes[..]);
            let _ = config.to_text();
            for source in config.data_sources().unwrap() {
                source.stamped(&FIELDS).unwrap();
            }
        }
        let _ = TraceConfig::parse(&bytes);
    }

    /// Unknown fields survive stamping wherever they lie.
    #[test]
    fn unknown_fields_survive(
        numbers in proptest::collection::vec(2000_u32..1 << 29, 0..20),
        value in any::<u64>(),
    ) {
        let mut bytes = protos::DataSourceConfig {
            name: Some("x".to_owned()),
            target_buffer: Some(1),
            ..Default::default()
        }
        .encode_to_vec();
        for number in &numbers {
            prost::encoding::uint64::encode(*number, &value, &mut bytes);
        }
        let stamped = DataSourceConfig::from_binary(bytes).unwrap().stamped(&FIELDS).unwrap();
        let found: Vec<u32> = Fields::new(stamped.bytes())
            .map(|field| field.unwrap().number)
            .filter(|number| *number >= 2000)
            .collect();
        prop_assert_eq!(found, numbers);
    }
}
