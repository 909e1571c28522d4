//! A made-up /proc and /sys for tests.

use crate::{Probe, Roots};
use std::fs;
use std::path::Path;
use tempfile::TempDir;
use watershed_wire::protos::TracePacket;

pub(crate) struct FakeMachine {
    dir: TempDir,
}

/// What the fake kernel says of a process.
#[derive(Clone)]
pub(crate) struct FakeProcess {
    pub(crate) pid: i32,
    pub(crate) ppid: i32,
    pub(crate) comm: Vec<u8>,
    pub(crate) cmdline: &'static [u8],
    pub(crate) start_ticks: u64,
    pub(crate) utime_ticks: u64,
    pub(crate) flags: u32,
    pub(crate) rss_kb: Option<u64>,
    pub(crate) nspid: &'static str,
    pub(crate) threads: Vec<(i32, &'static str)>,
}

impl FakeProcess {
    pub(crate) fn new(pid: i32, comm: &str, cmdline: &'static [u8]) -> Self {
        Self {
            pid,
            ppid: 1,
            comm: comm.into(),
            cmdline,
            start_ticks: 100,
            utime_ticks: 7,
            flags: 0,
            rss_kb: Some(1000),
            nspid: "",
            threads: Vec::new(),
        }
    }

    pub(crate) fn kernel_thread(pid: i32, comm: &str) -> Self {
        Self { ppid: 2, flags: 0x0020_8040, rss_kb: None, ..Self::new(pid, comm, b"") }
    }
}

impl FakeMachine {
    pub(crate) fn new() -> Self {
        let machine = Self { dir: tempfile::tempdir().unwrap() };
        fs::create_dir_all(machine.dir.path().join("proc")).unwrap();
        fs::create_dir_all(machine.dir.path().join("sys/devices/system/cpu")).unwrap();
        machine
    }

    pub(crate) fn roots(&self) -> Roots {
        Roots { proc: self.dir.path().join("proc"), sys: self.dir.path().join("sys") }
    }

    /// Writes `proc/...` or `sys/...` with the directories above it.
    pub(crate) fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }

    pub(crate) fn remove(&self, path: impl AsRef<Path>) {
        let path = self.dir.path().join(path);
        if path.is_dir() {
            fs::remove_dir_all(path).unwrap();
        } else {
            fs::remove_file(path).unwrap();
        }
    }

    pub(crate) fn link(&self, path: impl AsRef<Path>, target: &str) {
        let path = self.dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(target, path).unwrap();
    }

    pub(crate) fn process(&self, p: &FakeProcess) {
        let dir = format!("proc/{}", p.pid);
        let rss = p.rss_kb.unwrap_or(0);
        let mut stat = format!("{} (", p.pid).into_bytes();
        stat.extend(&p.comm);
        // Fields 3 to 52 of proc(5).
        stat.extend(
            format!(
                ") S {} 1 1 0 -1 {} 9 0 0 0 {} 3 0 0 20 0 {} 0 {} 4096 {rss} 18446744073709551615 1 1 0 0 0 0 0 0 0 0 0 0 17 0 \
                 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
                p.ppid,
                p.flags,
                p.utime_ticks,
                1 + p.threads.len(),
                p.start_ticks,
            )
            .into_bytes(),
        );
        self.write(format!("{dir}/stat"), stat);
        self.write(format!("{dir}/status"), status(p, p.pid));
        self.write(format!("{dir}/cmdline"), p.cmdline);
        self.write(format!("{dir}/oom_score_adj"), "-500\n");
        for (tid, name) in
            p.threads.iter().copied().chain([(p.pid, std::str::from_utf8(&p.comm).unwrap_or("?"))])
        {
            self.write(format!("{dir}/task/{tid}/comm"), format!("{name}\n"));
            self.write(format!("{dir}/task/{tid}/status"), status(p, tid));
        }
    }
}

fn status(p: &FakeProcess, tid: i32) -> Vec<u8> {
    let mut s = b"Name:\t".to_vec();
    s.extend(&p.comm);
    s.extend(
        format!(
            "\nUmask:\t0022\nState:\tS (sleeping)\nTgid:\t{}\nNgid:\t0\nPid:\t{tid}\nPPid:\t{}\nTracerPid:\t0\n\
             Uid:\t1000\t1001\t1002\t1003\nGid:\t0\t0\t0\t0\nFDSize:\t256\nGroups:\t \nNSpid:\t{tid}{}\n",
            p.pid, p.ppid, p.nspid,
        )
        .into_bytes(),
    );
    if let Some(rss) = p.rss_kb {
        s.extend(
            format!(
                "VmPeak:\t 9 kB\nVmSize:\t 5000 kB\nVmLck:\t 4 kB\nVmPin:\t 0 kB\nVmHWM:\t 2000 kB\nVmRSS:\t {rss} kB\n\
                 RssAnon:\t 300 kB\nRssFile:\t 200 kB\nRssShmem:\t 100 kB\nVmSwap:\t 50 kB\n",
            )
            .into_bytes(),
        );
    }
    s.extend(
        b"Threads:\t1\nSigQ:\t0/1\nSigPnd:\t0\nShdPnd:\t0\nSigBlk:\t0\nSigIgn:\t0\nSigCgt:\t0\nCapInh:\t0\nCapPrm:\t0\nCapEff:\t0\n",
    );
    s
}

/// Polls a probe at a moment and returns what it hands out.
pub(crate) fn poll(probe: &mut impl Probe, now_ms: u64) -> Vec<TracePacket> {
    let mut packets = Vec::new();
    probe.poll(now_ms * 1_000_000, &mut |p| packets.push(p.clone()));
    packets
}
