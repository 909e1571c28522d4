//! `watershed record`: a session of a tracing service that runs, or of one in this process; from
//! the arguments to a finished trace file.
//!
//! ```text
//!   arguments ──> config ──> service ──> data sources? ──> output file ──> session ──> command
//!                 exit 2     exit 1         exit 2            exit 1          │
//!                                                                             │  time is up, signal,
//!                                                                             v  command ended
//!                            exit code  <──  summary  <──  what is left  <── flush, stop
//! ```

mod android;
mod clones;
mod command;
mod config;
mod daemon;
mod embedded;
mod end;
mod events;
mod mark;
mod notify;
mod output;
mod perfetto;
mod progress;
mod report;
mod session;
mod summary;
mod tally;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use watershed_shell::address::Address;

use crate::exit::{Exit, Failure};
use crate::sessions::trigger;
use crate::units;

/// Arguments of `watershed record`.
#[derive(Debug, clap::Args)]
#[command(after_help = EXAMPLES)]
pub(crate) struct Args {
    /// How long to record: 10s, 500ms, 1.5h; from 1ms to 168h [default: 10s, or while COMMAND runs;
    /// with a config its duration_ms, or until Ctrl-C]
    #[arg(short, long, value_name = "TIME", value_parser = units::parse_time, allow_hyphen_values = true)]
    time: Option<Duration>,

    /// Size of the ring buffer: 64MB, 512KB, 1.5GB; from 64KB to 4GB less 1KB [default: 64MB]
    #[arg(short, long = "buffer", value_name = "SIZE", value_parser = units::parse_size_kb, allow_hyphen_values = true)]
    #[arg(conflicts_with = "config")]
    buffer_kb: Option<u32>,

    /// Over how many shards each buffer is spread, from 1 to 1024, if it is large enough: each
    /// takes at least 1 MB [default: one for each CPU that this process may use, and at most one
    /// for each 4 MB]; a service in another process decides for itself
    #[arg(long, value_name = "N", value_parser = units::parse_shards, allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["daemon", "socket"])]
    shards: Option<usize>,

    /// Read a config in Perfetto's text or binary format, from standard input if it is `-`
    #[arg(short, long, value_name = "CONFIG")]
    config: Option<PathBuf>,

    /// Write the trace here, to standard output if it is `-` [default:
    /// trace-<date>-<time>.pftrace]. With CLONE_SNAPSHOT triggers in the config each makes a trace
    /// of its own: OUT.0, OUT.1 and so on
    #[arg(short, long, value_name = "OUT")]
    out: Option<PathBuf>,

    /// Record with the tracing service that runs on this machine, ours or Perfetto's; fail if there
    /// is none [default: with it if there is one and root or you run it, else as --no-daemon]
    #[arg(long, conflicts_with = "no_daemon")]
    daemon: bool,

    /// Record within this process, with its own service and data sources
    #[arg(long)]
    no_daemon: bool,

    /// Where that service listens for consumers, a path or @NAME for an abstract socket; as
    /// --daemon [default: $PERFETTO_CONSUMER_SOCK_NAME, or the place where Perfetto's programs
    /// look]
    #[arg(long, value_name = "C", value_parser = Address::parse, conflicts_with = "no_daemon")]
    socket: Option<Address>,

    /// Record these events of the kernel, as group/name, group/* or name, or these categories of
    /// them (sched, freq, idle, irq, disk, workq, memreclaim, signal, syscalls), instead of what is
    /// recorded without a config
    #[arg(value_name = "EVENT", conflicts_with = "config")]
    events: Vec<String>,

    /// Record while this command runs, mark it in the trace, and return its exit code
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,

    /// Exit code 1 if anything was lost, or if nobody offers a data source of the config
    #[arg(long)]
    fail_on_loss: bool,

    /// Say at the end what was recorded and lost as one line of JSON on standard output, behind
    /// what COMMAND wrote there: file, bytes, seconds, packets, sequences, losses. Of traces for
    /// triggers each has its line when it is written
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    android: android::AndroidArgs,

    // Last: its heading holds for all that follow.
    #[command(flatten)]
    perfetto: perfetto::PerfettoArgs,
}

impl Args {
    /// How many words were taken for events.
    pub(crate) fn words(&self) -> usize {
        self.events.len()
    }
}

const EXAMPLES: &str = "Examples:
  watershed record                                10 s of this machine, into a new file
  watershed record -t 1m -o idle.pftrace          a minute
  watershed record -o build.pftrace -- make -j8   while a command runs
  watershed record -t 5s sched irq/*              who ran where, and interrupts
  watershed record -c config.pbtxt                what a config says";

/// Records, and says at the end what was recorded and what was lost.
pub(crate) fn run(args: &Args, verbose: bool) -> Result<Exit, Failure> {
    if let Some(done) = perfetto::run(args) {
        return done;
    }
    let config = config::load(args)?;
    if !config.view().activate_triggers.is_empty() {
        return trigger::run(&trigger::Args::of(config.view().activate_triggers.clone()));
    }
    session::record(args, &config, verbose)
}
