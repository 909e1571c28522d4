//! Which texts of `ftrace/print` are kept.

use watershed_wire::protos::ftrace_config;
use watershed_wire::protos::ftrace_config::print_filter::rule::Match;

use super::read;

/// Rules in order: the first that matches decides, and a text that none matches is kept.
#[derive(Debug, Default)]
pub(super) struct PrintFilter {
    rules: Vec<(Match, bool)>,
    /// Where the text begins in a record.
    text: usize,
}

impl PrintFilter {
    pub(super) fn new(config: &ftrace_config::PrintFilter, text: usize) -> Self {
        let rules = config.rules.iter();
        let rules = rules.filter_map(|rule| Some((rule.r#match.clone()?, rule.allow())));
        Self { rules: rules.collect(), text }
    }

    pub(super) fn allows(&self, record: &[u8]) -> bool {
        if self.rules.is_empty() {
            return true;
        }
        let text = record.get(self.text..).map_or(&[][..], read::until_nul);
        let decided = self.rules.iter().find(|(rule, _)| matches(rule, text));
        decided.is_none_or(|(_, allow)| *allow)
    }
}

fn matches(rule: &Match, text: &[u8]) -> bool {
    match rule {
        Match::Prefix(prefix) => text.starts_with(prefix.as_bytes()),
        // TYPE|DIGITS|PREFIX...
        Match::AtraceMsg(message) => {
            let rest = text.strip_prefix(message.r#type().as_bytes()).and_then(|t| t.strip_prefix(b"|"));
            rest.is_some_and(|rest| {
                let digits = rest.iter().take_while(|b| b.is_ascii_digit()).count();
                let rest = rest[digits..].strip_prefix(b"|");
                digits > 0 && rest.is_some_and(|rest| rest.starts_with(message.prefix().as_bytes()))
            })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use watershed_wire::protos::ftrace_config::print_filter::{Rule, rule::AtraceMessage};

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rule = |rule, allow| Rule { r#match: Some(rule), allow: Some(allow) };
        let atrace = AtraceMessage { r#type: Some("B".into()), prefix: Some("draw".into()) };
        let config = ftrace_config::PrintFilter {
            rules: vec![
                rule(Match::Prefix("keep".into()), true),
                rule(Match::AtraceMsg(atrace), true),
                rule(Match::Prefix("".into()), false),
            ],
        };
        let filter = PrintFilter::new(&config, 2);
        let allows = |text: &str| filter.allows(&[b"xx", text.as_bytes(), b"\0zz"].concat());
        for (text, expected) in [
            ("keep me", true),
            ("B|12|drawing", true),
            ("B|12|other", false),
            ("B||draw", false),
            ("B|1draw", false),
            ("other", false),
        ] {
            assert_eq!(allows(text), expected, "{text}");
        }
        assert!(PrintFilter::default().allows(b"x"));
    }
}
