//! `watershed inspect`: what is in a trace file, and whether it is complete.
//!
//! ```text
//!   file ──> TraceReader ──packets──> Sessions ──> Survey ──at its end──> Part ──> Report ──> text
//!                                         └──────> the next session's                        or JSON
//! ```
//!
//! Memory is bounded whatever the trace is: one packet, and counts whose number has a limit (kinds,
//! sequences, processes, sessions).

mod clocks;
mod commands;
mod human;
mod kernel;
mod part;
mod picture;
mod processes;
mod report;
mod rows;
mod sequences;
mod session;
mod sessions;
mod survey;
mod tally;
mod timeline;
mod together;
mod top;
mod unpack;
mod verdict;

use std::fs::File;
use std::io::{self, BufWriter, ErrorKind, IsTerminal as _, Read, Write as _};
use std::path::{Path, PathBuf};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use watershed_wire::reader::{Damage, DamageKind, Limits, RawPacket, TraceReader};

use self::picture::PictureArgs;
use self::report::{Report, Source};
use self::sessions::Sessions;
use self::unpack::{Broken, unpack};
use crate::exit::{Exit, Failure, printed};

/// Rows of each table of `--top`, unless somebody says how many.
const TOP_ROWS: usize = 20;

/// Shorter files are read before anybody has seen how far it is.
const PROGRESS_BYTES_MIN: u64 = 64 << 20;

/// Arguments of `watershed inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The trace file, or - for standard input; also compressed with gzip or zstd
    #[arg(value_name = "TRACE")]
    trace: PathBuf,

    /// Print one JSON document instead of tables; docs/inspect.md describes it
    #[arg(long)]
    json: bool,

    /// Instead of what is in the trace: how long processes and threads ran, were runnable and were
    /// blocked, and who woke whom; with --json besides
    #[arg(long)]
    top: bool,

    /// Rows of each table of --top; --verbose and --json have all
    #[arg(long, value_name = "N", default_value_t = TOP_ROWS, requires = "top")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    limit: usize,

    /// Exit code 1 if the trace tells of any loss
    #[arg(long)]
    fail_on_loss: bool,

    #[command(flatten)]
    picture: PictureArgs,
}

/// Reads the trace once, in bounded memory, and prints what was found; damage is reported after
/// everything before it.
pub(crate) fn run(args: &Args, verbose: bool) -> Result<Exit, Failure> {
    args.picture.check(&args.trace)?;
    let name = match is_stdin(&args.trace) {
        true => "standard input".to_owned(),
        false => args.trace.display().to_string(),
    };
    let cannot_read = |error| Failure::failed(format_args!("cannot read {name}: {error}"));
    let broken = Broken::default();
    let progress = progress();
    let input = open(&args.trace, &progress).and_then(|input| unpack(input, &broken));
    let mut input = input.map_err(cannot_read)?;
    let mut sessions = Sessions::new(args.top);
    let mut reader = TraceReader::new(Limits::default());
    let mut read_bytes = 0;
    let mut take = |packet: RawPacket<'_>| sessions.take(packet);
    let damage = read(&mut *input, &mut reader, &mut take, &mut read_bytes);
    progress.finish_and_clear();
    let damage = damage.map_err(cannot_read)?;
    if sessions.packets() == 0
        && let Some(reason) = broken.take().or_else(|| no_trace(read_bytes, damage.as_ref()))
    {
        return Err(Failure::failed(format_args!("{name} is no trace: {reason}")));
    }
    let has_too_many_sessions = sessions.are_too_many;
    let sessions = sessions.finish(read_bytes, damage.as_ref());
    let compressed_packets = reader.packets_compressed();
    let source = Source { name, read_bytes, compressed_packets, damage, has_too_many_sessions };
    let report = Report::new(sessions, &source);
    match &args.picture.timeline {
        Some(out) => args.picture.draw(out, &args.trace, &report)?,
        None => printed(print(&report, args, verbose))?,
    }
    let broken = broken.take().map(|broken| format!("ends early: {broken}"));
    let losses = report.whole.losses.len();
    let lossy = (args.fail_on_loss && losses > 0).then(|| format!("tells of {losses} kinds of loss"));
    match wrong(&report, source.damage.as_ref()).or(broken).or(lossy) {
        Some(wrong) => Err(Failure::failed(format_args!("{} {wrong}", source.name))),
        None => Ok(Exit::Done),
    }
}

