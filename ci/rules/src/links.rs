//! Links in documents lead somewhere, and tables of results name results that there are.

/// The targets of a document's links and pictures, without those that lead to other sites.
pub fn targets(document: &str) -> Vec<&str> {
    let starts = document.match_indices("](").map(|(at, _)| at + 2);
    let targets = starts.filter_map(|start| document[start..].split([')', ' ', '\n']).next());
    targets
        .filter(|target| !target.is_empty() && !target.contains("://") && !target.starts_with("mailto:"))
        .collect()
}

/// A relative link as a path from the root, without its anchor; `None` when it leads out of the
/// repository.
pub fn resolved(document_path: &str, target: &str) -> Option<String> {
    let path = target.split('#').next().unwrap_or_default();
    if path.is_empty() {
        return Some(document_path.to_owned());
    }
    let mut parts: Vec<&str> = document_path.split('/').collect();
    parts.pop();
    for part in path.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop()?;
            }
            _ => parts.push(part),
        }
    }
    Some(parts.join("/"))
}

/// The anchor of a heading, as forges make it.
pub fn anchor(heading: &str) -> String {
    let kept = heading.trim().chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

/// Whether a document has a heading with this anchor.
pub fn has_anchor(document: &str, wanted: &str) -> bool {
    let headings =
        document.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#'));
    headings.map(anchor).any(|anchor| anchor == wanted)
}

/// The names in the first column of tables whose head begins with "result": results of
/// `watershed-perf`.
pub fn results(document: &str) -> Vec<&str> {
    let mut names = Vec::new();
    let mut in_results = false;
    let mut in_table = false;
    for line in document.lines() {
        let first = line.strip_prefix('|').and_then(|row| row.split('|').next()).map(str::trim);
        match first {
            None => in_table = false,
            Some(head) if !in_table => (in_table, in_results) = (true, head == "result"),
            Some(cell) if in_results => names.extend(cell.split('`').skip(1).step_by(2)),
            Some(_) => {}
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_are_found_and_resolved() {
        let document = "See [a](b.md), [c](https://x.example/y), ![d](../e/f.svg#g) and [h](#i).";
        assert_eq!(targets(document), ["b.md", "../e/f.svg#g", "#i"]);
        assert_eq!(resolved("docs/a.md", "b.md#x").as_deref(), Some("docs/b.md"));
        assert_eq!(resolved("docs/a.md", "../e/f.svg").as_deref(), Some("e/f.svg"));
        assert_eq!(resolved("docs/a.md", "#i").as_deref(), Some("docs/a.md"));
        assert_eq!(resolved("a.md", "../out.md"), None);
    }

    #[test]
    fn anchors_are_those_of_headings() {
        assert!(has_anchor("# Not this\n## What it does, `and` why\n", "what-it-does-and-why"));
        assert!(!has_anchor("# A\ntext b\n", "b"));
    }

    #[test]
    fn only_tables_of_results_are_looked_at() {
        let document = "| result | unit |\n|---|---|\n| `a_b`, `c` | ns |\n\n| tried | result |\n|---|---|\n| `d` | 1 |\n";
        assert_eq!(results(document), ["a_b", "c"]);
    }
}
