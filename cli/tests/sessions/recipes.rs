//! Runs the blocks of a document that begin with "```sh", one after the other in one shell, and
//! after each what shows that it has done what the document says. A block of "```sh WORD" is not
//! run; each such word has a reason in the test.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Nothing takes so long unless it hangs.
const WATCHDOG_S: &str = "120";

/// A block: the word behind `sh`, if there is one, and its lines.
fn blocks(document: &str) -> Vec<(&str, &str)> {
    let fenced = document.split("```").skip(1).step_by(2);
    let shell = fenced.filter_map(|block| block.strip_prefix("sh"));
    shell.map(|block| block.split_once('\n').unwrap()).map(|(word, lines)| (word.trim(), lines)).collect()
}

pub(super) fn until(condition: &str) -> String {
    format!("until {condition}; do sleep 0.1; done")
}

/// Runs a document in a folder, which also has the sockets. `shown` has a command for each of its
/// blocks that are run; the words of the others are returned.
pub(super) fn run(document: &str, folder: &Path, shown: &[String]) -> Vec<String> {
    let text = std::fs::read_to_string(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(document)).unwrap();
    let (run, left): (Vec<_>, Vec<_>) = blocks(&text).into_iter().partition(|(word, _)| word.is_empty());
    assert_eq!(run.len(), shown.len(), "blocks of {document}");
    let steps = run.iter().zip(shown).map(|((_, lines), then)| format!("{lines}{then}\n"));
    // What a block starts beside itself ends with the shell.
    let script =
        format!("trap 'kill $(jobs -p) 2>/dev/null || true; wait' EXIT\n{}", steps.collect::<String>());
    let mut shell = Command::new("timeout");
    shell.args(["-k", "5", WATCHDOG_S, "bash", "-euxc", &script]).current_dir(folder);
    let program = Path::new(env!("CARGO_BIN_EXE_watershed")).parent().unwrap().to_owned();
    let path = std::env::var_os("PATH").unwrap();
    let path = std::env::join_paths(std::iter::once(program).chain(std::env::split_paths(&path)));
    shell.env("PATH", path.unwrap());
    shell.env("PERFETTO_PRODUCER_SOCK_NAME", folder.join("producer"));
    shell.env("PERFETTO_CONSUMER_SOCK_NAME", folder.join("consumer"));
    let output = shell.output().unwrap();
    assert!(output.status.success(), "{document}: {}", String::from_utf8_lossy(&output.stderr));
    left.iter().map(|(word, _)| (*word).to_owned()).collect()
}

#[test]
fn the_server_is_run_as_its_document_says() {
    let folder = tempfile::tempdir().unwrap();
    let shown = [
        until("watershed query"),
        until("watershed query | grep -q linux.process_stats"),
        "watershed inspect --json first.pftrace >/dev/null".to_owned(),
        "grep -q 'turns of workers' daemon.log || ".to_owned() + &until("grep -q 'turns of' daemon.log"),
        "test -s until-now.pftrace && watershed inspect night.pftrace".to_owned(),
        until("watershed query | grep -q STARTED"),
        "wait $door\ntest -s door.pftrace".to_owned(),
        "watershed inspect --json long.pftrace | grep -q '\"compressed_packets\": *[1-9]'".to_owned(),
    ];
    let left = run("../docs/server.md", folder.path(), &shown);
    // For the group that the package makes, which `ci/package` installs.
    assert_eq!(left, ["installed"]);
    assert!(include_str!("../../../packaging/watershed.sysusers").contains("watershed"));
}
