//! Reading callgrind's output: the total, and what each function took itself.

use std::collections::BTreeMap;

/// The instructions of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// All of them.
    pub total: u64,
    /// By function, callees not included. The sum is `total`.
    pub own: BTreeMap<String, u64>,
}

/// Reads the text of a `callgrind.*.out` file whose first event is the instruction count and whose names are not
/// compressed (`--compress-strings=no`, which iai-callgrind sets).
///
/// # Errors
/// What is missing or not understood.
pub fn parse(text: &str) -> Result<Profile, String> {
    let events = text.lines().find_map(|line| line.strip_prefix("events: ")).ok_or("no line of events")?;
    if events.split(' ').next() != Some("Ir") {
        return Err(format!("the first event is not the instruction count: {events}"));
    }
    let mut own: BTreeMap<String, u64> = BTreeMap::new();
    let mut function = String::new();
    // The line after "calls=" is the callee's cost, not this function's own.
    let mut is_call = false;
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("fn=") {
            if name.starts_with('(') && name[1..].starts_with(|c: char| c.is_ascii_digit()) {
                return Err("names are compressed".into());
            }
            function = without_hash(name).to_owned();
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
            let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok());
            let cost = cost.ok_or_else(|| format!("not a line of costs: {line}"))?;
            if !std::mem::take(&mut is_call) {
                *own.entry(function.clone()).or_default() += cost;
            }
        }
    }
    let sum = own.values().sum();
    // A partial sum would hide what grew.
    match text.lines().find_map(|line| line.strip_prefix("totals: ").or(line.strip_prefix("summary: "))) {
        Some(line) if line.split(' ').next().and_then(|total| total.parse().ok()) == Some(sum) => {}
        other => return Err(format!("the functions' sum is {sum}, the file says {other:?}")),
    }
    Ok(Profile { total: sum, own })
}

/// A symbol without the hash that changes with each version of the compiler.
fn without_hash(name: &str) -> &str {
    match name.rsplit_once("::h") {
        Some((plain, hash)) if hash.len() == 16 && hash.bytes().all(|b| b.is_ascii_hexdigit()) => plain,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# callgrind format\nevents: Ir Dr\nsummary: 112 9\n\nob=x\nfl=a.rs\n\
        fn=engine::commit::h0123456789abcdef\n10 7 1\n11 5 1\ncfn=memcpy\ncalls=2 0\n11 100 7\n\n\
        fl=b.c\nfn=memcpy\n3 100 7\n\n";

    #[test]
    fn a_callees_cost_counts_once() {
        let profile = parse(TEXT).unwrap();
        assert_eq!(profile.total, 112);
        let expected = [("engine::commit", 12), ("memcpy", 100)].map(|(name, cost)| (name.to_owned(), cost));
        assert_eq!(profile.own, expected.into());
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        assert!(parse("").is_err());
        assert!(parse(&TEXT.replace("events: Ir", "events: Dr")).is_err());
        assert!(parse(&TEXT.replace("summary: 112", "summary: 113")).is_err(), "a sum that does not add up");
        assert!(parse(&TEXT.replace("fn=memcpy", "fn=(12) memcpy")).is_err());
    }
}
