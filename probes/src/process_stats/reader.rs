//! The files of one process. Any of them may be gone or refused at any time; that is normal and
//! never reported.

use crate::file::{read_number, read_path};
use procfs_core::process::{SmapsRollup, Stat, Status};
use procfs_core::{FromBufRead, FromRead};
use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of a command line that are reported at most; the rest is cut off. Compilers and JVMs reach
/// some ten KiB.
pub(super) const CMDLINE_SIZE_MAX: usize = 32 << 10;

/// Reads below one /proc with buffers that are kept.
#[derive(Debug)]
pub(super) struct Reader {
    root: PathBuf,
    path: PathBuf,
    scratch: Vec<u8>,
}

impl Reader {
    pub(super) fn new(root: PathBuf) -> Self {
        Self { path: root.clone(), root, scratch: Vec::new() }
    }

    /// The numbers of all processes, in the kernel's order.
    pub(super) fn pids(&self, into: &mut Vec<i32>) {
        numbered_entries(&self.root, into);
    }

    /// The numbers of a process's threads, its main thread included.
    pub(super) fn tids(&mut self, pid: i32, into: &mut Vec<i32>) {
        self.set_path(format_args!("/{pid}/task"));
        numbered_entries(&self.path, into);
    }

    /// The `stat` line as it is.
    pub(super) fn stat_line(&mut self, pid: i32) -> Option<&[u8]> {
        self.set_path(format_args!("/{pid}/stat"));
        read_path(&self.path, &mut self.scratch).ok()
    }

    pub(super) fn status(&mut self, pid: i32) -> Option<Status> {
        self.set_path(format_args!("/{pid}/status"));
        self.parse_status()
    }

    pub(super) fn thread_status(&mut self, pid: i32, tid: i32) -> Option<Status> {
        self.set_path(format_args!("/{pid}/task/{tid}/status"));
        self.parse_status()
    }

    fn parse_status(&mut self) -> Option<Status> {
        let content = read_path(&self.path, &mut self.scratch).ok()?;
        // A process may call itself anything; the crate refuses what is not UTF-8.
        let content = String::from_utf8_lossy(content);
        Status::from_buf_read(content.as_bytes()).ok()
    }

    /// The name of a thread, which is not its process's name.
    pub(super) fn thread_comm(&mut self, pid: i32, tid: i32) -> Option<Cow<'_, str>> {
        self.set_path(format_args!("/{pid}/task/{tid}/comm"));
        let content = read_path(&self.path, &mut self.scratch).ok()?;
        Some(String::from_utf8_lossy(content.strip_suffix(b"\n").unwrap_or(content)))
    }

    /// The arguments; empty for kernel threads and for processes that have ended.
    pub(super) fn cmdline(&mut self, pid: i32) -> Vec<String> {
        self.set_path(format_args!("/{pid}/cmdline"));
        read_path(&self.path, &mut self.scratch).map(split_cmdline).unwrap_or_default()
    }

    pub(super) fn oom_score_adj(&mut self, pid: i32) -> Option<i64> {
        self.set_path(format_args!("/{pid}/oom_score_adj"));
        read_number(&self.path, &mut self.scratch).ok()
    }

    pub(super) fn dmabuf_rss_bytes(&mut self, pid: i32) -> Option<u64> {
        self.set_path(format_args!("/{pid}/dmabuf_rss"));
        u64::try_from(read_number(&self.path, &mut self.scratch).ok()?).ok()
    }

    /// The sums over all mappings, in bytes by their names in the file.
    pub(super) fn smaps_rollup(&mut self, pid: i32) -> Option<HashMap<String, u64>> {
        self.set_path(format_args!("/{pid}/smaps_rollup"));
        let content = read_path(&self.path, &mut self.scratch).ok()?;
        let rollup = SmapsRollup::from_buf_read(content).ok()?;
        rollup.memory_map_rollup.0.into_iter().next().map(|m| m.extension.map)
    }

    /// Calls `each` with every open descriptor that `wanted` selects and what it points to.
    pub(super) fn fds(&mut self, pid: i32, wanted: impl Fn(u64) -> bool, mut each: impl FnMut(u64, String)) {
        self.set_path(format_args!("/{pid}/fd"));
        for entry in fs::read_dir(&self.path).into_iter().flatten().flatten() {
            let fd = entry.file_name().to_str().and_then(|n| n.parse().ok());
            if let Some(fd) = fd.filter(|&fd| wanted(fd))
                && let Ok(target) = fs::read_link(entry.path())
            {
                each(fd, target.to_string_lossy().into_owned());
            }
        }
    }

    fn set_path(&mut self, below: std::fmt::Arguments<'_>) {
        let path = self.path.as_mut_os_string();
        path.clear();
        path.push(&self.root);
        path.write_fmt(below).expect("an OsString takes whatever is written");
    }
}

/// `None` for half a line. The crate would panic on one that ends with the name.
pub(super) fn parse_stat(line: &[u8]) -> Option<Stat> {
    let name = line.iter().position(|&b| b == b'(')?..line.iter().rposition(|&b| b == b')')?;
    (name.start > 1 && !name.is_empty() && line.len() > name.end + 2).then(|| Stat::from_read(line).ok())?
}

fn numbered_entries(dir: &Path, into: &mut Vec<i32>) {
    into.clear();
    let entries = fs::read_dir(dir).into_iter().flatten().flatten();
    into.extend(entries.filter_map(|e| e.file_name().to_str()?.parse::<i32>().ok().filter(|&n| n > 0)));
}

fn split_cmdline(content: &[u8]) -> Vec<String> {
    // Programs that write their title over their arguments leave a tail of zeroes.
    let end = content.iter().rposition(|&b| b != 0).map_or(0, |i| i + 1);
    let content = &content[..end.min(CMDLINE_SIZE_MAX)];
    if content.is_empty() {
        return Vec::new();
    }
    content.split(|&b| b == 0).map(|a| String::from_utf8_lossy(a).into_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_a_stat_line_is_none() {
        let line = std::fs::read("/proc/self/stat").unwrap();
        assert_eq!(parse_stat(&line).unwrap().pid, std::process::id().cast_signed());
        // Up to the last field that every kernel has.
        let fields_40 = line.split(|&b| b == b' ').take(36).map(|f| f.len() + 1).sum::<usize>();
        for cut in 0..fields_40 {
            assert!(parse_stat(&line[..cut]).is_none(), "{cut}");
        }
        for line in ["", "(", ")", "1 )(", "1 ()", "1 () ", "1 () S", "() S 1", "1 (a) S 1"] {
            assert!(parse_stat(line.as_bytes()).is_none(), "{line}");
        }
    }

    #[test]
    fn command_lines() {
        assert_eq!(split_cmdline(b""), Vec::<String>::new());
        assert_eq!(split_cmdline(b"\0\0\0"), Vec::<String>::new());
        assert_eq!(split_cmdline(b"a\0"), ["a"]);
        assert_eq!(split_cmdline(b"a\0\0c\0"), ["a", "", "c"], "an empty argument is one");
        assert_eq!(split_cmdline(b"title of it\0\0\0\0"), ["title of it"]);
        assert_eq!(split_cmdline(b"no end"), ["no end"]);
        assert_eq!(split_cmdline(b"\xff\0"), ["\u{fffd}"]);
        let long = vec![b'x'; CMDLINE_SIZE_MAX * 2];
        assert_eq!(split_cmdline(&long)[0].len(), CMDLINE_SIZE_MAX);
    }
}
