//! Configs in text form: what is accepted, and where and how errors are told.

use watershed_wire::config::{ConfigError, TextError, TraceConfig};
use watershed_wire::protos::trace_config::buffer_config::FillPolicy;

const FULL: &str = include_str!("configs/full.txtpb");
const FULL_ECHO: &str = include_str!("configs/full.echo.txtpb");

#[test]
fn every_construct_of_the_format_is_read() {
    let config = TraceConfig::from_text(FULL).unwrap();
    let view = config.view();
    assert_eq!(view.buffers[0].size_kb(), 65536);
    assert_eq!(view.buffers[0].fill_policy(), FillPolicy::RingBuffer);
    assert_eq!(view.buffers[1].size_kb(), 4096);
    assert_eq!(view.buffers[1].fill_policy(), FillPolicy::Discard);
    let sys_stats = view.data_sources[0].config.as_ref().unwrap();
    assert_eq!(sys_stats.target_buffer_name(), "main");
    let sys_stats = sys_stats.sys_stats_config.as_ref().unwrap();
    assert_eq!(sys_stats.meminfo_counters, [1, 2]);
    assert_eq!(sys_stats.stat_counters, [1, 4]);
    let process_stats = view.data_sources[1].config.as_ref().unwrap();
    assert_eq!(process_stats.name(), "linux.process_stats");
    assert_eq!(view.data_sources[1].producer_name_filter, ["probes"]);
    assert_eq!(view.trace_uuid_msb(), -5);
}

#[test]
fn echo_is_golden_and_reads_back_to_the_same_bytes() {
    let config = TraceConfig::from_text(FULL).unwrap();
    assert_eq!(config.to_text(), FULL_ECHO);
    let again = TraceConfig::from_text(&config.to_text()).unwrap();
    assert_eq!(again.bytes(), config.bytes());
}

#[test]
fn empty_text_is_the_empty_config() {
    for text in ["", "\n", "# only a comment", "\u{feff}"] {
        let config = TraceConfig::from_text(text).unwrap();
        assert!(config.bytes().is_empty(), "{text:?}");
        assert_eq!(config.to_text(), "");
    }
}

/// Line, column and message of the error that a text gives.
#[track_caller]
fn error_of(text: &str) -> (usize, usize, String) {
    match TraceConfig::parse(text.as_bytes()) {
        Err(ConfigError::Text(TextError { position, message })) => (position.line, position.column, message),
        other => panic!("expected an error in the text, found {other:?}"),
    }
}

#[track_caller]
fn assert_error(text: &str, line: usize, column: usize, message: &str) {
    assert_eq!(error_of(text), (line, column, message.to_owned()));
}

#[test]
fn misspelt_field() {
    assert_error(
        "duration_ms: 5\n  bufers { size_kb: 4 }",
        2,
        3,
        "expected a field of TraceConfig, found 'bufers'; did you mean 'buffers'?",
    );
}

#[test]
fn columns_count_characters() {
    let (line, column, _) = error_of("unique_session_name: \"žluť\" oops: 1");
    assert_eq!((line, column), (1, 29));
}

#[test]
fn carriage_returns_are_white_space() {
    let (line, column, _) = error_of("duration_ms: 1\r\n oops: 1\r\n");
    assert_eq!((line, column), (2, 2));
}

#[test]
fn unknown_enum_value_lists_the_known_ones() {
    assert_error(
        "buffers { fill_policy: WRAP }",
        1,
        24,
        "expected a value of FillPolicy, found 'WRAP'; known are UNSPECIFIED, RING_BUFFER, DISCARD",
    );
}

#[test]
fn misspelt_value_of_a_long_enum() {
    assert_error(
        "data_sources { config { sys_stats_config {\nmeminfo_counters: MEMINFO_MEM_TOTL\n} } }",
        2,
        19,
        "expected a value of MeminfoCounters, found 'MEMINFO_MEM_TOTL'; did you mean 'MEMINFO_MEM_TOTAL'?",
    );
}

#[test]
fn number_out_of_range() {
    let (line, column, message) = error_of("buffers { size_kb: -1 }");
    assert_eq!((line, column), (1, 20));
    assert!(message.contains("-1 is out of range"), "{message}");
    assert!(message.contains("between 0 and 4294967295"), "{message}");
}

