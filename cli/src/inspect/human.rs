//! The report as aligned text.

use std::io::{self, Write};

use indicatif::{HumanBytes, HumanCount};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::commands::Command;
use super::part::Part;
use super::report::Report;
use super::rows::{Buffer, Sequence};
use super::top;
use super::verdict::{Loss, Verdict};
use crate::text::{counted, printable, seconds, table, write_table};

/// Rows of the tables; JSON has them all, and so has `--verbose`.
const ROWS_MAX: usize = 40;

/// `top_rows` are wanted of scheduling, instead of what else there is in the trace.
pub(super) fn write(
    out: &mut impl Write,
    report: &Report,
    verbose: bool,
    top_rows: Option<usize>,
) -> io::Result<()> {
    let write_part = |out: &mut _, part: &Part, size_bytes| match (&part.scheduling, top_rows) {
        (Some(scheduling), Some(rows_max)) => top::write(out, scheduling, rows_max),
        _ => write_part(out, part, size_bytes, verbose),
    };
    let several = match report.sessions.len() {
        0 => String::new(),
        number => format!("{number} sessions, "),
    };
    writeln!(out, "{}: {several}{}", printable(&report.file.name), headline(&report.whole))?;
    write_reasons(out, &report.whole)?;
    if report.sessions.is_empty() {
        return write_part(out, &report.whole, report.file.read_bytes);
    }
    for (index, session) in report.sessions.iter().enumerate() {
        let (number, of) = (index + 1, report.sessions.len());
        let headline = headline(&session.part);
        writeln!(out, "\nsession {number} of {of}, from byte {}: {headline}", session.offset_bytes)?;
        write_part(out, &session.part, session.size_bytes)?;
    }
    Ok(())
}

/// What is missing and what was lost.
fn write_reasons(out: &mut impl Write, part: &Part) -> io::Result<()> {
    for reason in &part.completeness.reasons {
        writeln!(out, "  {}", printable(reason))?;
    }
    for loss in &part.losses {
        let session = loss.session.map_or_else(String::new, |number| format!("session {number}: "));
        let buffer = loss.buffer.map_or_else(String::new, |index| format!("buffer {index}: "));
        let count = HumanCount(loss.count);
        let meaning = printable(&loss.meaning);
        writeln!(out, "  lost: {session}{buffer}{count} {meaning} ({})", loss.cause)?;
    }
    Ok(())
}

fn write_part(out: &mut impl Write, part: &Part, size_bytes: u64, verbose: bool) -> io::Result<()> {
    let rows_max = if verbose { usize::MAX } else { ROWS_MAX };
    writeln!(out)?;
    write_facts(out, part, size_bytes)?;
    write_kinds(out, part, rows_max)?;
    write_sequences(out, &part.sequences, rows_max)?;
    write_buffers(out, &part.buffers)?;
    if verbose && let Some(config) = &part.session.config {
        writeln!(out, "\nConfig")?;
        for line in config.lines() {
            writeln!(out, "  {}", printable(line))?;
        }
    }
    Ok(())
}

fn headline(part: &Part) -> String {
    let completeness = &part.completeness;
    let verdict = match completeness.verdict {
        Verdict::Complete => "complete",
        Verdict::Incomplete => "INCOMPLETE",
        Verdict::Unknown => "completeness unknown",
    };
    let losses = match (completeness.has_statistics, completeness.verdict) {
        _ if part.losses.iter().any(Loss::is_of_data) => "DATA WAS LOST",
        (false, _) => "no statistics of losses",
        (true, Verdict::Complete) if completeness.statistics_are_final => "no data lost",
        // What was lost behind the last statistics nobody has counted.
        (true, _) => "no loss known",
    };
    let not_offered = match part.losses.iter().find(|loss| !loss.is_of_data()) {
        Some(loss) => format!(", {} that nobody offered", counted(loss.count, "data source")),
        None => String::new(),
    };
    format!("{verdict}, {losses}{not_offered}")
}

