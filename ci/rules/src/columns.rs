//! Comments and documents have lines of at most [`MAX_COLUMNS`] columns; code may have rustfmt's.

use crate::ratchet::Finding;
use crate::source;

/// Columns of a line of text.
pub const MAX_COLUMNS: usize = 100;

/// Lines of comments (`.rs`, `.toml`, `.yml`, scripts) and of documents (`.md`) that are too long.
///
/// Tables, code blocks, and what is too long by the target of a link only are left as they are.
pub fn findings(files: &[(&str, String)]) -> Vec<Finding> {
    files.iter().flat_map(|(path, text)| in_file(path, text)).collect()
}

fn in_file(path: &str, text: &str) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut in_block = false;
    for (number, line) in text.lines().enumerate() {
        let Some(words) = text_of(path, line) else { continue };
        if words.starts_with("```") {
            in_block = !in_block;
            continue;
        }
        let columns = line.chars().count() - links_length(line);
        if columns > MAX_COLUMNS && !in_block && !words.starts_with('|') {
            let what = format!("{columns} columns of text, more than {MAX_COLUMNS}");
            found.push(Finding { path: path.into(), line: number + 1, what });
        }
    }
    found
}

/// The text of a line, without what marks it as a comment; `None` for code.
fn text_of<'a>(path: &str, line: &'a str) -> Option<&'a str> {
    if path.ends_with(".md") {
        return Some(line.trim_start());
    }
    let comment = if path.ends_with(".rs") {
        source::split(line).1
    } else {
        // A mark inside of a line may be part of a text.
        let line = line.trim_start();
        if line.starts_with('#') { line } else { "" }
    };
    let text = comment.trim_start_matches(['/', '!', '#']).trim_start();
    (!comment.is_empty()).then_some(text)
}

/// How many columns the targets of links take, which cannot be broken.
fn links_length(line: &str) -> usize {
    let targets = line.match_indices("](").map(|(at, _)| line[at + 2..].split(')').next());
    let addresses = line.split_whitespace().filter(|word| !word.contains("](") && word.contains("://"));
    targets.flatten().chain(addresses).map(|link| link.chars().count()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(path: &str, text: &str) -> Vec<usize> {
        findings(&[(path, text.to_owned())]).into_iter().map(|at| at.line).collect()
    }

    #[test]
    fn only_text_is_measured() {
        let long = "x".repeat(MAX_COLUMNS);
        assert_eq!(lines("a.rs", &format!("let {long} = 1;\n// {long}\nlet a = 1; // {long}\n")), [2, 3]);
        assert_eq!(lines("a.rs", &format!("/// {}\n", &long[4..])), Vec::<usize>::new());
        assert_eq!(lines("ci/a", &format!("echo {long}\n  # {long}\n")), [2]);
        assert_eq!(lines("a.md", &format!("{long}\n{long}x\n| {long} |\n")), [2]);
    }

    #[test]
    fn code_blocks_and_links_are_left() {
        let long = "x".repeat(MAX_COLUMNS);
        assert_eq!(lines("a.md", &format!("```\n{long}x\n```\n[a]({long}x)\nhttps://{long}\n")), []);
        assert_eq!(lines("a.rs", &format!("/// ```\n/// {long}\n/// ```\n/// {long}\n")), [4]);
    }
}
