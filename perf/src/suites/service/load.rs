//! Producers in a process of their own, whose threads write at a given rate over real sockets.

use super::packets::{CHUNK_PAYLOAD_BYTES, number, packets};
use crate::measure::WrongAnswer;
use crate::suites::processes::{Process, Role, say};
use serde::{Deserialize, Serialize};
use std::io::BufRead as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Barrier};
use std::time::{Duration, Instant};
use watershed_client::remote::{RemoteOptions, RemoteProducer};
use watershed_client::{Context, DataSource, DataSourceFactory, TraceWriter, Wake};
use watershed_shell::address::Address;
use watershed_smb::SmbSize;
use watershed_wire::protos::DataSourceDescriptor;

/// How late a thread may be and still catch up, in time at its rate: more at once would be another
/// rate. What it is later than that is not written.
const CATCH_UP: Duration = Duration::from_millis(1);
/// How long a thread that is in time sleeps.
const NAP: Duration = Duration::from_micros(200);
/// Shared memory of the producer with four threads.
pub(super) const SHM_SIZE_BYTES: usize = 4 << 20;
const PATIENCE: Duration = Duration::from_secs(30);

/// What a process of producers is and does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LoadRole {
    pub(super) producer_socket: PathBuf,
    /// The data source's name.
    pub(super) source: String,
    pub(super) num_producers: usize,
    /// Writers of each producer.
    pub(super) num_writers: usize,
    /// Threads of the process, among which the writers are dealt out.
    pub(super) num_threads: usize,
    /// Shared memory of each producer.
    pub(super) shm_size_bytes: usize,
    /// How many chunks a commit has. 0: the client library decides; 1: it commits what is full as
    /// soon as it gets to it.
    pub(super) chunks_per_commit: u64,
    /// Whether the packets have as much in them as those of programs: half of it compresses away.
    pub(super) has_content: bool,
}

impl LoadRole {
    /// Four threads with 4 MiB of shared memory and commits of 32 chunks.
    pub(super) fn four_threads(producer_socket: PathBuf, source: &str) -> LoadRole {
        LoadRole {
            producer_socket,
            source: source.to_owned(),
            num_producers: 1,
            num_writers: 4,
            num_threads: 4,
            shm_size_bytes: SHM_SIZE_BYTES,
            chunks_per_commit: 32,
            has_content: false,
        }
    }

    /// Producers that offer their data source and write nothing.
    pub(super) fn idle(producer_socket: PathBuf, source: &str) -> LoadRole {
        let shm_size_bytes = 128 << 10;
        let four = LoadRole::four_threads(producer_socket, source);
        LoadRole { num_writers: 1, num_threads: 1, shm_size_bytes, ..four }
    }
}

/// What the suite asks of the process.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) enum Order {
    /// Take the writers of the session that has just been started.
    Arm,
    /// Write.
    Write {
        /// Of all threads together, in bytes of packets.
        bytes_per_s: u64,
        duration_ms: u64,
    },
}

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Written {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    /// Of these so many were lost: no chunk was free, or the ring was full before its file was
    /// written.
    pub(super) packets_dropped: u64,
    pub(super) bytes_dropped: u64,
    pub(super) seconds: f64,
}

impl Written {
    pub(super) fn loss_percent(&self) -> f64 {
        self.bytes_dropped as f64 / self.bytes.max(1) as f64 * 100.0
    }

    pub(super) fn gb_accepted(&self) -> f64 {
        (self.bytes - self.bytes_dropped) as f64 / 1e9
    }

    pub(super) fn mb_per_s(&self) -> f64 {
        self.bytes as f64 / 1e6 / self.seconds
    }

    /// These were taken and are not in the trace: all packets have the same mean size.
    pub(super) fn add_lost(&mut self, packets: u64) {
        self.bytes_dropped += self.bytes / self.packets.max(1) * packets;
        self.packets_dropped += packets;
    }

    /// What another thread has written in the same time.
    pub(super) fn add(&mut self, other: &Written) {
        self.packets += other.packets;
        self.bytes += other.bytes;
        self.packets_dropped += other.packets_dropped;
        self.bytes_dropped += other.bytes_dropped;
        self.seconds = self.seconds.max(other.seconds);
    }
}

/// A process of producers, from the suite's side.
pub(super) struct Load(Process);

