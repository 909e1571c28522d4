//! The workflows run the same checks as `.ci/run` and `ci/nightly`, and let the same ones decide.

/// The words of a list `NAME=(WORD ...)` in a script of bash; `None` where it has no such list.
pub fn list<'a>(script: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let start =
        script.lines().position(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with("=(")))?;
    let mut words = Vec::new();
    for line in script.lines().skip(start) {
        let line = line.split('#').next().unwrap_or_default();
        let inner = line.split_once("=(").map_or(line, |(_, inner)| inner);
        words.extend(inner.trim_end_matches([')', ' ']).split_whitespace());
        if line.trim_end().ends_with(')') {
            break;
        }
    }
    Some(words)
}

/// A job of a workflow.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Job {
    /// Its name.
    pub name: String,
    /// What it gives to `ci/forge`, from lists of its matrix or in its commands.
    pub checks: Vec<String>,
    /// Whether it decides: its failure is the workflow's.
    pub decides: bool,
    /// Commands that are not `ci/forge`.
    pub others: Vec<String>,
}

/// The jobs of a workflow.
pub fn jobs(workflow: &str) -> Vec<Job> {
    let mut jobs: Vec<Job> = Vec::new();
    let lines = workflow.lines().filter(|line| !line.trim_start().starts_with('#'));
    for line in lines.skip_while(|line| *line != "jobs:").skip(1) {
        let text = line.trim().trim_start_matches("- ");
        let Some((key, value)) = text.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        if line.starts_with("  ") && !line.starts_with("   ") {
            jobs.push(Job { name: key.into(), decides: true, ..Job::default() });
            continue;
        }
        let Some(job) = jobs.last_mut() else { continue };
        match key {
            "check" => job.checks.extend(value.trim_matches(['[', ']']).split(", ").map(String::from)),
            "continue-on-error" => job.decides = value != "true",
            "run" => match value.strip_prefix("ci/forge ") {
                // A variable stands for what is in the list.
                Some(command) if command.contains('$') => {}
                Some(command) => job.checks.extend(command.split(' ').next().map(String::from)),
                None => job.others.push(value.into()),
            },
            _ => {}
        }
    }
    jobs
}

/// The checks of those jobs for which `is_meant` holds.
pub fn of_jobs(jobs: &[Job], is_meant: impl Fn(&Job) -> bool) -> Vec<&str> {
    jobs.iter().filter(|job| is_meant(job)).flat_map(|job| job.checks.iter().map(String::as_str)).collect()
}

/// What differs between a list of a script and the checks of the jobs that should run it.
pub fn differences(what: &str, listed: &[&str], run: &[&str]) -> Vec<String> {
    let missing = listed.iter().filter(|name| !run.contains(name));
    let missing = missing.map(|name| format!("{what}: {name} is listed, and no job runs it"));
    let more = run.iter().filter(|name| !listed.contains(name));
    missing.chain(more.map(|name| format!("{what}: a job runs {name}, which is not listed"))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_scripts_are_read() {
        let script = "a=1\ndecides=(fmt\n    lint test) # why\ntold=(x y)\n";
        assert_eq!(list(script, "decides"), Some(vec!["fmt", "lint", "test"]));
        assert_eq!(list(script, "told"), Some(vec!["x", "y"]));
        assert_eq!(list(script, "tol"), None);
    }

    #[test]
    fn jobs_of_workflows_are_read() {
        let workflow = "on:\n  push:\njobs:\n  # A comment: not a job.\n  one:\n    strategy:\n      matrix:\n        check: [a, b]\n    \
            steps:\n      - uses: x\n      - run: ci/forge ${{ matrix.check }}\n  two:\n    continue-on-error: true\n    \
            steps:\n      - run: ci/forge gate --now\n      - run: make\n";
        let job = |name: &str, checks: &[&str], decides, others: &[&str]| Job {
            name: name.into(),
            checks: checks.iter().map(|check| check.to_string()).collect(),
            decides,
            others: others.iter().map(|other| other.to_string()).collect(),
        };
        assert_eq!(
            jobs(workflow),
            [job("one", &["a", "b"], true, &[]), job("two", &["gate"], false, &["make"])]
        );
    }

    #[test]
    fn differences_go_both_ways() {
        assert_eq!(differences("x", &["a", "b"], &["b", "c"]).len(), 2);
        assert_eq!(differences("x", &["a"], &["a"]), Vec::<String>::new());
    }
}