fn write_facts(out: &mut impl Write, part: &Part, size_bytes: u64) -> io::Result<()> {
    let mut facts: Vec<(&str, String)> = Vec::new();
    let compressed = match part.packets.compressed_packets {
        0 => String::new(),
        count => format!(", compressed in {}", HumanCount(count)),
    };
    facts.push((
        "size",
        format!("{}, {} packets{compressed}", HumanBytes(size_bytes), HumanCount(part.packets.count)),
    ));
    facts.push(("time", time(part)));
    let session = &part.session;
    let about = [
        session.service_version.clone(),
        session.system.clone(),
        session.cpus.map(|cpus| format!("{cpus} CPUs")),
    ];
    let about: Vec<String> = about.into_iter().flatten().collect();
    if !about.is_empty() {
        facts.push(("recorded", about.join(", ")));
    }
    let identity: Vec<String> = [&session.name, &session.uuid].into_iter().flatten().cloned().collect();
    if !identity.is_empty() {
        facts.push(("session", identity.join(", ")));
    }
    if !session.data_sources.is_empty() {
        facts.push(("sources", session.data_sources.join(", ")));
    }
    facts.extend(session.commands.iter().map(|command| ("command", said(command))));
    if part.completeness.verdict != Verdict::Unknown {
        facts.push(("service", service(part)));
    }
    for (name, fact) in facts {
        writeln!(out, "  {name:<9} {}", printable(&fact))?;
    }
    Ok(())
}

/// What was run, how long, and how it ended.
fn said(command: &Command) -> String {
    const WIDTH_MAX: usize = 80;
    let mut line: String = command.command_line.chars().take(WIDTH_MAX).collect();
    if line.len() < command.command_line.len() {
        line.push_str("...");
    }
    let pid = command.pid.map_or_else(String::new, |pid| format!(", pid {pid}"));
    let time = match (command.begin_ns.zip(command.end_ns), command.has_end()) {
        (_, false) => ", its end is not in the trace".to_owned(),
        (Some((begin_ns, end_ns)), _) => format!(", {}", seconds(end_ns.saturating_sub(begin_ns))),
        (None, _) if command.end_ns.is_none() => ", at an unknown time".to_owned(),
        (None, _) => ", its begin is not in the trace".to_owned(),
    };
    let code = command.exit_code.map_or_else(String::new, |code| format!(", exit code {code}"));
    let signal = command.signal.map_or_else(String::new, |number| format!(", killed by signal {number}"));
    format!("{line}{pid}{time}{code}{signal}")
}

fn time(part: &Part) -> String {
    let time = &part.time;
    let Some((first_ns, duration_ns)) = time.first_ns.zip(time.duration_ns) else {
        return "no packet has a time".to_owned();
    };
    let wall = time
        .first_unix_ns
        .and_then(|ns| Timestamp::from_nanosecond(ns.into()).ok())
        .map(|wall| wall.to_zoned(TimeZone::system()).strftime("%Y-%m-%d %H:%M:%S %:z").to_string());
    let unplaced = match time.packets_unplaced {
        0 => String::new(),
        count => format!("; {} packets have the time of an unknown clock", HumanCount(count)),
    };
    format!(
        "{}{} from {} {}{unplaced}",
        wall.map_or_else(String::new, |wall| format!("{wall}, ")),
        seconds(duration_ns),
        time.clock,
        seconds(first_ns),
    )
}

fn service(part: &Part) -> String {
    let completeness = &part.completeness;
    let mut parts = vec![
        counted(completeness.sync_markers, "sync marker"),
        format!("{} of {} done", completeness.flushes_done, counted(completeness.flushes_started, "flush")),
        format!("{} completed", counted(completeness.reads_completed, "read")),
    ];
    if let Some(outcome) = completeness.final_flush {
        parts.push(format!("final flush {outcome}"));
    }
    for (what, sources) in
        [("slow to start", &completeness.slow_to_start), ("slow to flush", &completeness.slow_to_flush)]
    {
        if !sources.is_empty() {
            parts.push(format!("{what}: {}", sources.join(" ")));
        }
    }
    if let Some(counts) = &part.since_service_began
        && counts.chunks_discarded + counts.patches_discarded > 0
    {
        parts.push(format!(
            "in all sessions since it began {} and {} discarded",
            counted(counts.chunks_discarded, "chunk"),
            counted(counts.patches_discarded, "patch"),
        ));
    }
    parts.join(", ")
}

