//! The house rules, applied to this repository.

use std::collections::BTreeSet;
use std::process::Command;
use watershed_rules::ratchet::{self, Finding};
use watershed_rules::{
    Repository, arrows, built, checks, columns, commands, length, links, manifests, records, steps, subjects,
    unsafety, words,
};

fn assert_none(violations: &[String]) {
    assert!(violations.is_empty(), "\n{}\n", violations.join("\n"));
}

#[test]
fn files_hold_one_concept() {
    let repository = Repository::here();
    assert_none(&length::violations(&repository.texts(".rs"), &repository.text("ci/rules/longer-files.txt")));
}

#[test]
fn unsafe_stays_where_it_is_allowed() {
    assert_none(&unsafety::violations(&Repository::here().texts(".rs")));
}

#[test]
fn crates_inherit_from_the_workspace() {
    assert_none(&manifests::violations(&Repository::here().texts("Cargo.toml")));
}

/// Lines in the crates that were written anew, and in documents, with words that are not used.
fn unused_words(repository: &Repository) -> Vec<Finding> {
    let mut files = repository.texts(".rs");
    files.retain(|(path, _)| path.starts_with("engine/") || path.starts_with("shards/"));
    files.extend(repository.texts(".md"));
    words::findings(&files)
}

/// Lines of text that are too long, in the whole repository.
fn long_lines(repository: &Repository) -> Vec<Finding> {
    let mut files: Vec<(&str, String)> =
        [".rs", ".md", ".toml", ".yml"].iter().flat_map(|suffix| repository.texts(suffix)).collect();
    let is_script = |path: &&str| {
        let name = path.strip_prefix("ci/").or_else(|| path.strip_prefix(".ci/"));
        name.is_some_and(|name| !name.contains('.') || name.ends_with(".sh"))
    };
    files.extend(repository.files().filter(is_script).map(|path| (path, repository.text(path))));
    files.sort();
    columns::findings(&files)
}

const OLD_WORDS: &str = "ci/rules/old-words.txt";
const WIDER_FILES: &str = "ci/rules/wider-files.txt";

#[test]
fn words_are_those_of_the_field() {
    let repository = Repository::here();
    assert_none(&ratchet::violations(&unused_words(&repository), &repository.text(OLD_WORDS)));
}

#[test]
fn comments_and_documents_are_narrow() {
    let repository = Repository::here();
    assert_none(&ratchet::violations(&long_lines(&repository), &repository.text(WIDER_FILES)));
}

/// Not a test: makes the lists of files that break a rule anew. A review sees whether they have
/// grown.
#[test]
#[ignore = "writes ci/rules/*.txt"]
fn write_lists() {
    let repository = Repository::here();
    for (file, findings) in [(OLD_WORDS, unused_words(&repository)), (WIDER_FILES, long_lines(&repository))] {
        let known = repository.text(file);
        let head = known.lines().next().expect("a line that says what is listed");
        std::fs::write(repository.root().join(file), ratchet::list(head, &findings))
            .expect("it can be written");
    }
}

#[test]
fn imports_point_one_way() {
    let repository = Repository::here();
    assert_none(&arrows::violations(&repository.texts(".rs"), &repository.text("ci/rules/arrows.txt")));
}

/// The last commit before subjects had a limit.
const BEFORE_SUBJECTS: &str = "ec4dbd190813ceccdf20521a375e2a58111b176c";

#[test]
fn subjects_of_commits_are_short() {
    let repository = Repository::here();
    let log = Command::new("git")
        .args(["log", "--no-merges", "--format=%h %s", &format!("{BEFORE_SUBJECTS}..HEAD")])
        .current_dir(repository.root())
        .output()
        .expect("git runs");
    // A shallow clone may not have that commit.
    if log.status.success() {
        let log = String::from_utf8_lossy(&log.stdout);
        assert_none(&subjects::violations(&log));
    }
}

