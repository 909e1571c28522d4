//! Sessions of a suite, by way of the daemon's socket.

use crate::measure::WrongAnswer;
use prost::Message as _;
use std::fs::File;
use std::time::Duration;
use watershed_client::consumer::{Consumer, FLUSH_AT_STOP, Wait};
use watershed_wire::protos::trace_stats::BufferStats;
use watershed_wire::protos::{TraceConfig, TraceStats};

const PATIENCE: Duration = Duration::from_secs(60);

/// Starts a session. Its data sources start on their own.
pub(in crate::suites) fn enable(
    consumer: &mut Consumer,
    config: &TraceConfig,
    file: Option<File>,
) -> Result<(), WrongAnswer> {
    consumer.enable_tracing(&config.encode_to_vec(), file).map_err(|error| error.to_string())
}

/// Ends a session, and waits for that.
pub(in crate::suites) fn disable(consumer: &mut Consumer) -> Result<(), WrongAnswer> {
    consumer.disable().map_err(|error| error.to_string())?;
    match consumer.wait_end(Some(PATIENCE)) {
        Ok(Wait::Ended { error: None }) => Ok(()),
        Ok(Wait::Ended { error: Some(error) }) => Err(format!("the session failed: {error}")),
        Ok(_) => Err("the session does not end".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Waits until all that was written is in the buffers; then the statistics say what came in.
pub(in crate::suites) fn flushed_stats(consumer: &mut Consumer) -> Result<TraceStats, WrongAnswer> {
    match consumer.flush(PATIENCE, FLUSH_AT_STOP) {
        Ok(true) => consumer.stats().map_err(|error| error.to_string()),
        Ok(false) => Err("a flush does not end".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Checks that the service refused nothing of what the client library sent.
pub(in crate::suites) fn check_nothing_refused(stats: &TraceStats) -> Result<(), WrongAnswer> {
    let buffers = |count: fn(&BufferStats) -> u64| stats.buffer_stats.iter().map(count).sum::<u64>();
    let refused = [
        ("chunks", stats.chunks_discarded()),
        ("patches", stats.patches_discarded()),
        ("chunks of a buffer that was closed to them", buffers(BufferStats::chunks_discarded)),
        ("chunks that break the rules", buffers(BufferStats::abi_violations)),
    ];
    let said = refused.iter().filter(|(_, count)| *count > 0).map(|(what, count)| format!("{count} {what}"));
    let said = said.collect::<Vec<_>>().join(", ");
    if said.is_empty() { Ok(()) } else { Err(format!("the service refused {said}")) }
}
