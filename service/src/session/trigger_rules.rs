//! What a config says about triggers. Source of the checks and their order: spec, service 4.6.

use std::collections::BTreeMap;

use regex_lite::Regex;
use watershed_wire::protos::TraceConfig;
use watershed_wire::protos::trace_config::TriggerConfig;
use watershed_wire::protos::trace_config::trigger_config::TriggerMode as Wanted;

use crate::error::EnableError;
use crate::limits;

/// What a trigger does to a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum TriggerMode {
    /// Nothing.
    #[default]
    None,
    /// It starts.
    Start,
    /// It stops.
    Stop,
    /// Its consumer is told to clone it.
    Clone,
}

/// The triggers that a session takes, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct TriggerRules {
    pub(crate) mode: TriggerMode,
    /// How long the session waits for the first.
    pub(crate) timeout_ms: u32,
    by_name: BTreeMap<String, TriggerRule>,
}

#[derive(Clone, Debug)]
pub(crate) struct TriggerRule {
    /// Of the producers that may send it; `None`: any.
    producers: Option<Regex>,
    pub(super) stop_delay_ms: u32,
    /// How often it may come within 24 hours; 0: as often as it likes.
    pub(super) max_per_24_h: u32,
    pub(super) skip_probability: f64,
}

impl TriggerRules {
    /// Whether the config lists triggers that nothing is to be done with: what it means by that
    /// cannot be told, and they are ignored.
    pub(super) fn are_idle_in(message: &TraceConfig) -> bool {
        let of = |config: &TriggerConfig| config.trigger_mode() == Wanted::Unspecified;
        message.trigger_config.as_ref().is_some_and(|config| of(config) && !config.triggers.is_empty())
    }

    /// The rules of a config that has passed [`check`].
    pub(super) fn of(message: &TraceConfig) -> Result<TriggerRules, EnableError> {
        let mode = mode(message)?;
        let config = message.trigger_config.as_ref().filter(|_| mode != TriggerMode::None);
        let Some(config) = config else { return Ok(TriggerRules::default()) };
        let mut by_name = BTreeMap::new();
        for trigger in &config.triggers {
            let pattern = trigger.producer_name_regex();
            let producers = match pattern {
                "" => None,
                _ => Some(Regex::new(&format!("^(?:{pattern})$")).map_err(|error| {
                    EnableError::BadTriggerPattern {
                        trigger: trigger.name().to_owned(),
                        pattern: pattern.to_owned(),
                        reason: error.to_string(),
                    }
                })?),
            };
            let rule = TriggerRule {
                producers,
                stop_delay_ms: trigger.stop_delay_ms(),
                max_per_24_h: trigger.max_per_24_h(),
                skip_probability: trigger.skip_probability(),
            };
            by_name.insert(trigger.name().to_owned(), rule);
        }
        Ok(TriggerRules { mode, timeout_ms: config.trigger_timeout_ms(), by_name })
    }

    pub(super) fn get(&self, name: &str) -> Option<&TriggerRule> {
        self.by_name.get(name)
    }
}

impl TriggerRule {
    pub(super) fn takes_producer(&self, name: &str) -> bool {
        self.producers.as_ref().is_none_or(|pattern| pattern.is_match(name))
    }
}

/// `None` for a config without triggers, and for one that does not say what they are for.
fn mode(message: &TraceConfig) -> Result<TriggerMode, EnableError> {
    let Some(config) = &message.trigger_config else { return Ok(TriggerMode::None) };
    let number = config.trigger_mode.unwrap_or_default();
    let wanted = Wanted::try_from(number).map_err(|_| EnableError::TriggerMode { number })?;
    match (wanted, config.use_clone_snapshot_if_available()) {
        (Wanted::StopTracing, true) | (Wanted::CloneSnapshot, false) => Ok(TriggerMode::Clone),
        (Wanted::StopTracing, false) => Ok(TriggerMode::Stop),
        (Wanted::StartTracing, false) => Ok(TriggerMode::Start),
        (Wanted::Unspecified, false) => Ok(TriggerMode::None),
        (_, true) => Err(EnableError::CloneSnapshotWithoutStop),
    }
}

/// What can be said of the triggers before guardrails are looked at.
pub(super) fn check(message: &TraceConfig, max_ms: u32) -> Result<(), EnableError> {
    let mode = mode(message)?;
    let Some(config) = message.trigger_config.as_ref().filter(|_| mode != TriggerMode::None) else {
        return Ok(());
    };
    let timeout_ms = config.trigger_timeout_ms();
    if !(1..=max_ms).contains(&timeout_ms) {
        return Err(EnableError::TriggerTimeout { timeout_ms, max_ms });
    }
    if message.duration_ms() != 0 {
        return Err(EnableError::TriggerWithDuration);
    }
    if mode != TriggerMode::Start && message.write_into_file() {
        return Err(EnableError::TriggerWithFile);
    }
    let (count, max) = (config.triggers.len(), limits::TRIGGERS_PER_CONFIG_MAX);
    if count > max {
        return Err(EnableError::ListTooLong { field: "triggers", count, max });
    }
    let mut names = std::collections::BTreeSet::new();
    match config.triggers.iter().find(|trigger| !names.insert(trigger.name())) {
        Some(again) => Err(EnableError::DuplicateTrigger { name: again.name().to_owned() }),
        None => Ok(()),
    }
}
