//! The house rules that can be checked: they are tests, not review comments.
//!
//! Each rule is a function from texts to violations, so that its own tests can show that it bites;
//! `tests/house.rs` applies all of them to the repository. What the compiler can check is in the
//! workspace's lint table instead.
#![forbid(unsafe_code)]

pub mod arrows;
pub mod built;
pub mod checks;
pub mod columns;
pub mod commands;
pub mod length;
pub mod links;
pub mod manifests;
pub mod ratchet;
pub mod records;
pub mod source;
pub mod steps;
pub mod subjects;
pub mod unsafety;
pub mod words;

use std::path::{Path, PathBuf};
use std::process::Command;

/// What the first line of a generated file starts with. The rules are for what people write.
pub const GENERATED: &str = "// @generated";

/// The repository: its root, and the files that git tracks or would track.
pub struct Repository {
    root: PathBuf,
    files: Vec<String>,
}

impl Repository {
    /// The repository that this crate lies in.
    ///
    /// # Panics
    /// When git cannot list it: a rule over no files would always hold.
    pub fn here() -> Self {
        // Of the run, not of the build: checkouts may share a target folder.
        let folder =
            std::env::var("CARGO_MANIFEST_DIR").unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").into());
        let root = Path::new(&folder).join("../..").canonicalize().expect("this crate's folder");
        let output = Command::new("git")
            .args(["ls-files", "--cached", "--others", "--exclude-standard"])
            .current_dir(&root)
            .output()
            .expect("git runs");
        let list = String::from_utf8(output.stdout).expect("names are UTF-8");
        // A file that was removed and not yet committed is still listed.
        let files: Vec<String> =
            list.lines().filter(|file| root.join(file).is_file()).map(String::from).collect();
        assert!(files.iter().any(|file| file == "Cargo.toml"), "git lists no files in {}", root.display());
        Self { root, files }
    }

    /// The root folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Paths of files whose names end with `suffix`, relative to the root, with their texts;
    /// without those that are generated.
    pub fn texts(&self, suffix: &str) -> Vec<(&str, String)> {
        let wanted = self.files.iter().filter(|file| file.ends_with(suffix));
        let texts = wanted.map(|file| (file.as_str(), self.text(file)));
        texts.filter(|(_, text)| !text.starts_with(GENERATED)).collect()
    }

    /// The text of one file.
    ///
    /// # Panics
    /// When it cannot be read.
    pub fn text(&self, file: &str) -> String {
        std::fs::read_to_string(self.root.join(file)).unwrap_or_else(|error| panic!("{file}: {error}"))
    }

    /// Whether git tracks a file of this path.
    pub fn has(&self, file: &str) -> bool {
        self.files.iter().any(|known| known == file)
    }

    /// All paths.
    pub fn files(&self) -> impl Iterator<Item = &str> {
        self.files.iter().map(String::as_str)
    }
}