/// What is wrong with the file, and where.
fn wrong(report: &Report, damage: Option<&Damage>) -> Option<String> {
    let completeness = &report.whole.completeness;
    let garbled = completeness.undecodable_offset_bytes.map(|offset| {
        let count = completeness.undecodable_packets;
        let packets = if count == 1 { "packet" } else { "packets" };
        format!("has {count} {packets} whose contents cannot be decoded, the first at byte {offset}")
    });
    let damaged = damage.map(|damage| format!("is damaged at {damage}"));
    match (damaged, garbled) {
        (Some(damaged), Some(garbled)) => Some(format!("{damaged}; it {garbled}")),
        (damaged, garbled) => damaged.or(garbled),
    }
}

fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

fn open(path: &Path, progress: &ProgressBar) -> io::Result<Box<dyn Read>> {
    if is_stdin(path) {
        return Ok(Box::new(progress.wrap_read(io::stdin().lock())));
    }
    let file = File::open(path)?;
    let size_bytes = file.metadata()?.len();
    progress.set_length(size_bytes);
    if size_bytes >= PROGRESS_BYTES_MIN && io::stderr().is_terminal() {
        progress.set_draw_target(ProgressDrawTarget::stderr_with_hz(4));
    }
    Ok(Box::new(progress.wrap_read(file)))
}

/// Hidden until it is known to be worth a line.
fn progress() -> ProgressBar {
    let template = "reading {bar:40} {bytes} of {total_bytes}";
    let style = ProgressStyle::with_template(template).expect("a test draws the template");
    ProgressBar::with_draw_target(None, ProgressDrawTarget::hidden()).with_style(style)
}

/// Drives the reader to the end of the input or to the first damage, which is what it gives.
fn read(
    input: &mut dyn Read,
    reader: &mut TraceReader,
    take: &mut impl FnMut(RawPacket<'_>) -> Result<(), Damage>,
    read_bytes: &mut u64,
) -> io::Result<Option<Damage>> {
    loop {
        match take_packets(reader, take) {
            Ok(()) => {}
            Err(damage) => return Ok(Some(damage)),
        }
        match input.read(reader.spare()) {
            Ok(0) => return Ok(reader.end().err()),
            Ok(size_bytes) => {
                reader.received(size_bytes);
                *read_bytes += size_bytes as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn take_packets(
    reader: &mut TraceReader,
    take: &mut impl FnMut(RawPacket<'_>) -> Result<(), Damage>,
) -> Result<(), Damage> {
    while let Some(packet) = reader.poll_packet()? {
        take(packet)?;
    }
    Ok(())
}

/// Why there is nothing to report at all.
fn no_trace(read_bytes: u64, damage: Option<&Damage>) -> Option<String> {
    if read_bytes == 0 {
        return Some("it is empty".to_owned());
    }
    let damage = damage?;
    match damage.kind {
        DamageKind::NoPacket { .. } => Some(damage.to_string()),
        _ => None,
    }
}

fn print(report: &Report, args: &Args, verbose: bool) -> io::Result<()> {
    let mut out = BufWriter::new(io::stdout().lock());
    if args.json {
        serde_json::to_writer_pretty(&mut out, report)?;
        writeln!(out)?;
    } else {
        let rows = if verbose { usize::MAX } else { args.limit };
        human::write(&mut out, report, verbose, args.top.then_some(rows))?;
    }
    out.flush()
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_template_is_valid() {
        let progress = super::progress();
        assert!(progress.is_hidden());
        progress.finish_and_clear();
    }
}
