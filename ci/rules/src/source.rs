//! What of a line is code and what is comment.

/// The code and the comment of a line of Rust, the comment with its slashes; either may be empty.
///
/// Slashes inside of double quotes are no comment. A text over several lines is taken for code.
pub fn split(line: &str) -> (&str, &str) {
    let mut quoted = false;
    let mut before = ' ';
    for (at, c) in line.char_indices() {
        match c {
            // A quote is not the character '"', and not escaped.
            '"' if before != '\\' && before != '\'' => quoted = !quoted,
            '/' if !quoted && line[at..].starts_with("//") => return line.split_at(at),
            _ => {}
        }
        before = c;
    }
    (line, "")
}

/// The pieces between backticks.
pub fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_are_told_from_texts() {
        assert_eq!(split("let a = 1; // one"), ("let a = 1; ", "// one"));
        assert_eq!(split("    /// text"), ("    ", "/// text"));
        assert_eq!(split(r#"let a = "http://x"; // y"#), (r#"let a = "http://x"; "#, "// y"));
        assert_eq!(split(r#"let a = "\"//"; "#), (r#"let a = "\"//"; "#, ""));
        assert_eq!(split("let a = '\"'; // y"), ("let a = '\"'; ", "// y"));
    }

    #[test]
    fn pieces_of_code_are_found_in_texts() {
        assert_eq!(quoted("a `b` and `c::d`").collect::<Vec<_>>(), ["b", "c::d"]);
    }
}
