//! What is said when a recording has ended: one line, and one more for each cause of a loss.

use std::fmt;
use std::path::Path;
use std::time::Duration;

use indicatif::HumanBytes;
use serde::Serialize;
use serde::ser::SerializeStruct as _;
use watershed_wire::protos::trace_config::buffer_config::FillPolicy;
use watershed_wire::protos::trace_packet::DataLossReason;
use watershed_wire::protos::{TraceConfig, TraceStats};

use super::end::{End, LeftOut};
use super::tally::Tally;
use crate::text::{counted, printable};

/// A finished recording, to be printed.
pub(super) struct Summary<'a> {
    pub(super) path: &'a Path,
    /// For which the trace was made, if it was for one.
    pub(super) trigger: Option<&'a str>,
    pub(super) time: Duration,
    pub(super) tally: &'a Tally,
    pub(super) losses: Vec<String>,
}

impl fmt::Display for Summary<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Tally { packets, bytes, .. } = self.tally;
        write!(f, "{}: ", self.path.display())?;
        if let Some(trigger) = self.trigger {
            write!(f, "trigger \"{}\", ", printable(trigger))?;
        }
        write!(
            f,
            "{}, {:.1} s, {} from {}",
            HumanBytes(*bytes),
            self.time.as_secs_f64(),
            counted(*packets, "packet"),
            counted(self.tally.sequences() as u64, "sequence"),
        )?;
        match self.losses.as_slice() {
            [] => write!(f, ", no data lost"),
            losses => losses.iter().try_for_each(|loss| write!(f, "\n  lost: {loss}")),
        }
    }
}

impl Serialize for Summary<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let fields = if self.trigger.is_some() { 7 } else { 6 };
        let mut summary = serializer.serialize_struct("Summary", fields)?;
        summary.serialize_field("file", &self.path.to_string_lossy())?;
        if let Some(trigger) = self.trigger {
            summary.serialize_field("trigger", trigger)?;
        }
        summary.serialize_field("bytes", &self.tally.bytes)?;
        summary.serialize_field("seconds", &self.time.as_secs_f64())?;
        summary.serialize_field("packets", &self.tally.packets)?;
        summary.serialize_field("sequences", &self.tally.sequences())?;
        summary.serialize_field("losses", &self.losses)?;
        summary.end()
    }
}

/// Every cause of a loss that was counted on the way into the file, or that a packet in it reports;
/// empty if nothing was lost. `dropped` packets were given up by their writers.
pub(super) fn losses(config: &TraceConfig, end: &End, dropped: u64, tally: &Tally) -> Vec<String> {
    let mut losses = Vec::new();
    if dropped > 0 {
        losses.push(format!("{} dropped by writers, shared memory was full", counted(dropped, "packet")));
    }
    match &end.stats {
        Some(stats) => {
            buffer_losses(config, stats, &mut losses);
            service_losses(stats, &mut losses);
        }
        None => losses.push("unknown, the service has no statistics".to_owned()),
    }
    if end.flush_failed {
        losses.push("perhaps the latest data of a source that did not answer the final flush".to_owned());
    }
    losses.extend(reported_gaps(tally));
    if tally.kernel_losses > 0 {
        losses.push(format!(
            "events of the kernel, {} before they were read; a larger buffer_size_kb holds more",
            counted(tally.kernel_losses, "time"),
        ));
    }
    losses.extend(left_out(config, end));
    if !end.not_offered.is_empty() {
        losses.push(not_offered(end));
    }
    if end.write_error.is_some() {
        losses.push("everything after that, as it could not be written".to_owned());
    }
    losses
}

/// Names of the data sources that nobody offered.
pub(super) fn not_offered(end: &End) -> String {
    printable(&format!("what nobody offered: {}", end.not_offered.join(", ")))
}

/// What a file that is as large as the config lets it be had no room for.
fn left_out(config: &TraceConfig, end: &End) -> Vec<String> {
    let Some(left) = &end.left_out else { return Vec::new() };
    let full = format!("the file had no room, max_file_size_bytes is {}", config.max_file_size_bytes());
    let mut losses = vec![format!("the trace's own end and its statistics, {full}")];
    match left {
        LeftOut::Packets(left) if left.packets > 0 => {
            let packets = counted(left.packets, "packet");
            losses.insert(0, format!("the last {packets} of {}, {full}", HumanBytes(left.bytes)));
        }
        LeftOut::Packets(_) => {}
        LeftOut::Unknown => losses.insert(0, format!("perhaps the last packets, {full}")),
    }
    losses
}

