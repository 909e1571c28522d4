//! How often triggers may fire.

use std::collections::BTreeMap;

use watershed_service::SessionState;
use watershed_wire::protos::trace_config::TriggerConfig;

/// Within which `max_per_24_h` counts.
const DAY_NS: u64 = 24 * 3600 * 1_000_000_000;

/// When triggers of each name were taken, over all sessions.
#[derive(Debug, Default)]
pub(crate) struct TriggerTimes(BTreeMap<String, Vec<u64>>);

impl TriggerTimes {
    /// A producer announces one: the sessions, of all those given, that must take it.
    pub(crate) fn announce<'a, S>(
        &mut self,
        name: &str,
        producer_name: &str,
        now_ns: u64,
        sessions: impl Iterator<Item = (S, SessionState, &'a TriggerConfig)>,
    ) -> Vec<S> {
        let times = self.0.entry(name.to_owned()).or_default();
        let num_recent = times.iter().filter(|time_ns| now_ns - **time_ns < DAY_NS).count() as u64;
        let mut taken = Vec::new();
        for (session, state, config) in sessions {
            let Some(rule) = config.triggers.iter().find(|trigger| trigger.name() == name) else { continue };
            let is_open = !matches!(state, SessionState::Disabled | SessionState::Cloned);
            let pattern = rule.producer_name_regex();
            let is_too_often = rule.max_per_24_h() > 0 && num_recent >= u64::from(rule.max_per_24_h());
            if is_open
                && (pattern.is_empty() || pattern == producer_name)
                && rule.skip_probability() == 0.0
                && !is_too_often
            {
                taken.push(session);
            }
        }
        if !taken.is_empty() {
            times.push(now_ns);
        }
        taken
    }
}
