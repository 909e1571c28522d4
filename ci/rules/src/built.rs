//! Whether a program that lies beside a test was built from what the repository holds now.

use std::fs;
use std::path::{Path, PathBuf};

/// Whether `program` is there and younger than every file that it was built from, which cargo lists
/// beside it.
pub fn is_current(program: &Path) -> bool {
    let modified = |path: &Path| fs::metadata(path).and_then(|data| data.modified()).ok();
    let (Some(built), Ok(list)) = (modified(program), fs::read_to_string(program.with_extension("d"))) else {
        return false;
    };
    let sources = sources(&list);
    // A source that is gone is a change too.
    !sources.is_empty() && sources.iter().all(|source| modified(source).is_some_and(|time| time <= built))
}

/// The files of a line "PROGRAM: FILE FILE ...", in which blanks of names have a backslash before
/// them.
fn sources(list: &str) -> Vec<PathBuf> {
    let files = list.lines().next().and_then(|line| line.split_once(": ")).map_or("", |(_, files)| files);
    let files = files.replace("\\ ", "\0");
    files.split_whitespace().map(|file| PathBuf::from(file.replace('\0', " "))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::{Duration, SystemTime};

    #[test]
    fn a_list_is_split_at_blanks_that_are_not_part_of_a_name() {
        assert_eq!(
            sources("/x/program: /a/b.rs /my\\ files/c.rs\n"),
            ["/a/b.rs", "/my files/c.rs"].map(PathBuf::from)
        );
        assert!(sources("").is_empty());
    }

    #[test]
    fn a_program_is_stale_when_a_source_is_younger_or_gone_or_not_known() {
        let folder = std::env::temp_dir().join(format!("watershed-built-{}", std::process::id()));
        fs::create_dir_all(&folder).unwrap();
        let (program, source, list) = (folder.join("program"), folder.join("a.rs"), folder.join("program.d"));
        let now = SystemTime::now();
        let touch = |path: &Path, time: SystemTime| {
            let file = fs::OpenOptions::new().write(true).create(true).truncate(false).open(path).unwrap();
            file.set_modified(time).unwrap();
        };
        touch(&program, now);
        touch(&source, now - Duration::from_secs(9));
        assert!(!is_current(&program), "nothing is known of its sources");
        fs::write(&list, format!("{}: {}\n", program.display(), source.display())).unwrap();
        assert!(is_current(&program));
        touch(&source, now + Duration::from_secs(9));
        assert!(!is_current(&program), "a source is younger");
        fs::remove_file(&source).unwrap();
        assert!(!is_current(&program), "a source is gone");
        fs::remove_dir_all(&folder).unwrap();
    }
}