impl Load {
    /// Starts it; returns when its data sources are registered.
    pub(super) fn start(role: LoadRole) -> Result<Load, WrongAnswer> {
        Process::start_ready(&Role::Load(role)).map(Load)
    }

    /// Starts several at once.
    pub(super) fn start_all(role: &LoadRole, number: usize) -> Result<Vec<Load>, WrongAnswer> {
        let start = |_| Process::start(&Role::Load(role.clone())).map(Load);
        let mut all = (0..number).map(start).collect::<Result<Vec<_>, _>>()?;
        all.iter_mut().try_for_each(|load| load.0.answer::<String>().map(drop))?;
        Ok(all)
    }

    /// To be called once a session with the data source has started.
    pub(super) fn arm(&mut self) -> Result<(), WrongAnswer> {
        self.0.tell(&Order::Arm)?;
        self.0.answer::<String>().map(drop)
    }

    pub(super) fn begin(&mut self, bytes_per_s: u64, duration: Duration) -> Result<(), WrongAnswer> {
        self.0.tell(&Order::Write { bytes_per_s, duration_ms: duration.as_millis() as u64 })
    }

    /// What was written, once all of it was.
    pub(super) fn end(&mut self) -> Result<Written, WrongAnswer> {
        self.0.answer()
    }

    pub(super) fn write(&mut self, bytes_per_s: u64, duration: Duration) -> Result<Written, WrongAnswer> {
        self.begin(bytes_per_s, duration)?;
        self.end()
    }
}

/// A data source that passes its writers on.
struct Source {
    name: String,
    num_writers: usize,
    writers: Sender<TraceWriter>,
}

impl DataSourceFactory for Source {
    fn descriptor(&self) -> DataSourceDescriptor {
        DataSourceDescriptor {
            name: Some(self.name.clone()),
            will_notify_on_start: Some(true),
            ..Default::default()
        }
    }

    fn setup(&mut self, cx: &mut Context<'_>) -> Result<Box<dyn DataSource>, String> {
        for _ in 0..self.num_writers {
            self.writers.send(cx.create_writer()).map_err(|gone| gone.to_string())?;
        }
        Ok(Box::new(Idle))
    }
}

/// The threads do all of the work.
struct Idle;

impl DataSource for Idle {
    fn start(&mut self, _cx: &mut Context<'_>) -> Wake {
        Wake::Never
    }
}

/// A connected producer, in its own process.
struct Producer {
    /// Serves the connection as long as it lives.
    _remote: RemoteProducer,
    writers: Receiver<TraceWriter>,
}

impl Producer {
    fn connect(role: &LoadRole) -> Result<Producer, String> {
        let mut options = RemoteOptions::for_sockets(vec![Address::Path(role.producer_socket.clone())]);
        options.smb_size = SmbSize::negotiate(4096, role.shm_size_bytes);
        match role.chunks_per_commit {
            0 => {}
            1 => options.arbiter.batch_commits_duration = Duration::ZERO,
            // Longer than what a commit takes to fill: the number of chunks decides.
            _ => options.arbiter.batch_commits_duration = Duration::from_millis(200),
        }
        let (sender, writers) = mpsc::channel();
        let remote = RemoteProducer::connect(options, |_| ()).map_err(|error| error.to_string())?;
        let (name, num_writers) = (role.source.clone(), role.num_writers);
        remote.register(Box::new(Source { name, num_writers, writers: sender }));
        Ok(Producer { _remote: remote, writers })
    }
}

/// A writer of a session, and where it is in its sequence.
struct Line {
    writer: TraceWriter,
    next: u64,
    /// Chunks of this producer so far, if their number decides when they are committed.
    chunks: Arc<AtomicU64>,
    /// Bytes since this writer last filled a chunk, about.
    in_chunk_bytes: u64,
}

impl LoadRole {
    pub(in crate::suites) fn play(self) -> Result<(), String> {
        let producers =
            (0..self.num_producers).map(|_| Producer::connect(&self)).collect::<Result<Vec<_>, _>>()?;
        for producer in &producers {
            let started = Instant::now();
            while !producer._remote.sync(Duration::from_secs(1)) {
                if started.elapsed() > PATIENCE {
                    return Err("the daemon does not answer a producer".to_owned());
                }
            }
        }
        say(&"ready")?;
        let mut lines = Vec::new();
        for order in std::io::stdin().lock().lines() {
            let order = order.map_err(|error| error.to_string())?;
            match serde_json::from_str(&order).map_err(|error| error.to_string())? {
                Order::Arm => {
                    lines = self.arm(&producers)?;
                    say(&"armed")?;
                }
                Order::Write { bytes_per_s, duration_ms } => {
                    let duration = Duration::from_millis(duration_ms);
                    say(&self.write(&mut lines, bytes_per_s, duration))?;
                }
            }
        }
        Ok(())
    }

