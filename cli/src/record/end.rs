//! How a recording ended, wherever its service is.

use watershed_client::in_process::{SessionEnd, Unread};
use watershed_wire::protos::TraceStats;

/// What is known when everything is written.
#[derive(Debug, Default)]
pub(super) struct End {
    /// What the service has to say if it ended the session on account of an error.
    pub(super) error: Option<String>,
    /// Why writing to the output failed, if it did.
    pub(super) write_error: Option<String>,
    /// The output reached the config's `max_file_size_bytes`.
    pub(super) left_out: Option<LeftOut>,
    /// A data source did not answer the flush before the end in time.
    pub(super) flush_failed: bool,
    /// The buffers' statistics, after everything was read.
    pub(super) stats: Option<TraceStats>,
    /// Data sources that nobody has offered, as far as that is known.
    pub(super) not_offered: Vec<String>,
}

/// What a full file had no room for.
#[derive(Debug)]
pub(super) enum LeftOut {
    Packets(Unread),
    /// The service does not say.
    Unknown,
}

impl From<&SessionEnd> for End {
    fn from(end: &SessionEnd) -> Self {
        End {
            error: end.error.clone(),
            write_error: end.write_error.as_ref().map(ToString::to_string),
            left_out: end.left_out.map(LeftOut::Packets),
            flush_failed: end.flush_failed,
            stats: end.stats.clone(),
            not_offered: end.stats.iter().flat_map(|stats| stats.data_sources_not_offered.clone()).collect(),
        }
    }
}
