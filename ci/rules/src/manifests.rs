//! Every crate of the workspace takes its lints, edition and versions from the workspace's tables.

/// Violations in the `Cargo.toml` files of workspace members.
pub fn violations(manifests: &[(&str, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (path, text) in manifests {
        // The root has no package; a workspace of its own (the fuzz targets') cannot inherit.
        if text.contains("[workspace]") {
            continue;
        }
        if !text.contains("[lints]\nworkspace = true") {
            found.push(format!("{path}: takes the workspace's lints: [lints] workspace = true"));
        }
        for field in ["version", "edition", "rust-version", "license"] {
            if !text.lines().any(|line| line == format!("{field}.workspace = true")) {
                found.push(format!("{path}: {field} comes from the workspace"));
            }
        }
        let mut section = "";
        for line in text.lines() {
            if line.starts_with('[') {
                section = line;
            } else if section.contains("dependencies") && line.contains(" = \"") {
                found.push(format!("{path}: a version of its own: {line}"));
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "[package]\nversion.workspace = true\nedition.workspace = true\n\
        rust-version.workspace = true\nlicense.workspace = true\n[dependencies]\nlibc.workspace = true\n\
        [lints]\nworkspace = true\n";

    #[test]
    fn what_is_not_inherited_is_found() {
        assert_eq!(violations(&[("a/Cargo.toml", GOOD.into())]), Vec::<String>::new());
        let own = GOOD.replace("libc.workspace = true", "libc = \"0.2\"");
        assert_eq!(
            violations(&[("a/Cargo.toml", own)]),
            ["a/Cargo.toml: a version of its own: libc = \"0.2\""]
        );
        assert_eq!(violations(&[("a/Cargo.toml", GOOD.replace("[lints]", "[lint]"))]).len(), 1);
        assert_eq!(violations(&[("a/Cargo.toml", GOOD.replace("edition", "editions"))]).len(), 1);
    }
}
