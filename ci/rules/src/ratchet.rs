//! Lists of files that broke a rule when it came: what is listed may shrink, never grow.

/// A line that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the root.
    pub path: String,
    /// The line's number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: String,
}

/// Findings that `known` does not allow. It has a line "PATH COUNT" for each file with findings.
pub fn violations(findings: &[Finding], known: &str) -> Vec<String> {
    let known: Vec<(&str, usize)> = known.lines().filter_map(entry).collect();
    let mut found = Vec::new();
    let mut rest = findings;
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|finding| finding.path == first.path).count();
        let (of_file, others) = rest.split_at(count);
        rest = others;
        let path = &first.path;
        let allowed = known.iter().find(|(name, _)| name == path).map_or(0, |(_, count)| *count);
        if count > allowed {
            found.extend(of_file.iter().map(|at| format!("{path}:{}: {}", at.line, at.what)));
        } else if count < allowed {
            found.push(format!("{path}: has {count} now, not {allowed}: lower the number in the list"));
        }
    }
    let clean = known.iter().filter(|(name, _)| findings.iter().all(|finding| finding.path != *name));
    found.extend(clean.map(|(name, _)| format!("{name}: has none now, take it off the list")));
    found
}

/// The list that allows just these findings, which are grouped by file. `head` is its first line.
pub fn list(head: &str, findings: &[Finding]) -> String {
    let mut text = format!("{head}\n");
    for files in findings.chunk_by(|a, b| a.path == b.path) {
        text.push_str(&format!("{} {}\n", files[0].path, files.len()));
    }
    text
}

/// A line "PATH NUMBER" of a list; `None` for comments.
pub(crate) fn entry(line: &str) -> Option<(&str, usize)> {
    let (path, number) = line.rsplit_once(' ').filter(|_| !line.starts_with('#'))?;
    Some((path, number.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finding(path: &str, line: usize) -> Finding {
        Finding { path: path.into(), line, what: "too bad".into() }
    }

    #[test]
    fn what_is_listed_may_shrink_and_never_grow() {
        let findings = [finding("a", 1), finding("a", 5), finding("b", 2)];
        assert_eq!(violations(&findings, "# a comment\na 2\nb 1"), Vec::<String>::new());
        assert_eq!(violations(&findings, "a 2"), ["b:2: too bad"]);
        assert_eq!(violations(&findings, "a 1\nb 1"), ["a:1: too bad", "a:5: too bad"]);
        assert_eq!(
            violations(&findings, "a 3\nb 1\nc 1"),
            ["a: has 2 now, not 3: lower the number in the list", "c: has none now, take it off the list"]
        );
    }

    #[test]
    fn a_list_allows_what_it_was_made_from() {
        let findings = [finding("a", 1), finding("a", 5), finding("b", 2)];
        assert_eq!(list("# head", &findings), "# head\na 2\nb 1\n");
        assert_eq!(violations(&findings, &list("# head", &findings)), Vec::<String>::new());
    }
}
