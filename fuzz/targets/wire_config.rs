//! Configs of either form: no panic, bytes are kept, text that we write reads back.
#![no_main]

use libfuzzer_sys::fuzz_target;
use watershed_wire::config::{ServiceFields, TraceConfig};
use watershed_wire::protos::data_source_config::SessionInitiator;

const FIELDS: ServiceFields = ServiceFields {
    target_buffer: 1,
    trace_duration_ms: 2,
    tracing_session_id: 3,
    enable_extra_guardrails: true,
    stop_timeout_ms: 4,
    session_initiator: SessionInitiator::Unspecified,
    prefer_suspend_clock_for_duration: true,
};

fn check(config: &TraceConfig) {
    let sources = config.data_sources().expect("the config was read");
    assert_eq!(sources.len(), config.view().data_sources.len());
    for (source, entry) in sources.iter().zip(&config.view().data_sources) {
        assert_eq!(Some(source.name()), entry.config.as_ref().map(|config| config.name()).or(Some("")));
        let stamped = source.stamped(&FIELDS).expect("the source was read");
        assert_eq!(stamped.name(), source.name());
        assert_eq!(stamped.stamped(&FIELDS).expect("stamped twice").bytes(), stamped.bytes());
    }
}

fuzz_target!(|input: &[u8]| {
    if let Ok(config) = TraceConfig::from_binary(input.to_vec()) {
        assert_eq!(config.bytes(), input);
        check(&config);
        let _ = config.to_text();
    }
    let Ok(text) = std::str::from_utf8(input) else {
        return;
    };
    if let Ok(config) = TraceConfig::from_text(text) {
        check(&config);
        let again = TraceConfig::from_text(&config.to_text()).expect("what we write we read");
        assert_eq!(again.bytes(), config.bytes());
    }
});