    fn arm(&self, producers: &[Producer]) -> Result<Vec<Line>, String> {
        let mut lines = Vec::new();
        for producer in producers {
            let chunks = Arc::new(AtomicU64::new(0));
            for _ in 0..self.num_writers {
                let writer = producer.writers.recv_timeout(PATIENCE).map_err(|error| error.to_string())?;
                lines.push(Line { writer, next: 0, chunks: Arc::clone(&chunks), in_chunk_bytes: 0 });
            }
        }
        Ok(lines)
    }

    fn write(&self, lines: &mut [Line], bytes_per_s: u64, duration: Duration) -> Written {
        let per_thread = lines.len().div_ceil(self.num_threads).max(1);
        let num_threads = lines.len().div_ceil(per_thread).max(1);
        let pace = Pace {
            bytes_per_s: bytes_per_s as f64 / num_threads as f64,
            duration,
            chunks_per_commit: self.chunks_per_commit,
        };
        let barrier = Barrier::new(num_threads);
        let mut sum = Written::default();
        std::thread::scope(|scope| {
            let start = |lines| {
                let (pace, barrier) = (&pace, &barrier);
                scope.spawn(move || {
                    let mut packets = packets(self.has_content);
                    barrier.wait();
                    pace.write(lines, &mut packets)
                })
            };
            let threads: Vec<_> = lines.chunks_mut(per_thread).map(start).collect();
            for thread in threads {
                sum.add(&thread.join().expect("a thread that writes does not panic"));
            }
        });
        sum
    }
}

/// At which rate a thread writes.
struct Pace {
    bytes_per_s: f64,
    duration: Duration,
    chunks_per_commit: u64,
}

impl Pace {
    fn write(&self, lines: &mut [Line], packets: &mut [Vec<u8>]) -> Written {
        let mut written = Written::default();
        let (start, mut skipped_bytes) = (Instant::now(), 0.0);
        let (mut which, mut line) = (0, 0);
        loop {
            let elapsed = start.elapsed();
            if elapsed >= self.duration {
                break;
            }
            let behind_bytes =
                self.bytes_per_s * elapsed.as_secs_f64() - skipped_bytes - written.bytes as f64;
            let most_bytes = self.bytes_per_s * CATCH_UP.as_secs_f64();
            skipped_bytes += (behind_bytes - most_bytes).max(0.0);
            let until_bytes = written.bytes as f64 + behind_bytes.min(most_bytes);
            while (written.bytes as f64) < until_bytes {
                self.write_one(&mut lines[line], &mut packets[which], &mut written);
                which = (which + 1) % packets.len();
                line = (line + 1) % lines.len();
            }
            std::thread::sleep(NAP);
        }
        lines.iter_mut().for_each(|line| line.writer.flush());
        Written { seconds: start.elapsed().as_secs_f64(), ..written }
    }

    fn write_one(&self, line: &mut Line, packet: &mut [u8], written: &mut Written) {
        number(packet, line.next);
        line.next += 1;
        let dropped = line.writer.packets_dropped();
        line.writer.write_packet(packet);
        let size_bytes = packet.len() as u64;
        written.packets += 1;
        written.bytes += size_bytes;
        if line.writer.packets_dropped() != dropped {
            written.packets_dropped += 1;
            written.bytes_dropped += size_bytes;
            return;
        }
        line.in_chunk_bytes += size_bytes;
        if self.chunks_per_commit > 1 && line.in_chunk_bytes >= CHUNK_PAYLOAD_BYTES {
            line.in_chunk_bytes -= CHUNK_PAYLOAD_BYTES;
            // Relaxed: a count, which publishes nothing.
            let chunks = line.chunks.fetch_add(1, Ordering::Relaxed) + 1;
            if chunks.is_multiple_of(self.chunks_per_commit) {
                line.writer.flush();
            }
        }
    }
}

/// For those who connect by hand.
pub(super) fn address(producer_socket: &Path) -> Address {
    Address::Path(producer_socket.to_owned())
}
