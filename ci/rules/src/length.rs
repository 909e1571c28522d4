//! A file holds one concept: 100 to 350 lines are usual, above [`MAX_LINES`] there are two in it.

use crate::ratchet::entry;

/// No new file may be longer.
pub const MAX_LINES: usize = 700;

/// Violations of the length rule. `known` has a line "PATH LINES" for each file that was longer
/// when the rule came: it may shrink, never grow, and leaves the list when it fits.
pub fn violations(files: &[(&str, String)], known: &str) -> Vec<String> {
    let known: Vec<(&str, usize)> = known.lines().filter_map(entry).collect();
    let mut found = Vec::new();
    for (path, text) in files {
        let lines = text.lines().count();
        match known.iter().find(|(name, _)| name == path) {
            Some((_, limit)) if lines > *limit => {
                found.push(format!("{path}: grew from {limit} to {lines} lines"))
            }
            Some(_) if lines <= MAX_LINES => found.push(format!("{path}: fits now, take it off the list")),
            None if lines > MAX_LINES => found.push(format!("{path}: {lines} lines, more than {MAX_LINES}")),
            _ => {}
        }
    }
    let gone = known.iter().filter(|(name, _)| files.iter().all(|(path, _)| path != name));
    found.extend(gone.map(|(name, _)| format!("{name}: is listed as long and does not exist")));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_a_ratchet() {
        let files =
            [("new.rs", "x\n".repeat(701)), ("old.rs", "x\n".repeat(900)), ("fine.rs", "x\n".repeat(700))];
        assert_eq!(violations(&files, "old.rs 900"), ["new.rs: 701 lines, more than 700"]);
        assert_eq!(violations(&files[1..], "old.rs 899"), ["old.rs: grew from 899 to 900 lines"]);
        assert_eq!(violations(&files[2..], "fine.rs 800"), ["fine.rs: fits now, take it off the list"]);
        assert_eq!(
            violations(&[], "# a comment\nlost.rs 800"),
            ["lost.rs: is listed as long and does not exist"]
        );
    }
}
