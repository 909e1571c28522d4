//! Subjects of commits: "area: what changed", so short that a log shows them whole.

/// Characters of a subject.
pub const MAX_CHARACTERS: usize = 60;

/// Subjects that are too long or name no area. `log` has a line "HASH SUBJECT" for each commit.
pub fn violations(log: &str) -> Vec<String> {
    let commits = log.lines().filter_map(|line| line.split_once(' '));
    let wrong = commits.filter_map(|(hash, subject)| {
        let length = subject.chars().count();
        let what = if length > MAX_CHARACTERS {
            format!("{length} characters, more than {MAX_CHARACTERS}")
        } else if !subject.contains(": ") {
            "names no area: \"area: what changed\"".to_owned()
        } else {
            return None;
        };
        Some(format!("{hash} {subject:?}: {what}"))
    });
    wrong.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_subjects_and_those_without_an_area_are_found() {
        let fits = format!("abc ci: {}", "x".repeat(MAX_CHARACTERS - 4));
        assert_eq!(violations(&fits), Vec::<String>::new());
        assert_eq!(violations(&format!("{fits}x")).len(), 1);
        assert_eq!(violations("abc Fix it"), ["abc \"Fix it\": names no area: \"area: what changed\""]);
    }
}