/// Names that a script lists, as in `.ci/run`.
fn listed<'a>(script: &'a str, name: &str) -> Vec<&'a str> {
    checks::list(script, name).unwrap_or_else(|| panic!("there is no list {name}"))
}

#[test]
fn a_machine_has_one_record_of_each_suite() {
    assert_none(&records::violations(&Repository::here().texts(".json")));
}

#[test]
fn every_check_is_run() {
    let repository = Repository::here();
    let (run, nightly) = (repository.text(".ci/run"), repository.text("ci/nightly"));
    let lists = [listed(&run, "decides"), listed(&run, "told"), listed(&nightly, "long")].concat();
    let is_script = |file: &&str| !file.contains('.') && !file.contains('/');
    let scripts: Vec<&str> =
        repository.files().filter_map(|file| file.strip_prefix("ci/")).filter(is_script).collect();
    assert!(scripts.len() > 3, "{scripts:?}");
    // A script that is no check says so in its second line.
    let is_check = |name: &str| {
        !repository.text(&format!("ci/{name}")).lines().nth(1).unwrap_or("").contains("Not a check")
    };
    let forgotten: Vec<_> = scripts.iter().filter(|name| is_check(name) && !lists.contains(*name)).collect();
    assert!(forgotten.is_empty(), "in no list of .ci/run or ci/nightly: {forgotten:?}");
    let run = [listed(&run, "decides"), listed(&run, "told")].concat();
    let missing: Vec<_> = run.iter().filter(|name| !scripts.contains(*name)).collect();
    assert!(missing.is_empty(), "listed in .ci/run, but there is no such script: {missing:?}");
}

#[test]
fn workflows_agree_with_the_scripts() {
    let repository = Repository::here();
    let (run, nightly) = (repository.text(".ci/run"), repository.text("ci/nightly"));
    let jobs = |file: &str| checks::jobs(&repository.text(&format!(".github/workflows/{file}")));
    let (daily, long) = (jobs("checks.yml"), jobs("nightly.yml"));
    // Other systems have jobs of their own with some of the same checks.
    let is_linux = |job: &checks::Job| !job.name.contains("arm64");
    let decides = checks::of_jobs(&daily, |job| is_linux(job) && job.decides);
    let told = checks::of_jobs(&daily, |job| is_linux(job) && !job.decides);
    let at_night = checks::of_jobs(&long, |job| job.name == "long");
    assert_none(
        &[
            checks::differences("decides", &listed(&run, "decides"), &decides),
            checks::differences("told", &listed(&run, "told"), &told),
            checks::differences("ci/nightly", &listed(&nightly, "long"), &at_night),
        ]
        .concat(),
    );
    let others = daily.iter().chain(&long).filter(|job| job.name != "long");
    let mut violations = Vec::new();
    for job in others {
        let missing = job.checks.iter().filter(|check| !repository.has(&format!("ci/{check}")));
        violations.extend(missing.map(|check| format!("{}: there is no ci/{check}", job.name)));
        violations
            .extend(job.others.iter().map(|other| format!("{}: {other:?} is no script of ci/", job.name)));
    }
    assert_none(&violations);
}

/// Commands of all documents, with the document's path.
fn cited(repository: &Repository) -> Vec<(String, String)> {
    let documents = repository.texts(".md");
    documents
        .iter()
        .flat_map(|(path, text)| commands::cited(text).into_iter().map(|command| (path.to_string(), command)))
        .collect()
}

#[test]
fn documents_name_scripts_and_packages_that_exist() {
    let repository = Repository::here();
    let manifests = repository.texts("Cargo.toml");
    let has_package =
        |name: &str| manifests.iter().any(|(_, text)| text.contains(&format!("\nname = \"{name}\"\n")));
    let mut violations = Vec::new();
    for (document, command) in cited(&repository) {
        if let Some(script) = commands::script(&command).filter(|path| !repository.root().join(path).exists())
        {
            violations.push(format!("{document}: {command:?}: there is no {script}"));
        }
        if let Some(name) = commands::package(&command).filter(|name| !has_package(name)) {
            violations.push(format!("{document}: {command:?}: there is no package {name}"));
        }
        if let Some((folder, name)) = commands::target(&command) {
            let file = format!("/{folder}/{name}.rs");
            if !repository.files().any(|known| known.ends_with(&file)) {
                violations.push(format!("{document}: {command:?}: there is no {name} in {folder}"));
            }
        }
    }
    assert_none(&violations);
}