#[test]
fn wrong_type() {
    assert_error("duration_ms: \"10s\"", 1, 14, "expected an integer, but found '\"10s\"'");
}

#[test]
fn missing_brace_is_found_at_the_end() {
    let (line, column, message) = error_of("buffers {\n  size_kb: 4\n\n\n");
    assert_eq!((line, column), (2, 13));
    assert_eq!(message, "expected '}' or a field name, but reached end of input");
}

#[test]
fn field_given_twice() {
    let (line, _, message) = error_of("duration_ms: 1\nduration_ms: 2");
    assert_eq!(line, 2);
    assert_eq!(message, "'duration_ms' is already set");
}

/// What asks for data sources that only others have is read by name, and is in the bytes that they
/// get.
#[test]
fn sub_configs_of_others_are_read() {
    let text = r#"
        data_sources { config {
            name: "android.log"
            android_log_config { log_ids: LID_CRASH min_prio: PRIO_WARN filter_tags: "a" }
        } }
        data_sources { config {
            name: "linux.perf"
            perf_event_config {
                timebase { frequency: 99 counter: SW_CPU_CLOCK tracepoint { name: "sched/sched_switch" } }
                callstack_sampling { scope { target_cmdline: "x*" } kernel_frames: true }
            }
        } }
        data_sources { config { name: "android.statsd" statsd_tracing_config { push_atom_id: ATOM_BATTERY_LEVEL_CHANGED } } }
        data_sources { config { name: "org.chromium.trace_event" chrome_config { trace_config: "{}" } } }
    "#;
    let config = TraceConfig::from_text(text).unwrap();
    let echo = config.to_text();
    for line in
        ["log_ids: LID_CRASH", "counter: SW_CPU_CLOCK", "ATOM_BATTERY_LEVEL_CHANGED", "trace_config: \"{}\""]
    {
        assert!(echo.contains(line), "{line} in {echo}");
    }
    assert_eq!(TraceConfig::from_text(&echo).unwrap().bytes(), config.bytes());
    assert_error(
        "data_sources { config { android_log_config { min_prio: PRIO_LOUD } } }",
        1,
        56,
        "expected a value of AndroidLogPriority, found 'PRIO_LOUD'; did you mean 'PRIO_UNUSED'?",
    );
}

#[test]
fn sub_config_newer_than_the_schema() {
    assert_error(
        "data_sources { config { name: \"x\" quantum_flux_config { qubits: 3 } } }",
        1,
        35,
        "expected a field of DataSourceConfig, found 'quantum_flux_config'; if it is newer than this program, \
         give the config in binary form, which is passed through unchanged",
    );
}

#[test]
fn text_that_is_not_utf8() {
    let mut text = b"# caf\xe9\nduration_ms: 1".to_vec();
    let Err(ConfigError::Text(error)) = TraceConfig::parse(&text) else { panic!("Latin-1 was taken") };
    assert_eq!((error.position.line, error.position.column), (1, 6));
    text.retain(|byte| byte.is_ascii());
    TraceConfig::parse(&text).unwrap();
}

#[test]
fn nesting_is_bounded() {
    // Types that contain themselves can be reached by name, and the parser recurses.
    let bomb = "[a/perfetto.protos.VmInstruction]{".to_owned() + &"nested_instructions{".repeat(200_000);
    let (_, _, message) = error_of(&bomb);
    assert_eq!(message, "expected at most 64 nested messages, found one more");
    // Braces in strings and comments are not nesting.
    let braces = "{".repeat(100);
    let harmless = format!("# {braces}\nunique_session_name: \"\\\"{braces}\" # {braces}");
    assert_eq!(
        TraceConfig::from_text(&harmless).unwrap().view().unique_session_name(),
        format!("\"{braces}")
    );
}

#[test]
fn size_is_bounded() {
    let text = " ".repeat(watershed_wire::config::CONFIG_SIZE_BYTES_MAX + 1);
    assert!(matches!(TraceConfig::parse(text.as_bytes()), Err(ConfigError::TooLarge { .. })));
}