fn buffer_losses(config: &TraceConfig, stats: &TraceStats, losses: &mut Vec<String>) {
    for (index, buffer) in stats.buffer_stats.iter().enumerate() {
        let config = config.buffers.get(index);
        let name = match config.map(|b| b.name()).filter(|name| !name.is_empty()) {
            Some(name) => format!("buffer \"{name}\""),
            None => format!("buffer {index}"),
        };
        let mut add = |number: u64, what: &str, why: &str| {
            if number > 0 {
                losses.push(format!("{} {why} ({name})", counted(number, what)));
            }
        };
        let lost = buffer.chunks_lost_in_poisoned_shards();
        let overwritten =
            format!("of {} overwritten, the ring was full", HumanBytes(buffer.bytes_overwritten()));
        add(buffer.chunks_overwritten(), "chunk", &overwritten);
        if config.map(|b| b.fill_policy()) == Some(FillPolicy::Discard) {
            // In a ring this counter is about late commits of chunks that were read already, no
            // loss.
            add(buffer.chunks_discarded(), "chunk", "refused, the buffer was full");
        }
        add(
            buffer.trace_writer_packet_loss(),
            "time",
            "a writer dropped packets, its shared memory was full",
        );
        add(buffer.patches_failed(), "late patch", "left a packet incomplete");
        add(buffer.abi_violations(), "chunk", "broke the rules of the shared memory");
        // Also where they had nothing: the service is not to be trusted.
        let failed = format!("failed in the tracing service, and {} were lost there", counted(lost, "chunk"));
        add(buffer.shards_poisoned(), "shard", &failed);
    }
}

fn service_losses(stats: &TraceStats, losses: &mut Vec<String>) {
    let mut add = |number: u64, what: &str, why: &str| {
        if number > 0 {
            losses.push(format!("{} {why}", counted(number, what)));
        }
    };
    add(stats.invalid_packets(), "packet", "invalid");
    // Of this recording alone; in a service that others use too they are left out (`daemon/run`).
    add(stats.chunks_discarded(), "chunk", "for a buffer that there is not");
    add(stats.patches_discarded(), "late patch", "for a chunk that there is not");
}

