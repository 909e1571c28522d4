//! Filters of strings: rules with patterns, of which the first that matches decides.
//!
//! Patterns are applied to bytes: what producers write need not be UTF-8. A byte beyond ASCII is
//! one character, in patterns too.

use std::borrow::Cow;

use regex_lite::{CaptureLocations, Regex};
use watershed_wire::protos;
use watershed_wire::protos::trace_config::TraceFilter as Config;
use watershed_wire::protos::trace_config::trace_filter::{StringFilterPolicy, StringFilterRule};

use crate::filter::FilterError;
use crate::limits::STRING_FILTERS_MAX;

/// What redacted parts begin with; the rest is dashes.
const REDACTED: &[u8] = b"P60REDACTED";

#[derive(Clone, Debug)]
pub(super) struct Strings {
    rules: Vec<Rule>,
}

#[derive(Clone, Debug)]
struct Rule {
    name: String,
    action: Action,
    /// For strings of atrace only: what their payload must begin with.
    atrace_prefix: Option<Vec<u8>>,
    pattern: Regex,
    semantic_types: Vec<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Action {
    /// If all of the string matches, the groups are redacted.
    Redact,
    /// If all of the string matches, it stays as it is.
    Keep,
    /// Wherever a part matches, its groups are redacted.
    RedactEach,
}

impl Strings {
    pub(super) fn load(config: &Config) -> Result<Strings, FilterError> {
        let chains = [&config.string_filter_chain, &config.string_filter_chain_v54];
        let [base, newer] = chains.map(|chain| chain.as_ref().map_or(&[][..], |chain| &chain.rules));
        let count = base.len() + newer.len();
        if count > STRING_FILTERS_MAX {
            return Err(FilterError::TooManyStringFilters { count });
        }
        let mut rules: Vec<Rule> = Vec::with_capacity(count);
        for (index, rule) in base.iter().chain(newer).enumerate() {
            let rule = Rule::load(index, rule)?;
            // A newer rule takes the place of that with its name.
            let same = rules.iter_mut().find(|other| !rule.name.is_empty() && other.name == rule.name);
            match same {
                Some(other) => *other = rule,
                None => rules.push(rule),
            }
        }
        Ok(Strings { rules })
    }

    /// Replaces parts of the string in place, as the first rule that matches says.
    pub(super) fn redact(&self, string: &mut [u8], semantic_type: u32) {
        let mut text = None;
        for rule in &self.rules {
            if !rule.is_for(string, semantic_type) {
                continue;
            }
            let text = text.get_or_insert_with(|| Text::of(string));
            if rule.apply(text, string) {
                return;
            }
        }
    }
}

/// A string as patterns take it.
struct Text {
    chars: String,
    /// For each byte of `chars` its place in the string; empty where they are the same.
    places: Vec<usize>,
}

impl Text {
    fn of(string: &[u8]) -> Text {
        let chars = one_char_a_byte(string).into_owned();
        let mut places = Vec::new();
        if !chars.is_ascii() {
            let widths = chars.chars().map(char::len_utf8).enumerate();
            places = widths.flat_map(|(place, width)| std::iter::repeat_n(place, width)).collect();
            places.push(string.len());
        }
        Text { chars, places }
    }

    fn place(&self, at: usize) -> usize {
        self.places.get(at).copied().unwrap_or(at)
    }
}

impl Rule {
    fn load(index: usize, rule: &StringFilterRule) -> Result<Rule, FilterError> {
        use StringFilterPolicy as Policy;
        let unknown = || FilterError::Policy { index, policy: rule.policy.unwrap_or_default() };
        let policy = Policy::try_from(rule.policy.unwrap_or_default()).map_err(|_| unknown())?;
        let (action, is_atrace) = match policy {
            Policy::SfpUnspecified => return Err(unknown()),
            Policy::SfpMatchRedactGroups => (Action::Redact, false),
            Policy::SfpAtraceMatchRedactGroups => (Action::Redact, true),
            Policy::SfpMatchBreak => (Action::Keep, false),
            Policy::SfpAtraceMatchBreak => (Action::Keep, true),
            Policy::SfpAtraceRepeatedSearchRedactGroups => (Action::RedactEach, true),
        };
        let pattern = one_char_a_byte(rule.regex_pattern().as_bytes());
        let pattern = match action {
            Action::Redact | Action::Keep => format!("^(?:{pattern})$"),
            Action::RedactEach => pattern.into_owned(),
        };
        let pattern = Regex::new(&pattern).map_err(|error| FilterError::Pattern {
            index,
            pattern: rule.regex_pattern().to_owned(),
            reason: error.to_string(),
        })?;
        let listed: Vec<u32> = rule.semantic_type.iter().map(|number| number.cast_unsigned()).collect();
        let unspecified = protos::SemanticType::Unspecified as u32;
        Ok(Rule {
            name: rule.name().to_owned(),
            action,
            atrace_prefix: is_atrace.then(|| rule.atrace_payload_starts_with().as_bytes().to_vec()),
            pattern,
            semantic_types: if listed.is_empty() { vec![unspecified] } else { listed },
        })
    }

    fn is_for(&self, string: &[u8], semantic_type: u32) -> bool {
        let has_prefix =
            |prefix: &Vec<u8>| atrace_payload(string).is_some_and(|payload| payload.starts_with(prefix));
        self.semantic_types.contains(&semantic_type) && self.atrace_prefix.as_ref().is_none_or(has_prefix)
    }

    /// Whether it decides what becomes of the string.
    fn apply(&self, text: &Text, string: &mut [u8]) -> bool {
        if self.action == Action::Keep {
            return self.pattern.is_match(&text.chars);
        }
        let mut groups = self.pattern.capture_locations();
        let mut from = 0;
        let mut has_matched = false;
        while let Some(found) = self.pattern.captures_read_at(&mut groups, &text.chars, from) {
            has_matched = true;
            redact_groups(text, &groups, string);
            // An empty match is passed over, or it would be found for ever.
            let next = text.chars[found.end()..].chars().next().map_or(1, char::len_utf8);
            from = if found.is_empty() { found.end() + next } else { found.end() };
            if self.action == Action::Redact || from > text.chars.len() {
                break;
            }
        }
        has_matched
    }
}

/// Overwrites what the groups of a match have found. Their length stays.
fn redact_groups(text: &Text, groups: &CaptureLocations, string: &mut [u8]) {
    for (begin, end) in (1..groups.len()).filter_map(|group| groups.get(group)) {
        for (at, byte) in string[text.place(begin)..text.place(end)].iter_mut().enumerate() {
            *byte = REDACTED.get(at).copied().unwrap_or(b'-');
        }
    }
}

/// The bytes as characters of the same numbers: ASCII stays what it is.
fn one_char_a_byte(bytes: &[u8]) -> Cow<'_, str> {
    match std::str::from_utf8(bytes) {
        Ok(text) if text.is_ascii() => Cow::Borrowed(text),
        _ => bytes.iter().map(|byte| char::from(*byte)).collect::<String>().into(),
    }
}

/// What follows the second bar of a string as atrace writes it: `B|1024|name`. Strings that begin
/// with `E` have none.
fn atrace_payload(string: &[u8]) -> Option<&[u8]> {
    let behind_kind = string.get(2..).filter(|_| string[0] != b'E')?;
    let bar = behind_kind.iter().position(|byte| *byte == b'|')?;
    Some(&behind_kind[bar + 1..])
}
