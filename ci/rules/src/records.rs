//! `perf/record/` keeps one file for each machine and suite: `MACHINE/SUITE.json`.

/// Violations: files below `perf/record/` with another name, and files that name no suite or not
/// the one that their name says. `files` are all files of the repository.
pub fn violations(files: &[(&str, String)]) -> Vec<String> {
    let mut violations = Vec::new();
    for (path, text) in files {
        let Some(record) = path.strip_prefix("perf/record/") else { continue };
        let parts: Vec<&str> = record.split('/').collect();
        let [_machine, file] = parts[..] else {
            violations.push(format!("{path}: a record is perf/record/MACHINE/SUITE.json"));
            continue;
        };
        let suites: Vec<&str> = values(text, "suite").collect();
        match suites[..] {
            // Names are unique in a folder, so there is no second record of the suite.
            [suite] if file == format!("{suite}.json") => {}
            [suite] => violations.push(format!(
                "{path}: the record of suite {suite} on this machine is {suite}.json, and the only one"
            )),
            _ => violations.push(format!("{path}: a record has one suite, not {}", suites.len())),
        }
        for name in ["date", "commit"] {
            if values(text, name).next().is_none_or(str::is_empty) {
                violations.push(format!("{path}: it does not say its {name}"));
            }
        }
    }
    violations
}

/// The texts of all members `"name": "text"` that stand in lines of their own.
fn values<'a>(json: &'a str, name: &str) -> impl Iterator<Item = &'a str> {
    let start = format!("\"{name}\": \"");
    json.lines().filter_map(move |line| line.trim().strip_prefix(start.as_str())?.split('"').next())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(suite: &str) -> String {
        format!(
            "{{\n  \"suite\": \"{suite}\",\n  \"date\": \"2026-11-23\",\n  \"commit\": \"ec4dbd1\",\n}}\n"
        )
    }

    #[test]
    fn one_record_for_each_machine_and_suite_is_fine() {
        let files = [
            ("perf/record/a/x.json", record("x")),
            ("perf/record/b/x.json", record("x")),
            ("x.json", "".into()),
        ];
        assert_eq!(violations(&files), Vec::<String>::new());
    }

    #[test]
    fn a_second_record_is_a_violation() {
        let files = [("perf/record/a/x.json", record("x")), ("perf/record/a/2026-11-22-x.json", record("x"))];
        assert_eq!(violations(&files).len(), 1);
    }

    #[test]
    fn a_record_says_what_it_is() {
        for (path, text) in [
            ("perf/record/x.json", record("x")),
            ("perf/record/a/y.json", record("x")),
            ("perf/record/a/x.json", "[]".into()),
            ("perf/record/a/x.json", record("x").replace("2026-11-23", "")),
            ("perf/record/a/x.json", record("x").replace("commit", "comment")),
        ] {
            assert!(!violations(&[(path, text.clone())]).is_empty(), "{path}: {text}");
        }
    }
}
