//! `unsafe` stays where the design allows it.

/// Folders whose crates may use it. Everything else forbids it at its crate root.
pub const ALLOWED: [&str; 8] = ["capi", "client", "daemon", "engine", "fuzz", "shards", "simd", "smb"];

/// Uses of `unsafe` outside the allowed folders, and crate roots there that do not forbid it.
pub fn violations(files: &[(&str, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in files {
        if ALLOWED.iter().any(|folder| path.strip_prefix(folder).is_some_and(|rest| rest.starts_with('/'))) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            if uses_unsafe(line) {
                found.push(format!("{path}:{}: unsafe is not for this crate", number + 1));
            }
        }
        let is_root = path.ends_with("src/lib.rs") || path.ends_with("src/main.rs");
        if is_root && !text.contains("#![forbid(unsafe_code)]") {
            found.push(format!("{path}: this crate forbids unsafe: #![forbid(unsafe_code)]"));
        }
    }
    found
}

/// Whether code of the line has the keyword. Comments and what stands in double quotes do not
/// count.
fn uses_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let unquoted = code.split('"').step_by(2);
    let is_word = |c: char| c.is_alphanumeric() || c == '_';
    unquoted.flat_map(|part| part.split(|c| !is_word(c))).any(|word| word == "unsafe")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_functions_and_missing_prohibitions_are_found() {
        let text = "#![forbid(unsafe_code)]\n// unsafe in a comment\nlet a = \"unsafe\";\nunsafe { x() }\n";
        let file = |path| [(path, text.to_owned())];
        assert_eq!(violations(&file("wire/src/lib.rs")), ["wire/src/lib.rs:4: unsafe is not for this crate"]);
        assert_eq!(violations(&file("engine/src/lib.rs")), Vec::<String>::new());
        assert_eq!(violations(&file("enginex/src/a.rs")).len(), 1, "a folder's name is compared as a whole");
        let missing = violations(&[("cli/src/main.rs", "fn main() {}".into())]);
        assert_eq!(missing, ["cli/src/main.rs: this crate forbids unsafe: #![forbid(unsafe_code)]"]);
    }
}