#[test]
fn a_sessions_steps_name_what_there_is() {
    let repository = Repository::here();
    let read = |path: &str| repository.has(path).then(|| repository.text(path));
    assert_none(&steps::violations(&repository.text("docs/life-of-a-session.md"), read));
}

#[test]
fn links_lead_somewhere() {
    let repository = Repository::here();
    let documents = repository.texts(".md");
    let mut violations = Vec::new();
    for (document, text) in &documents {
        for target in links::targets(text) {
            let path = links::resolved(document, target);
            let Some(path) = path.filter(|path| repository.root().join(path).exists()) else {
                violations.push(format!("{document}: {target:?} leads nowhere"));
                continue;
            };
            let anchor = target.split_once('#').map(|(_, anchor)| anchor);
            let of = |anchor: &str| {
                documents.iter().any(|(known, text)| *known == path && links::has_anchor(text, anchor))
            };
            if path.ends_with(".md") && anchor.is_some_and(|anchor| !of(anchor)) {
                violations.push(format!("{document}: {target:?}: {path} has no such heading"));
            }
        }
    }
    assert_none(&violations);
}

/// A program of ours: the one beside this test, as when the whole workspace is tested, unless a
/// source has changed since; else built first.
fn run(repository: &Repository, program: &str) -> Command {
    let test = std::env::current_exe().expect("this test's path");
    let beside = test.parent().and_then(|deps| deps.parent()).map(|folder| folder.join(program));
    match beside.filter(|path| built::is_current(path)) {
        Some(path) => Command::new(path),
        None => {
            let mut cargo = Command::new(env!("CARGO"));
            cargo
                .args(["run", "--quiet", "--locked", "--package", program, "--"])
                .current_dir(repository.root());
            cargo
        }
    }
}

#[test]
fn documents_name_subcommands_that_exist() {
    let repository = Repository::here();
    let named: BTreeSet<(String, String)> = cited(&repository)
        .iter()
        .filter_map(|(_, command)| commands::subcommand(command))
        .map(|(program, subcommand)| (program.to_owned(), subcommand.to_owned()))
        .collect();
    assert!(named.contains(&("watershed".into(), "record".into())), "README shows how to record: {named:?}");
    let violations: Vec<String> = named
        .iter()
        .filter(|(program, subcommand)| {
            let output = run(&repository, program).args([subcommand, "--help"]).output().expect("it runs");
            !output.status.success()
        })
        .map(|(program, subcommand)| format!("{program} has no subcommand {subcommand}"))
        .collect();
    assert_none(&violations);
}

#[test]
fn documents_name_results_that_there_are() {
    let repository = Repository::here();
    let output = run(&repository, "watershed-perf").arg("list").output().expect("it runs");
    let known = String::from_utf8(output.stdout).expect("names are UTF-8");
    let known: BTreeSet<&str> = known.lines().map(str::trim).collect();
    assert!(known.contains("write_one_writer"), "{known:?}");
    // "..._x" is a name that ends so.
    let is_known = |name: &str| match name.strip_prefix("...") {
        Some(end) => known.iter().any(|known| known.ends_with(end)),
        None => known.contains(name),
    };
    let documents = repository.texts(".md");
    let named = documents
        .iter()
        .flat_map(|(path, text)| links::results(text).into_iter().map(move |name| (path, name)));
    let violations: Vec<String> = named
        .filter(|(_, name)| !is_known(name))
        .map(|(path, name)| format!("{path}: watershed-perf has no result {name}"))
        .collect();
    assert_none(&violations);
}
