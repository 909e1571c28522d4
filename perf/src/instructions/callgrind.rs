//! Reads callgrind's output: the own cost of each function, and the cost of its calls.
//!
//! ```text
//!   ob=/tmp/x/instructions        the object that the functions below lie in
//!   fn=engine::commit             the function that the costs below belong to
//!   0x10a2b3 45 7                 an instruction's address, its line, its cost
//!   cfn=memcpy                    the function that is called next ...
//!   calls=2 0x4010 0              ... how often, and
//!   0x10a2b8 46 100               from where, and what that took, callees of callees included
//! ```

use std::collections::BTreeMap;

/// The instructions of one run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Profile {
    /// All of them.
    pub total: u64,
    /// By function, callees not included. The sum is `total`.
    pub own: BTreeMap<String, u64>,
}

/// One function of a program, with its costs by address. Where the file has no addresses (without
/// `--dump-instr=yes`), all of them are 0.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Function {
    /// The file that it lies in: the program, or a library.
    pub object: String,
    /// Its own cost, by address.
    pub own: BTreeMap<u64, u64>,
    /// The cost of its calls, by address and name of the called function, callees of callees
    /// included.
    pub calls: BTreeMap<(u64, String), u64>,
}

/// Functions by their full names, hashes included.
pub type Functions = BTreeMap<String, Function>;

/// Sums up the text of a `callgrind.*.out` file.
///
/// # Errors
/// As [`functions`].
pub fn parse(text: &str) -> Result<Profile, String> {
    let mut own: BTreeMap<String, u64> = BTreeMap::new();
    for (name, function) in functions(text)? {
        *own.entry(without_hash(&name).to_owned()).or_default() += function.own.values().sum::<u64>();
    }
    own.retain(|_, cost| *cost > 0);
    Ok(Profile { total: own.values().sum(), own })
}

/// Reads the text of a `callgrind.*.out` file whose first event is the instruction count and in
/// which neither names nor positions are compressed (`--compress-strings=no --compress-pos=no`,
/// which iai-callgrind sets).
///
/// # Errors
/// What is missing or not understood.
pub fn functions(text: &str) -> Result<Functions, String> {
    let header = |name: &str| text.lines().find_map(|line| line.strip_prefix(name));
    let events = header("events: ").ok_or("no line of events")?;
    if events.split(' ').next() != Some("Ir") {
        return Err(format!("the first event is not the instruction count: {events}"));
    }
    let positions = header("positions: ").unwrap_or("line");
    let has_addresses = positions.split(' ').any(|position| position == "instr");
    let columns = positions.split(' ').count();

    let mut functions = Functions::new();
    let (mut object, mut name, mut callee) = (String::new(), String::new(), String::new());
    // The line after "calls=" is the callee's cost, not this function's own.
    let mut is_call = false;
    for line in text.lines() {
        if let Some(value) = line.strip_prefix("ob=") {
            object = value.to_owned();
        } else if let Some(value) = line.strip_prefix("fn=") {
            name = plain(value)?.to_owned();
            functions.entry(name.clone()).or_default().object.clone_from(&object);
        } else if let Some(value) = line.strip_prefix("cfn=") {
            callee = plain(value)?.to_owned();
        } else if line.starts_with("calls=") {
            is_call = true;
        } else if line.starts_with(|c: char| c.is_ascii_digit() || matches!(c, '+' | '-' | '*')) {
            let costs = costs(line, has_addresses, columns);
            let (address, cost) = costs.ok_or_else(|| format!("not a line of costs: {line}"))?;
            let function = functions.get_mut(&name).ok_or("costs before the first function")?;
            if std::mem::take(&mut is_call) {
                *function.calls.entry((address, callee.clone())).or_default() += cost;
            } else {
                *function.own.entry(address).or_default() += cost;
            }
        }
    }
    let sum: u64 = functions.values().flat_map(|function| function.own.values()).sum();
    // A partial sum would hide what grew.
    match header("totals: ").or(header("summary: ")) {
        Some(line) if line.split(' ').next().and_then(|total| total.parse().ok()) == Some(sum) => {
            Ok(functions)
        }
        other => Err(format!("the functions' sum is {sum}, the file says {other:?}")),
    }
}

/// A name that is written out.
fn plain(name: &str) -> Result<&str, String> {
    let compressed = name.starts_with('(') && name[1..].starts_with(|c: char| c.is_ascii_digit());
    if compressed { Err("names are compressed".into()) } else { Ok(name) }
}

/// The address of a line of costs, 0 where there are no addresses, and its first cost, 0 if it is
/// missing.
fn costs(line: &str, has_addresses: bool, columns: usize) -> Option<(u64, u64)> {
    let mut words = line.split(' ');
    let first = words.next()?;
    let address = if has_addresses { u64::from_str_radix(first.strip_prefix("0x")?, 16).ok()? } else { 0 };
    let cost = words.nth(columns - 1).map_or(Some(0), |cost| cost.parse().ok())?;
    Some((address, cost))
}

/// A symbol without the hash that changes with each version of the compiler.
pub fn without_hash(name: &str) -> &str {
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
    fn addresses_and_calls_are_kept() {
        let text = "positions: instr line\nevents: Ir\nsummary: 60\n\nob=/x/program\nfn=a\n0x10 1 7\n0x10 1 1\n\
            0x14 2 2\ncob=/x/libc\ncfn=memcpy\ncalls=1 0x99 0\n0x14 2 50\n\nob=/x/libc\nfn=memcpy\n0x99 0 50\n";
        let functions = functions(text).unwrap();
        assert_eq!(functions["a"].own, [(0x10, 8), (0x14, 2)].into());
        assert_eq!(functions["a"].calls, [((0x14, "memcpy".to_owned()), 50)].into());
        assert_eq!(
            (functions["a"].object.as_str(), functions["memcpy"].object.as_str()),
            ("/x/program", "/x/libc")
        );
        assert_eq!(parse(text).unwrap().total, 60);
    }

    #[test]
    fn what_is_not_understood_is_an_error() {
        assert!(parse("").is_err());
        assert!(parse(&TEXT.replace("events: Ir", "events: Dr")).is_err());
        assert!(parse(&TEXT.replace("summary: 112", "summary: 113")).is_err(), "a sum that does not add up");
        assert!(parse(&TEXT.replace("fn=memcpy", "fn=(12) memcpy")).is_err());
        let relative =
            TEXT.replace("events:", "positions: instr line\nevents:").replace("\n10 7", "\n+3 10 7");
        assert!(parse(&relative).is_err(), "relative addresses");
    }
}