/// Gaps that readers of the trace will meet, with the reasons that its packets give.
fn reported_gaps(tally: &Tally) -> Option<String> {
    let [gaps, reasons @ ..] = tally.losses.as_slice() else { return None };
    let reasons = reasons.iter().enumerate().filter(|(_, number)| **number > 0).map(|(bit, number)| {
        let reason = DataLossReason::try_from(2 << bit).map_or("unknown", |reason| reason.as_str_name());
        format!("{} {number}", reason.trim_start_matches("DATA_LOSS_").to_lowercase().replace('_', " "))
    });
    let reasons = reasons.collect::<Vec<_>>().join(", ");
    let reasons = if reasons.is_empty() { String::new() } else { format!(": {reasons}") };
    (*gaps > 0).then(|| format!("{} inside sequences{reasons}", counted(*gaps, "gap")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use watershed_client::in_process::Unread;
    use watershed_wire::protos::trace_config::BufferConfig;
    use watershed_wire::protos::trace_stats::BufferStats;

    fn end(stats: Option<TraceStats>) -> End {
        End { stats, ..End::default() }
    }

    fn clean() -> (TraceConfig, TraceStats) {
        let ring = BufferConfig::default();
        let discard = BufferConfig {
            name: Some("d".to_owned()),
            fill_policy: Some(FillPolicy::Discard as i32),
            ..Default::default()
        };
        let late_commits = BufferStats { chunks_discarded: Some(3), ..Default::default() };
        (
            TraceConfig { buffers: vec![ring, discard], ..Default::default() },
            TraceStats { buffer_stats: vec![late_commits, BufferStats::default()], ..Default::default() },
        )
    }

    #[test]
    fn nothing_lost() {
        let (config, stats) = clean();
        let mut tally = Tally::default();
        (tally.packets, tally.bytes) = (1, 2048);
        let losses = losses(&config, &end(Some(stats)), 0, &tally);
        let mut summary = Summary {
            path: Path::new("t.pftrace"),
            trigger: None,
            time: Duration::from_millis(1540),
            tally: &tally,
            losses,
        };
        assert_eq!(
            summary.to_string(),
            "t.pftrace: 2.00 KiB, 1.5 s, 1 packet from 0 sequences, no data lost"
        );
        assert_eq!(
            serde_json::to_string(&summary).unwrap(),
            r#"{"file":"t.pftrace","bytes":2048,"seconds":1.54,"packets":1,"sequences":0,"losses":[]}"#
        );
        summary.trigger = Some("a\u{1b}b");
        assert!(summary.to_string().starts_with("t.pftrace: trigger \"a\u{fffd}b\", 2.00 KiB, "));
        let json = serde_json::to_string(&summary).unwrap();
        assert!(json.starts_with(r#"{"file":"t.pftrace","trigger":"a\u001bb","bytes":2048,"#), "{json}");
    }

    #[test]
    fn every_cause_is_said() {
        let (config, mut stats) = clean();
        stats.buffer_stats[0] = BufferStats {
            chunks_overwritten: Some(1),
            bytes_overwritten: Some(1024),
            trace_writer_packet_loss: Some(2),
            ..Default::default()
        };
        stats.buffer_stats[1] = BufferStats {
            chunks_discarded: Some(4),
            patches_failed: Some(5),
            abi_violations: Some(6),
            shards_poisoned: Some(1),
            chunks_lost_in_poisoned_shards: Some(11),
            ..Default::default()
        };
        stats.invalid_packets = Some(7);
        stats.chunks_discarded = Some(8);
        stats.patches_discarded = Some(9);
        let mut tally = Tally::default();
        tally.losses[0] = 2;
        tally.losses[6] = 1;
        tally.losses[8] = 1;
        tally.kernel_losses = 3;
        let end = End {
            write_error: Some("no space".to_owned()),
            flush_failed: true,
            not_offered: vec!["of.nobody".to_owned(), "b".to_owned()],
            ..end(Some(stats))
        };
        assert_eq!(
            losses(&config, &end, 10, &tally),
            [
                "10 packets dropped by writers, shared memory was full",
                "1 chunk of 1.00 KiB overwritten, the ring was full (buffer 0)",
                "2 times a writer dropped packets, its shared memory was full (buffer 0)",
                "4 chunks refused, the buffer was full (buffer \"d\")",
                "5 late patches left a packet incomplete (buffer \"d\")",
                "6 chunks broke the rules of the shared memory (buffer \"d\")",
                "1 shard failed in the tracing service, and 11 chunks were lost there (buffer \"d\")",
                "7 packets invalid",
                "8 chunks for a buffer that there is not",
                "9 late patches for a chunk that there is not",
                "perhaps the latest data of a source that did not answer the final flush",
                "2 gaps inside sequences: overwrite 1, smb full 1",
                "events of the kernel, 3 times before they were read; a larger buffer_size_kb holds more",
                "what nobody offered: of.nobody, b",
                "everything after that, as it could not be written",
            ]
        );
    }

    #[test]
    fn without_statistics_nobody_knows() {
        let (config, _) = clean();
        assert_eq!(losses(&config, &end(None), 0, &Tally::default()).len(), 1);
    }

    #[test]
    fn a_full_file() {
        let (mut config, stats) = clean();
        config.max_file_size_bytes = Some(20_000);
        let mut end = end(Some(stats));
        for (packets, lines) in [(0, 1), (1, 2), (7, 2)] {
            end.left_out = Some(LeftOut::Packets(Unread { packets, bytes: packets * 512 }));
            assert_eq!(losses(&config, &end, 0, &Tally::default()).len(), lines);
        }
        assert_eq!(
            losses(&config, &end, 0, &Tally::default())[0],
            "the last 7 packets of 3.50 KiB, the file had no room, max_file_size_bytes is 20000"
        );
        end.left_out = Some(LeftOut::Unknown);
        let losses = losses(&config, &end, 0, &Tally::default());
        assert_eq!(losses[0], "perhaps the last packets, the file had no room, max_file_size_bytes is 20000");
    }
}
