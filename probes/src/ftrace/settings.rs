//! What a `FtraceConfig` asks for.

use watershed_wire::protos::FtraceConfig;
use watershed_wire::protos::ftrace_config::tracefs_option::State;

use super::{FTRACE_NAME, events};
use crate::Notices;

/// Memory a CPU where the config does not say how much: 8 MiB on machines with at least 7 GiB.
const BUFFER_SIZE_KB: u32 = 2 << 10;
const BUFFER_SIZE_LARGE_KB: u32 = 8 << 10;
const LARGE_MACHINE_BYTES: u64 = 7 << 30;
/// Period where the config has none, or one outside of 1 ms to a minute.
const DRAIN_PERIOD_MS: u32 = 100;
const DRAIN_PERIOD_MS_MAX: u32 = 60_000;
/// How full a CPU's memory may be before it is read earlier than at the next period. Half leaves a
/// writer of any speed as much time as it needed for the first half.
const DRAIN_PERCENT: u32 = 50;

/// The config, with defaults and limits applied.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Settings {
    pub(super) buffer_size_kb: u32,
    pub(super) drain_period_ms: u32,
    pub(super) drain_percent: u32,
    pub(super) compact: bool,
    pub(super) symbolize: bool,
    /// Events that the schema does not have describe themselves.
    pub(super) describe_generic: bool,
    pub(super) generic: bool,
    pub(super) mono_raw: bool,
    pub(super) options: Vec<(String, bool)>,
    pub(super) cpumask: Option<String>,
}

impl Settings {
    pub(super) fn new(config: &FtraceConfig, notices: &Notices) -> Self {
        for (field, is_set) in unsupported(config) {
            if is_set {
                notices.add(FTRACE_NAME, format!("{field} has no effect here"));
            }
        }
        let page_kb = (rustix::param::page_size() as u32 >> 10).max(1);
        let default_kb = default_buffer_size_kb();
        let buffer_size_kb = match (config.buffer_size_kb(), config.buffer_size_lower_bound()) {
            (0, _) => default_kb,
            (kb, true) => kb.max(default_kb),
            (kb, false) => kb,
        };
        Self {
            buffer_size_kb: (buffer_size_kb / page_kb).max(1) * page_kb,
            drain_period_ms: match config.drain_period_ms() {
                ms @ 1..=DRAIN_PERIOD_MS_MAX => ms,
                _ => DRAIN_PERIOD_MS,
            },
            drain_percent: match config.drain_buffer_percent() {
                percent @ 1..=100 => percent,
                _ => DRAIN_PERCENT,
            },
            compact: config.compact_sched.as_ref().and_then(|c| c.enabled).unwrap_or(true),
            symbolize: config.symbolize_ksyms(),
            describe_generic: config.denser_generic_event_encoding.unwrap_or(true),
            generic: !config.disable_generic_events(),
            mono_raw: config.use_monotonic_raw_clock(),
            options: config.tracefs_options.iter().filter_map(option).collect(),
            cpumask: config.tracing_cpumask.clone(),
        }
    }
}

fn option(option: &watershed_wire::protos::ftrace_config::TracefsOption) -> Option<(String, bool)> {
    match option.state() {
        State::Unknown => None,
        state => Some((option.name().to_owned(), state == State::Enabled)),
    }
}

