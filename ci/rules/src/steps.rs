//! The table of a session's steps names functions and tests that there are.

/// The last step.
const LAST: u32 = 27;

/// Names in a cell: "path::function" in backquotes.
fn names(cell: &str) -> impl Iterator<Item = (&str, &str)> {
    cell.split('`').skip(1).step_by(2).filter_map(|name| name.rsplit_once("::"))
}

/// Whether the file has the function; where `is_test`, as a test.
fn has(text: &str, function: &str, is_test: bool) -> bool {
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.iter().enumerate().any(|(at, line)| {
        let Some((_, rest)) = line.split_once("fn ") else { return false };
        let is_named = rest.strip_prefix(function).is_some_and(|rest| rest.starts_with(['(', '<']));
        is_named && (!is_test || at > 0 && lines[at - 1] == "#[test]")
    })
}

/// What the document names and `read` does not have, steps that are missing, and rows without a
/// function or a test.
pub fn violations(document: &str, read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let mut found = Vec::new();
    let mut steps = Vec::new();
    for line in document.lines().filter(|line| line.starts_with('|')) {
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        let [_, step, _, functions, tests, _] = cells[..] else { continue };
        let Ok(step) = step.parse::<u32>() else { continue };
        steps.push(step);
        for (cell, is_test) in [(functions, false), (tests, true)] {
            if names(cell).next().is_none() {
                found.push(format!("step {step}: no {}", if is_test { "test" } else { "function" }));
            }
            for (path, function) in names(cell) {
                if !read(path).is_some_and(|text| has(&text, function, is_test)) {
                    found.push(format!("step {step}: there is no {function} in {path}"));
                }
            }
        }
    }
    found.extend((1..=LAST).filter(|step| !steps.contains(step)).map(|step| format!("no step {step}")));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_there_is_found() {
        let read = |path: &str| {
            (path == "a.rs").then(|| "    pub fn there<T>(t: T) {}\n#[test]\nfn shown() {}\n".to_owned())
        };
        let rows = |functions: &str, tests: &str| -> String {
            (1..=LAST).map(|step| format!("| {step} | it | {functions} | {tests} |\n")).collect()
        };
        let all = |document: &str| violations(document, read);
        assert_eq!(all(&rows("`a.rs::there`", "`a.rs::shown`")), [""; 0]);
        let first = |functions, tests| all(&rows(functions, tests)).first().cloned().unwrap_or_default();
        assert_eq!(first("`a.rs::the`", "`a.rs::shown`"), "step 1: there is no the in a.rs");
        assert_eq!(first("`b.rs::there`", "`a.rs::shown`"), "step 1: there is no there in b.rs");
        assert_eq!(first("`a.rs::there`", "`a.rs::there`"), "step 1: there is no there in a.rs");
        assert_eq!(first("there", "`a.rs::shown`"), "step 1: no function");
        assert_eq!(all("").len(), LAST as usize);
    }
}
