//! Documents name only commands, scripts and files that exist.

/// The command lines in a document: lines of code blocks (between fences, or indented by four) and
/// pieces of inline code that start like a command of this repository, without prompt and comment.
pub fn cited(document: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut in_block = false;
    for line in document.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if in_block || line.starts_with("    ") {
            commands.extend(command(line));
        } else {
            commands.extend(line.split('`').skip(1).step_by(2).filter_map(command));
        }
    }
    commands
}

fn command(text: &str) -> Option<String> {
    let text = text.trim().trim_start_matches("$ ");
    let text = text.split(" #").next().unwrap_or_default().trim();
    // Settings before the command belong to it.
    let program = text.split_whitespace().find(|word| !word.contains('='))?;
    let ours = ["cargo", "watershed", "watershed-perf"].contains(&program)
        || program.starts_with("ci/")
        || program.starts_with("./ci/")
        || program == ".ci/run";
    // `watershed` alone is a name, not a command, and so is the folder `ci/`.
    (ours && (text.contains(' ') || program.contains('/')) && program != "ci/").then(|| text.to_owned())
}

/// The script that a command starts, when it starts one of this repository's.
pub fn script(command: &str) -> Option<&str> {
    let program = command.split_whitespace().find(|word| !word.contains('='))?;
    let program = program.trim_start_matches("./");
    (program.starts_with("ci/") || program.starts_with(".ci/")).then_some(program)
}

/// The package that `cargo ... -p NAME` names.
pub fn package(command: &str) -> Option<&str> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let flag = words.iter().position(|word| matches!(*word, "-p" | "--package"))?;
    (words.first() == Some(&"cargo")).then(|| words.get(flag + 1).copied())?
}

/// The target that `cargo ... --bench NAME` (or `--test`, `--example`) names: its kind's folder and
/// its name.
pub fn target(command: &str) -> Option<(&'static str, &str)> {
    let words: Vec<&str> = command.split_whitespace().take_while(|word| *word != "--").collect();
    let kinds = [("--bench", "benches"), ("--test", "tests"), ("--example", "examples")];
    kinds.into_iter().find_map(|(flag, folder)| {
        let at = words.iter().position(|word| *word == flag)?;
        (words.first() == Some(&"cargo")).then(|| words.get(at + 1).map(|name| (folder, *name)))?
    })
}

/// The program of ours that a command runs ("watershed", "watershed-perf") and its subcommand.
pub fn subcommand(command: &str) -> Option<(&str, &str)> {
    let words: Vec<&str> = command.split_whitespace().collect();
    let (program, rest) = match *words.first()? {
        "cargo" if words.get(1) == Some(&"run") => {
            let dashes = words.iter().position(|word| *word == "--")?;
            (package(command).unwrap_or("watershed"), &words[dashes + 1..])
        }
        "watershed" | "watershed-perf" => (words[0], &words[1..]),
        _ => return None,
    };
    let first = rest.first()?;
    let plain = first.chars().all(|c| c.is_ascii_lowercase() || c == '-') && !first.starts_with('-');
    plain.then_some((program, *first))
}

#[cfg(test)]
mod tests {
    use super::*;

    const DOCUMENT: &str = "Run `ci/gate --against REV`, never `make`; see `ci/` and `watershed`.\n\
        ```sh\n$ cargo run --release -p watershed-perf -- run engine   # all of it\ncargo test --workspace\n\
        # a comment\nls\n```\nOr `watershed inspect x.pftrace`.\n\n    ci/fuzz 20   # indented\n";

    #[test]
    fn commands_are_found_in_blocks_and_in_lines() {
        assert_eq!(
            cited(DOCUMENT),
            [
                "ci/gate --against REV",
                "cargo run --release -p watershed-perf -- run engine",
                "cargo test --workspace",
                "watershed inspect x.pftrace",
                "ci/fuzz 20"
            ]
        );
    }

    #[test]
    fn their_parts_are_found() {
        assert_eq!(script("ci/gate --against REV"), Some("ci/gate"));
        assert_eq!(script("A=b ./ci/gate"), Some("ci/gate"));
        assert_eq!(script("cargo test"), None);
        assert_eq!(package("cargo test -p watershed-smb x"), Some("watershed-smb"));
        assert_eq!(package("cp -p a b"), None);
        assert_eq!(target("cargo bench -p watershed-perf --bench engine -- x"), Some(("benches", "engine")));
        assert_eq!(target("cargo test --workspace"), None);
        assert_eq!(subcommand("cargo run --release -- record -t 3s"), Some(("watershed", "record")));
        assert_eq!(
            subcommand("cargo run -p watershed-perf -- compare a b"),
            Some(("watershed-perf", "compare"))
        );
        assert_eq!(subcommand("watershed --version --verbose"), None);
        assert_eq!(subcommand("watershed inspect"), Some(("watershed", "inspect")));
    }
}
