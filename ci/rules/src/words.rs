//! Words that are not used: the field has terms for what they were made up for. `docs/glossary.md`
//! has those.

use crate::ratchet::Finding;
use crate::source;

/// Never, in comments, documents and names, with what is said instead. Inflected forms count too.
const WORDS: [(&str, &str); 14] = [
    ("bell", "parker, wake"),
    ("board", "shared state"),
    ("crew", "thread pool"),
    ("debt", "pending drain"),
    ("depot", "backlog"),
    ("inbox", "commit queue"),
    ("keeper", "owner, committer"),
    ("letter", "node"),
    ("mill", "merge"),
    ("neglect", "defer a drain"),
    ("owe", "pending"),
    ("pace", "throughput, rate"),
    ("seat", "committer cell"),
    ("wish", "extent request"),
];

/// Words of the above that are plain English in a text, and are left out as names only.
const ONLY_NAMES: [&str; 3] = ["board", "letter", "pace"];

/// Words in a row.
const PHRASES: [(&[&str], &str); 9] = [
    (&["in", "hand"], "locked, held"),
    (&["short", "way"], "fast path"),
    (&["short", "ways"], "fast paths"),
    (&["long", "way"], "slow path"),
    (&["long", "ways"], "slow paths"),
    (&["has", "the", "shard"], "owns the shard, holds the owner lock"),
    (&["has", "the", "word"], "holds the owner lock"),
    (&["takes", "the", "word"], "locks the owner lock"),
    (&["gives", "back", "the", "shard"], "unlocks the shard"),
];

/// Whole names of types, in code and between backticks.
const TYPES: [(&str, &str); 13] = [
    ("Announced", "Reservation"),
    ("Apart", "a policy of CPUs"),
    ("Cutting", "ExtentLayout"),
    ("Look", "BatchSummary"),
    ("Part", "QueuedBatch"),
    ("Place", "slot, offset"),
    ("Places", "slots"),
    ("Recent", "HomeCache"),
    ("Spare", "BlockPool"),
    ("Supply", "Backlog"),
    ("Turn", "DrainBudget"),
    ("Way", "Extractor"),
    ("Word", "OwnerLock"),
];

/// Uses of such words, by file and line.
pub fn findings(files: &[(&str, String)]) -> Vec<Finding> {
    files.iter().flat_map(|(path, text)| in_file(path, text)).collect()
}

fn in_file(path: &str, text: &str) -> Vec<Finding> {
    let is_rust = path.ends_with(".rs");
    let mut found = Vec::new();
    // The words of the text so far, for what goes on in the next line.
    let mut row: Vec<String> = Vec::new();
    for (number, line) in text.lines().enumerate() {
        let mut note = |word: &str, instead: &str| {
            let what = format!("\"{word}\" is not used here: {instead}");
            found.push(Finding { path: path.into(), line: number + 1, what });
        };
        let (code, comment) = if is_rust { source::split(line) } else { ("", line) };
        let names = identifiers(code).chain(source::quoted(comment).flat_map(identifiers));
        for name in names {
            if let Some((_, instead)) = TYPES.iter().find(|(bad, _)| *bad == name) {
                note(name, instead);
            }
            for part in parts(name) {
                word(&part).into_iter().for_each(|(bad, instead)| note(bad, instead));
            }
        }
        // Code between backticks was looked at already.
        for text in comment.split('`').step_by(2) {
            for token in identifiers(text) {
                let token = token.to_lowercase();
                word(&token)
                    .filter(|(bad, _)| !ONLY_NAMES.contains(bad))
                    .into_iter()
                    .for_each(|(bad, instead)| note(bad, instead));
                row.push(token);
                for (phrase, instead) in PHRASES {
                    let last = &row[row.len().saturating_sub(phrase.len())..];
                    if last.iter().map(String::as_str).eq(phrase.iter().copied()) {
                        note(&phrase.join(" "), instead);
                    }
                }
            }
        }
        // A sentence ends where no comment follows.
        if comment.is_empty() {
            row.clear();
        }
    }
    found
}

/// Runs of letters, digits and underscores.
fn identifiers(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|name| !name.is_empty())
}

/// The words of a name, in small letters: of `KeeperOf` and `keeper_of` "keeper" and "of".
fn parts(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut before = '_';
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && !before.is_uppercase()) {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().expect("there is one from the start").extend(c.to_lowercase());
        }
        before = c;
    }
    words.retain(|word| !word.is_empty());
    words
}

/// The word of the list that this is a form of.
fn word(token: &str) -> Option<(&'static str, &'static str)> {
    let ends = ["", "s", "es", "d", "ed", "ing", "er"];
    WORDS.into_iter().find(|(bad, _)| token.strip_prefix(bad).is_some_and(|end| ends.contains(&end)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(path: &str, text: &str) -> Vec<(usize, String)> {
        let found = findings(&[(path, text.to_owned())]);
        found.into_iter().map(|at| (at.line, at.what.split('"').nth(1).unwrap_or("").to_owned())).collect()
    }

    fn line(number: usize, word: &str) -> (usize, String) {
        (number, word.to_owned())
    }

    #[test]
    fn words_are_found_in_names_comments_and_documents() {
        assert_eq!(
            told("a.rs", "fn keeper_of() {}\nstruct WishList;\n"),
            [line(1, "keeper"), line(2, "wish")]
        );
        assert_eq!(
            told("a.rs", "/// Rings the bell.\nlet x = 1; // two debts\n"),
            [line(1, "bell"), line(2, "debt")]
        );
        assert_eq!(told("a.md", "The `Inbox` and a Keeper.\n"), [line(1, "inbox"), line(1, "keeper")]);
    }

    #[test]
    fn words_that_only_look_like_them_are_not() {
        assert_eq!(told("a.rs", "let millis = million; // rebellion, on boards, with letters\n"), []);
        assert_eq!(told("a.rs", "fn letter() {} // see `pace`\n"), [line(1, "letter"), line(1, "pace")]);
    }

    #[test]
    fn phrases_are_found_over_the_end_of_a_line() {
        assert_eq!(told("a.rs", "// The short\n// way of a chunk.\n"), [line(2, "short way")]);
        assert_eq!(told("a.rs", "// Rather short\nlet way = 1;\n"), []);
        assert_eq!(told("a.md", "What is in hand.\n"), [line(1, "in hand")]);
    }

    #[test]
    fn types_are_whole_names_in_code() {
        assert_eq!(
            told("a.rs", "let a: Place = x; // Place it there, `Word`.\n"),
            [line(1, "Place"), line(1, "Word")]
        );
        assert_eq!(told("a.rs", "let a: PlaceInRing = KeyWord::new();\n"), []);
    }
}
