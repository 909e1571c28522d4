//! Files that consumers name by path. They are made with the daemon's rights, so only below one
//! folder, and through no symbolic link.

use std::fs::File;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path};

use rustix::fs::{CWD, Mode, OFlags, ResolveFlags};

/// Makes a file that must not exist, readable by everybody. `path` is absolute and below `folder`,
/// or relative to it.
pub(crate) fn create(folder: &Path, path: &str) -> Result<File, String> {
    let failed = |error: rustix::io::Errno| {
        let reason = std::io::Error::from(error);
        format!("cannot create {path}: {reason}")
    };
    let path_given = Path::new(path);
    let below = if path_given.is_absolute() {
        path_given
            .strip_prefix(folder)
            .map_err(|_| format!("cannot create {path}: files may be made below {} only", folder.display()))?
    } else {
        path_given
    };
    if !below.components().all(|part| matches!(part, Component::Normal(_))) {
        return Err(format!("cannot create {path}: the path must be plain, without \"..\""));
    }
    let flags = OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::PATH;
    let folder = rustix::fs::openat(CWD, folder, flags, Mode::empty()).map_err(failed)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let mode = Mode::RUSR | Mode::WUSR;
    let file: File = rustix::fs::openat2(&folder, below, flags, mode, resolve).map_err(failed)?.into();
    file.set_permissions(std::fs::Permissions::from_mode(0o644)).map_err(|error| error.to_string())?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_made_below_the_folder_only() {
        let place = tempfile::tempdir().unwrap();
        let folder = place.path().join("traces");
        std::fs::create_dir_all(folder.join("sub")).unwrap();
        std::os::unix::fs::symlink(place.path(), folder.join("out")).unwrap();
        std::os::unix::fs::symlink(place.path().join("target"), folder.join("link")).unwrap();
        let absolute = folder.join("a").display().to_string();
        for path in [&absolute, "b", "sub/c"] {
            create(&folder, path).unwrap();
            assert!(create(&folder, path).is_err(), "{path} exists now");
        }
        let mode = std::fs::metadata(folder.join("b")).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o644);
        let elsewhere = place.path().join("x").display().to_string();
        for path in [&elsewhere, "../x", "sub/../../x", "out/x", "link", "", "/", "missing/x"] {
            let error = create(&folder, path).unwrap_err();
            assert!(error.starts_with("cannot create"), "{path}: {error}");
        }
        let mut names: Vec<_> =
            std::fs::read_dir(place.path()).unwrap().map(|e| e.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, ["traces"], "nothing was made elsewhere");
    }
}
