//! The house rules, applied to this repository.

use std::collections::BTreeSet;
use std::process::Command;
use watershed_rules::{Repository, built, commands, length, links, manifests, unsafety};

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

#[test]
fn every_check_is_run() {
    let repository = Repository::here();
    let run = repository.text(".ci/run");
    let list_of =
        |start: &str| run.lines().find_map(|line| line.strip_prefix(start)).expect("a list of checks");
    let lists = [list_of("checks=("), list_of("told=(")];
    let listed: BTreeSet<&str> =
        lists.iter().flat_map(|list| list.trim_end_matches(')').split_whitespace()).collect();
    let is_script = |file: &&str| !file.contains('.') && !file.contains('/');
    let scripts: Vec<&str> =
        repository.files().filter_map(|file| file.strip_prefix("ci/")).filter(is_script).collect();
    assert!(scripts.len() > 3, "{scripts:?}");
    // A script that is no check says so in its second line.
    let is_check = |name: &str| {
        !repository.text(&format!("ci/{name}")).lines().nth(1).unwrap_or("").contains("Not a check")
    };
    let forgotten: Vec<_> =
        scripts.iter().filter(|name| is_check(name) && !listed.contains(**name)).collect();
    assert!(forgotten.is_empty(), "not in .ci/run: {forgotten:?}");
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
        if let Some(script) = commands::script(&command).filter(|script| !repository.has(script)) {
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

#[test]
fn workflows_only_call_scripts_that_exist() {
    let repository = Repository::here();
    let workflows = repository.texts(".yml");
    let commands: Vec<&str> = workflows.iter().flat_map(|(_, text)| links::workflow_commands(text)).collect();
    assert!(commands.contains(&"ci/forge gate"), "{commands:?}");
    let from_lists = workflows
        .iter()
        .flat_map(|(_, text)| text.lines().filter_map(|line| line.trim().strip_prefix("check: [")))
        .flat_map(|list| list.trim_end_matches(']').split(", "));
    // A variable stands for what is in the lists.
    let named = commands.iter().filter_map(|command| command.strip_prefix("ci/forge "));
    let checks = named.filter(|check| !check.contains('$')).chain(from_lists);
    let missing = checks.map(|check| format!("ci/{check}")).filter(|script| !repository.has(script));
    let others =
        commands.iter().filter(|command| !command.starts_with("ci/forge ")).map(|other| other.to_string());
    assert_none(&missing.chain(others).collect::<Vec<_>>());
}

/// A program of ours: the one beside this test, as when the whole workspace is tested, unless a source has changed since; else
/// built first.
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
