//! Threads that do what is known: they hand a token over, compute, and sleep by timer.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsRawFd as _, RawFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::thread::{CpuSet, gettid, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

pub(crate) const HANDOVERS: usize = 1_000;

pub(crate) fn boottime_ns() -> u64 {
    let now = clock_gettime(ClockId::Boottime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// One of two threads that hand a token back and forth.
pub(crate) struct Player {
    pub(crate) tid: i32,
    pub(crate) cpu: usize,
    /// Right before and right after each hand-over, by CLOCK_BOOTTIME.
    pub(crate) handed_over: Vec<(u64, u64)>,
    pub(crate) cpu_time_ns: u64,
}

fn cpu_time_ns(tid: i32) -> u64 {
    let text = fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// What the kernel counts: how often a thread gave up its CPU or lost it.
fn switches(tid: i32) -> usize {
    let status = fs::read_to_string(format!("/proc/self/task/{tid}/status")).unwrap();
    let counts = status.lines().filter(|line| line.contains("ctxt_switches"));
    counts.map(|line| line.split_whitespace().next_back().unwrap().parse::<usize>().unwrap()).sum()
}

/// Until the thread is off its CPU and waits for that socket: a token that is handed to a thread
/// that has not fallen asleep yet wakes nobody. The state in `stat` says too early that it does.
fn wait_until_asleep(tid: i32, socket: RawFd) {
    let path = format!("/proc/self/task/{tid}/syscall");
    let argument = format!("{socket:#x}");
    while fs::read_to_string(&path).unwrap().split(' ').nth(1) != Some(&argument) {}
}

fn play(
    cpu: usize,
    begins: bool,
    mut token: UnixStream,
    peer_socket: RawFd,
    tids: &mpsc::Sender<i32>,
    peer: &mpsc::Receiver<i32>,
) -> Player {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).unwrap();
    let tid = gettid().as_raw_nonzero().get();
    tids.send(tid).unwrap();
    let peer = peer.recv().unwrap();
    let mut handed_over = Vec::with_capacity(HANDOVERS);
    for turn in 0..HANDOVERS {
        if !(begins && turn == 0) {
            token.read_exact(&mut [0]).unwrap();
        }
        wait_until_asleep(peer, peer_socket);
        let before = boottime_ns();
        token.write_all(&[1]).unwrap();
        handed_over.push((before, boottime_ns()));
    }
    if begins {
        token.read_exact(&mut [0]).unwrap();
    }
    Player { tid, cpu, handed_over, cpu_time_ns: cpu_time_ns(tid) }
}

/// Two players on two CPUs, a thread that sleeps by timer, and a program that is started.
pub(crate) struct Workload {
    pub(crate) players: [Player; 2],
    /// Threads that compute for a while: ids and their own times.
    pub(crate) computing: Vec<(i32, u64)>,
    /// A thread that sleeps by timer: id, and how often it has been switched away from.
    pub(crate) sleeper: (i32, usize),
    pub(crate) child: u32,
    /// The threads live as long as these: who is gone before its events are read has its name from
    /// them alone.
    _alive: Vec<mpsc::Sender<()>>,
}

impl Workload {
    /// The threads, without the program that was started.
    pub(crate) fn tids(&self) -> Vec<i32> {
        let of_players = self.players.iter().map(|player| player.tid);
        of_players.chain(self.computing.iter().map(|&(tid, _)| tid)).chain([self.sleeper.0]).collect()
    }
}

/// A thread that lives on when it has done its work.
struct Named<T>(mpsc::Receiver<T>);

impl<T: Send + 'static> Named<T> {
    fn start(
        name: &str,
        alive: &mut Vec<mpsc::Sender<()>>,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Self {
        let (done, result) = mpsc::channel();
        let (lives_on, until_dropped) = mpsc::channel::<()>();
        alive.push(lives_on);
        let body = move || {
            done.send(work()).unwrap();
            let _ = until_dropped.recv();
        };
        thread::Builder::new().name(name.to_owned()).spawn(body).unwrap();
        Named(result)
    }

    fn result(self) -> T {
        self.0.recv().unwrap()
    }
}

pub(crate) fn run_workload(cpus: [usize; 2]) -> Workload {
    let mut alive = Vec::new();
    let (a, b) = UnixStream::pair().unwrap();
    let (socket_a, socket_b) = (a.as_raw_fd(), b.as_raw_fd());
    let (tid_a, of_a) = mpsc::channel();
    let (tid_b, of_b) = mpsc::channel();
    let ping = Named::start("ping", &mut alive, move || play(cpus[0], true, a, socket_b, &tid_a, &of_b));
    let pong = Named::start("pong", &mut alive, move || play(cpus[1], false, b, socket_a, &tid_b, &of_a));
    let sleeper = Named::start("by-timer", &mut alive, || {
        (0..100).for_each(|_| thread::sleep(Duration::from_millis(1)));
        let tid = gettid().as_raw_nonzero().get();
        (tid, switches(tid))
    });
    let mut child = Command::new("true").spawn().unwrap();
    let pid = child.id();
    assert!(child.wait().unwrap().success());
    let players = [ping, pong].map(Named::result);
    // After them: a thread is charged less where others are charged from their waking on.
    let computing = (0..5).map(|_| Named::start("computes", &mut alive, compute).result()).collect();
    Workload { players, computing, sleeper: sleeper.result(), child: pid, _alive: alive }
}

/// For a fifth of a second of the thread's own time. Returns its id and that time.
fn compute() -> (i32, u64) {
    let own_ns = || {
        let time = clock_gettime(ClockId::ThreadCPUTime);
        time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
    };
    while own_ns() < 200_000_000 {
        std::hint::black_box((0..10_000_u64).sum::<u64>());
    }
    let tid = gettid().as_raw_nonzero().get();
    (tid, cpu_time_ns(tid))
}

/// Every CPU is busy with something that gives way to everybody.
pub(crate) struct Load(Vec<Child>);

impl Load {
    pub(crate) fn start(cpus: usize) -> Self {
        let spin =
            || Command::new("nice").args(["-n", "19", "sh", "-c", "while :; do :; done"]).spawn().unwrap();
        Load((0..cpus).map(|_| spin()).collect())
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
