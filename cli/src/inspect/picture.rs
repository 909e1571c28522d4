//! `--timeline`: reads the trace once more and draws it.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use indicatif::HumanCount;
use watershed_wire::packet::Envelope;
use watershed_wire::reader::{Limits, RawPacket, TraceReader};

use super::part::Part;
use super::report::Report;
use super::survey::{Survey, number};
use super::timeline::{Picture, Timeline, Window};
use super::unpack::{Broken, unpack};
use super::{is_stdin, open, progress, read};
use crate::exit::{Failure, printed};
use crate::text::counted;
use crate::units;

/// Rows of a picture, unless somebody says how many.
const ROWS: usize = 100;

/// What is to be drawn.
#[derive(Debug, clap::Args)]
pub(super) struct PictureArgs {
    /// Instead of tables: draw slices, events and counters of tracks, and which thread ran on each
    /// CPU, as a picture for any browser; - is standard output
    #[arg(long, value_name = "OUT.svg", conflicts_with_all = ["json", "top"])]
    pub(super) timeline: Option<PathBuf>,

    /// With --timeline: draw from this time on, counted from the trace's first: 0s, 300us, 1.5s
    #[arg(long, value_name = "TIME", requires = "timeline", value_parser = units::parse_moment)]
    from: Option<Duration>,

    /// With --timeline: draw up to this time
    #[arg(long, value_name = "TIME", requires = "timeline", value_parser = units::parse_moment)]
    to: Option<Duration>,

    /// With --timeline: how many rows are drawn; those that follow are counted
    #[arg(long, value_name = "N", default_value_t = ROWS, requires = "timeline")]
    #[arg(value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=1000))]
    rows: usize,
}

impl PictureArgs {
    /// What the parser cannot check.
    pub(super) fn check(&self, trace: &Path) -> Result<(), Failure> {
        if self.timeline.is_some() && is_stdin(trace) {
            return Err(Failure::usage("--timeline reads the trace twice: name a file"));
        }
        match (self.from, self.to) {
            (Some(from), Some(to)) if from >= to => Err(Failure::usage("--from must be before --to")),
            _ => Ok(()),
        }
    }

    /// Draws the trace of which this was found, and says what is in the picture.
    pub(super) fn draw(&self, out: &Path, trace: &Path, report: &Report) -> Result<(), Failure> {
        let (part, size_bytes) = match report.sessions.first() {
            None => (&report.whole, u64::MAX),
            Some(first) => (&first.part, first.size_bytes),
        };
        let window = self.window(part)?;
        let survey = survey(trace, size_bytes, window)
            .map_err(|error| Failure::failed(format_args!("cannot read {}: {error}", trace.display())))?;
        let title = title(&report.file.name, &window, report.sessions.len());
        let picture = survey.timeline.and_then(|timeline| timeline.finish(&title, self.rows));
        let Some(picture) = picture else {
            return Err(Failure::failed(format_args!(
                "nothing to draw in {}: no track event and no scheduling is in this time",
                report.file.name
            )));
        };
        write(out, &picture, &title)
    }

    fn window(&self, part: &Part) -> Result<Window, Failure> {
        let (Some(begin_ns), Some(last_ns)) = (part.time.first_ns, part.time.last_ns) else {
            return Err(Failure::failed("nothing to draw: no packet has a time"));
        };
        let (first_drawn_ns, last_drawn_ns) = drawn(part).unwrap_or((begin_ns, last_ns));
        let at = |time: Duration| begin_ns.saturating_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX));
        let window = Window {
            begin_ns,
            from_ns: self.from.map_or(first_drawn_ns, at),
            to_ns: self.to.map_or(last_drawn_ns, at).min(last_ns),
        };
        let is_moment = self.from.is_none() && self.to.is_none() && window.from_ns == window.to_ns;
        match window.from_ns < window.to_ns || is_moment {
            true => Ok(window),
            false => Err(Failure::usage(format_args!(
                "--from, --to: nothing of the trace is between them, which takes {:.3} s",
                (last_ns - begin_ns) as f64 / 1e9
            ))),
        }
    }
}

/// From when to when there are packets of programs: a service writes its own before and after. The
/// kernel's have no time of their own.
fn drawn(part: &Part) -> Option<(u64, u64)> {
    let has_kernel = part.packets.by_kind.iter().any(|kind| kind.field == Some(number::FTRACE_EVENTS));
    let sequences = part.sequences.iter().filter(|sequence| sequence.pid.is_some() && !has_kernel);
    let times = sequences.filter_map(|sequence| sequence.first_ns.zip(sequence.last_ns));
    times.reduce(|all, (first_ns, last_ns)| (all.0.min(first_ns), all.1.max(last_ns)))
}

/// Reads the first session, of `size_bytes`, once more. What is damaged was told by the first pass.
fn survey(trace: &Path, size_bytes: u64, window: Window) -> io::Result<Survey> {
    let mut survey = Survey::default();
    survey.timeline = Some(Box::new(Timeline::new(window)));
    let progress = progress();
    let mut input = open(trace, &progress).and_then(|input| unpack(input, &Broken::default()))?;
    let mut take = |packet: RawPacket<'_>| {
        if packet.offset_bytes < size_bytes
            && let Ok(envelope) = Envelope::read(packet.bytes)
        {
            survey.take(packet, &envelope);
        }
        Ok(())
    };
    read(&mut *input, &mut TraceReader::new(Limits::default()), &mut take, &mut 0)?;
    progress.finish_and_clear();
    Ok(survey)
}

fn title(name: &str, window: &Window, sessions: usize) -> String {
    let seconds = |ns: u64| (ns - window.begin_ns) as f64 / 1e9;
    let (from, to) = (seconds(window.from_ns), seconds(window.to_ns));
    let of = if sessions > 1 { format!(", the first of {sessions} sessions") } else { String::new() };
    // Of a path the file: pictures are passed on.
    let name = name.rsplit('/').next().unwrap_or(name);
    format!("{name}, {from:.6} s to {to:.6} s{of}")
}

fn write(out: &Path, picture: &Picture, title: &str) -> Result<(), Failure> {
    if is_stdin(out) {
        return printed(io::stdout().write_all(picture.svg.as_bytes()));
    }
    fs::write(out, &picture.svg)
        .map_err(|error| Failure::failed(format_args!("cannot write {}: {error}", out.display())))?;
    let (rows, bytes) = (counted(picture.rows as u64, "row"), HumanCount(picture.svg.len() as u64));
    let mut lines = format!("{}: {rows}, {bytes} bytes, {title}\n", out.display());
    picture.notes.iter().for_each(|note| lines.extend(["  ", note, "\n"]));
    printed(io::stdout().write_all(lines.as_bytes()))
}
