//! `watershed record` where the kernel's events cannot be had: by a user without rights, and on a
//! machine without tracefs. The rest is recorded, and it is said what would help. Needs root, to be
//! somebody else.

mod support;

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Output};

use support::packets;
use tempfile::TempDir;
use watershed_wire::protos::TracePacket;
use watershed_wire::protos::trace_packet::Data;

/// `nobody`, as everywhere.
const NOBODY: u32 = 65_534;
const WITH_EVENTS: &str = r#"
buffers { size_kb: 1024 } duration_ms: 300
data_sources { config { name: "linux.ftrace" ftrace_config { ftrace_events: "sched/sched_switch" } } }
data_sources { config { name: "linux.sys_stats" sys_stats_config { stat_period_ms: 100 } } }
"#;

/// A folder that anybody may write into, with a program that anybody may run: the build's own
/// folders need not be.
struct Place {
    dir: TempDir,
}

impl Place {
    /// `None`, and a word why, if this user cannot be another one.
    fn new() -> Option<Self> {
        if !rustix::process::geteuid().is_root() {
            eprintln!("not root, nothing was tested");
            return None;
        }
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o777)).unwrap();
        let place = Place { dir };
        // By a process of its own: had this one the file open for writing while another test's
        // thread forks, the program would be busy until that child has its own (ETXTBSY).
        let copied = Command::new("cp").arg(env!("CARGO_BIN_EXE_watershed")).arg(place.program()).status();
        assert!(copied.unwrap().success(), "the program can be copied");
        Some(place)
    }

    fn program(&self) -> PathBuf {
        self.dir.path().join("watershed")
    }

    fn start(&self, command: &mut Command) -> (Option<i32>, String) {
        let Output { status, stderr, .. } = command.current_dir(self.dir.path()).output().unwrap();
        (status.code(), String::from_utf8(stderr).unwrap())
    }

    /// Exit code and standard error of `record`, run by nobody.
    fn nobody_records(&self, args: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(self.program());
        command.args(["record", "--no-daemon", "-o", "t"]).args(args).uid(NOBODY).gid(NOBODY);
        self.start(&mut command)
    }

    /// The same of a line of shell in which nothing of tracefs is mounted. The program is `$0`.
    fn without_tracefs(&self, line: &str) -> (Option<i32>, String) {
        let unmount = "for place in /sys/kernel/tracing /sys/kernel/debug; do
            while umount -l $place 2>/dev/null; do :; done
        done";
        let script = format!("{unmount}\n{line}");
        self.start(Command::new("unshare").args(["-m", "sh", "-c", &script]).arg(self.program()))
    }

    fn trace(&self) -> Vec<TracePacket> {
        packets(&fs::read(self.dir.path().join("t")).unwrap())
    }
}

fn has(trace: &[TracePacket], is: fn(&Data) -> bool) -> bool {
    trace.iter().filter_map(|packet| packet.data.as_ref()).any(is)
}

fn has_events(trace: &[TracePacket]) -> bool {
    has(trace, |data| matches!(data, Data::FtraceEvents(_)))
}

/// Whether the rest is there.
#[track_caller]
fn assert_rest(trace: &[TracePacket]) {
    assert!(!has_events(trace));
    assert!(has(trace, |data| matches!(data, Data::SysStats(_))));
    assert!(has(trace, |data| matches!(data, Data::ProcessTree(tree) if tree.processes.len() > 1)));
    assert!(has(trace, |data| matches!(data, Data::CpuInfo(_))));
}

/// Whether namespaces can be made here: containers may forbid it.
fn can_unshare() -> bool {
    let can = Command::new("unshare").args(["-m", "true"]).output().is_ok_and(|run| run.status.success());
    if !can {
        eprintln!("no mount namespaces here, nothing was tested");
    }
    can
}

#[test]
fn a_user_without_rights_records_the_rest() {
    let Some(place) = Place::new() else { return };
    let (code, said) = place.nobody_records(&["-t", "300ms"]);
    assert_eq!(code, Some(0), "{said}");
    let [first, summary] = said.lines().collect::<Vec<_>>()[..] else { panic!("{said}") };
    assert!(first.starts_with("watershed: scheduling is not recorded: "), "{first}");
    // A machine without tracefs has nothing to give to root either.
    assert!(
        first.contains("run as root") || first.contains("as root: mount") || first.contains("CONFIG_FTRACE")
    );
    assert!(summary.ends_with("no data lost"), "{summary}");
    assert_rest(&place.trace());
    let (code, said) = place.nobody_records(&["--", "sh", "-c", "exit 7"]);
    assert_eq!(code, Some(7), "{said}");
    assert!(has(&place.trace(), |data| matches!(data, Data::TrackEvent(_))), "the command is marked");
}

#[test]
fn a_user_without_rights_is_told_what_was_asked_for() {
    let Some(place) = Place::new() else { return };
    let (code, said) = place.nobody_records(&["-t", "300ms", "sched"]);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.starts_with("watershed: no events of the kernel can be recorded: "), "{said}");
    assert!(!place.dir.path().join("t").exists(), "nothing was recorded");
    fs::write(place.dir.path().join("c"), WITH_EVENTS).unwrap();
    let (code, said) = place.nobody_records(&["-c", "c"]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("warning: data source linux.ftrace is not recorded: "), "{said}");
    let trace = place.trace();
    assert!(!has_events(&trace) && has(&trace, |data| matches!(data, Data::SysStats(_))));
}

#[test]
fn a_kernel_without_tracefs_records_the_rest() {
    let Some(place) = Place::new().filter(|_| can_unshare()) else { return };
    let (code, said) = place.without_tracefs(
        "grep -v tracefs /proc/filesystems >filesystems
        mount --bind filesystems /proc/filesystems && exec \"$0\" record --no-daemon -t 300ms -o t",
    );
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("scheduling is not recorded: this kernel has no tracefs"), "{said}");
    assert!(said.contains("CONFIG_FTRACE") && said.contains("no data lost"), "{said}");
    assert_rest(&place.trace());
}

#[test]
fn tracefs_that_only_root_could_mount() {
    let Some(place) = Place::new().filter(|_| can_unshare()) else { return };
    if !fs::read_to_string("/proc/filesystems").unwrap().contains("tracefs") {
        eprintln!("no tracefs here, nothing was tested");
        return;
    }
    let (code, said) = place.without_tracefs(
        "exec setpriv --reuid=65534 --regid=65534 --clear-groups \"$0\" record --no-daemon -t 300ms -o t",
    );
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("as root: mount -t tracefs nodev /sys/kernel/tracing"), "{said}");
    assert_rest(&place.trace());
}