/// Fields that ask for what is not here.
fn unsupported(config: &FtraceConfig) -> [(&'static str, bool); 8] {
    [
        ("atrace_categories", !config.atrace_categories.is_empty()),
        ("atrace_apps", !config.atrace_apps.is_empty()),
        ("throttle_rss_stat", config.throttle_rss_stat()),
        ("syscall_events", !config.syscall_events.is_empty()),
        ("enable_function_graph", config.enable_function_graph()),
        ("kprobe_events", !config.kprobe_events.is_empty()),
        ("preserve_ftrace_buffer", config.preserve_ftrace_buffer()),
        ("instance_name", config.instance_name.is_some()),
    ]
}

/// What is wrong with a config, for the user.
pub(super) fn check(config: &FtraceConfig) -> Result<(), String> {
    config.ftrace_events.iter().try_for_each(|name| events::check(name))?;
    for option in &config.tracefs_options {
        let is_name = |b: u8| b.is_ascii_alphanumeric() || b == b'_' || b == b'-';
        if option.name().is_empty() || !option.name().bytes().all(is_name) {
            return Err(format!("tracefs_options: \"{}\" is no name", option.name()));
        }
    }
    let is_mask = |mask: &str| mask.bytes().all(|b| b.is_ascii_hexdigit() || b == b',') && !mask.is_empty();
    match &config.tracing_cpumask {
        Some(mask) if !is_mask(mask) => Err(format!("tracing_cpumask: \"{mask}\" is no hexadecimal mask")),
        _ => Ok(()),
    }
}

fn default_buffer_size_kb() -> u32 {
    let info = rustix::system::sysinfo();
    let bytes = info.totalram as u64 * u64::from(info.mem_unit);
    if bytes >= LARGE_MACHINE_BYTES { BUFFER_SIZE_LARGE_KB } else { BUFFER_SIZE_KB }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watershed_wire::protos::ftrace_config::TracefsOption;

    fn settings(config: FtraceConfig) -> Settings {
        Settings::new(&config, &Notices::new())
    }

    #[test]
    fn sizes_and_periods() {
        let default = settings(FtraceConfig::default());
        assert!(matches!(default.buffer_size_kb, BUFFER_SIZE_KB | BUFFER_SIZE_LARGE_KB));
        assert_eq!((default.drain_period_ms, default.drain_percent), (100, 50));
        assert!(default.compact && default.generic && default.describe_generic && !default.mono_raw);
        let kb = |kb, lower| {
            settings(FtraceConfig {
                buffer_size_kb: Some(kb),
                buffer_size_lower_bound: Some(lower),
                ..Default::default()
            })
            .buffer_size_kb
        };
        let page_kb = rustix::param::page_size() as u32 >> 10;
        assert_eq!([kb(1, false), kb(page_kb * 3 + 1, false)], [page_kb, page_kb * 3]);
        assert_eq!(kb(1, true), default.buffer_size_kb);
        for (ms, expected) in [(0, 100), (1, 1), (60_000, 60_000), (60_001, 100)] {
            let config = FtraceConfig { drain_period_ms: Some(ms), ..Default::default() };
            assert_eq!(settings(config).drain_period_ms, expected);
        }
    }

    #[test]
    fn what_is_not_here_is_said() {
        let notices = Notices::new();
        let config = FtraceConfig {
            enable_function_graph: Some(true),
            atrace_categories: vec!["gfx".into()],
            ..Default::default()
        };
        Settings::new(&config, &notices);
        let said: Vec<_> = notices.take().iter().map(ToString::to_string).collect();
        assert_eq!(
            said,
            [
                "linux.ftrace: atrace_categories has no effect here",
                "linux.ftrace: enable_function_graph has no effect here"
            ]
        );
    }

    #[test]
    fn wrong_configs() {
        assert_eq!(check(&FtraceConfig::default()), Ok(()));
        let with_event = FtraceConfig { ftrace_events: vec!["a/b/c".into()], ..Default::default() };
        assert!(check(&with_event).unwrap_err().contains("a/b/c"));
        let option = TracefsOption { name: Some("../x".into()), state: None };
        assert!(check(&FtraceConfig { tracefs_options: vec![option], ..Default::default() }).is_err());
        for (mask, good) in [("f", true), ("ff,00000001", true), ("", false), ("0x1", false)] {
            let config = FtraceConfig { tracing_cpumask: Some(mask.into()), ..Default::default() };
            assert_eq!(check(&config).is_ok(), good, "{mask}");
        }
    }
}