fn write_kinds(out: &mut impl Write, part: &Part, rows_max: usize) -> io::Result<()> {
    let mut table = table(&["packets of", "count", "bytes", "share"], 1);
    let all = part.packets.bytes.max(1) as f64;
    for kind in part.packets.by_kind.iter().take(rows_max) {
        table.add_row([
            kind.kind.clone(),
            HumanCount(kind.packets).to_string(),
            HumanBytes(kind.bytes).to_string(),
            format!("{:.1}%", kind.bytes as f64 * 100.0 / all),
        ]);
    }
    write_table(out, &table, part.packets.by_kind.len().saturating_sub(rows_max))
}

fn write_sequences(out: &mut impl Write, sequences: &[Sequence], rows_max: usize) -> io::Result<()> {
    let header =
        ["process", "sequence", "uid", "pid", "producer", "buffer", "packets", "bytes", "time", "losses"];
    let mut table = table(&header, 1);
    for sequence in sequences.iter().take(rows_max) {
        let span = sequence.first_ns.zip(sequence.last_ns);
        let losses = match sequence.losses {
            0 => "-".to_owned(),
            count => format!("{} ({})", HumanCount(count), sequence.loss_reasons.join(" ")),
        };
        table.add_row([
            process(sequence),
            or_dash(sequence.id),
            or_dash(sequence.uid),
            or_dash(sequence.pid),
            or_dash(sequence.producer_id),
            or_dash(sequence.buffer),
            HumanCount(sequence.packets).to_string(),
            HumanBytes(sequence.bytes).to_string(),
            or_dash(span.map(|(first, last)| seconds(last - first))),
            losses,
        ]);
    }
    write_table(out, &table, sequences.len().saturating_sub(rows_max))
}

/// The program's name without its folder; the service's own sequence has no process.
fn process(sequence: &Sequence) -> String {
    const WIDTH_MAX: usize = 30;
    let name = match &sequence.process {
        Some(name) => name.rsplit('/').next().unwrap_or(name),
        None if sequence.id == Some(1) => "(service)",
        None => "?",
    };
    let mut name: String = printable(name).chars().take(WIDTH_MAX).collect();
    if let Some(machine_id) = sequence.machine_id {
        name.push_str(&format!(" on machine {machine_id}"));
    }
    name
}

fn write_buffers(out: &mut impl Write, buffers: &[Buffer]) -> io::Result<()> {
    let header = [
        "buffer",
        "policy",
        "size",
        "fill",
        "written",
        "read",
        "overwritten",
        "wraps",
        "chunks",
        "discarded",
    ];
    let mut table = table(&header, 2);
    for buffer in buffers {
        let name = buffer.name.as_deref().map_or_else(String::new, |name| format!(" {}", printable(name)));
        table.add_row([
            format!("{}{name}", buffer.index),
            buffer.fill_policy.unwrap_or("?").to_owned(),
            HumanBytes(buffer.size_bytes).to_string(),
            or_dash(buffer.fill_percent.map(|percent| format!("{percent:.1}%"))),
            HumanBytes(buffer.written_bytes).to_string(),
            HumanBytes(buffer.read_bytes).to_string(),
            HumanBytes(buffer.overwritten_bytes).to_string(),
            HumanCount(buffer.wraps).to_string(),
            HumanCount(buffer.chunks_written).to_string(),
            HumanCount(buffer.chunks_discarded).to_string(),
        ]);
    }
    write_table(out, &table, 0)
}

fn or_dash(value: Option<impl ToString>) -> String {
    value.map_or_else(|| "-".to_owned(), |value| value.to_string())
}
