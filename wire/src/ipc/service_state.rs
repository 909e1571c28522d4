//! The service's state as replies to QueryServiceState.

use prost::Message;

use super::envelope::REPLY_OVERHEAD_BYTES_MAX;
use super::messages::{QueryServiceStateResponse, TracingServiceState};
use crate::framing::FRAME_SIZE_BYTES_MAX;
use crate::raw::delimited_len;

/// The encoded state in one reply is smaller than this (spec, service 3.9), unless it is one entry.
pub const SERVICE_STATE_SIZE_BYTES_LIMIT: usize = (128 << 10) - 128;

/// The largest entry with key and size, alone in a reply: what a frame has room for beside key and
/// size of the state. A descriptor that fills the frame in which it was registered may be some
/// bytes too long for that.
pub const SERVICE_STATE_ENTRY_SIZE_BYTES_MAX: usize = FRAME_SIZE_BYTES_MAX - REPLY_OVERHEAD_BYTES_MAX - 4;

/// A state in pieces.
#[derive(Debug, Clone, PartialEq)]
pub struct SplitServiceState {
    /// In the order of sending, at least one. All but the last are sent with `has_more`.
    pub replies: Vec<QueryServiceStateResponse>,
    /// How many entries are left out because they do not fit a reply even alone.
    pub entries_left_out: usize,
}

/// Cuts a state into replies that fit a frame each.
///
/// First comes all that is there once, then producers and sessions, then data sources, each as long
/// as there is room; a larger one gets a reply of its own. A client that joins the encoded replies
/// has the encoding of the whole.
pub fn split_service_state(state: TracingServiceState) -> SplitServiceState {
    let TracingServiceState { producers, data_sources, tracing_sessions, .. } = state;
    let head = TracingServiceState {
        producers: Vec::new(),
        data_sources: Vec::new(),
        tracing_sessions: Vec::new(),
        ..state
    };
    let mut split = Splitter { size_bytes: head.encoded_len(), part: head, replies: Vec::new(), left_out: 0 };
    for producer in producers {
        split.add(producer, |part| &mut part.producers);
    }
    for session in tracing_sessions {
        split.add(session, |part| &mut part.tracing_sessions);
    }
    for data_source in data_sources {
        split.add(data_source, |part| &mut part.data_sources);
    }
    split.end_part();
    SplitServiceState { replies: split.replies, entries_left_out: split.left_out }
}

struct Splitter {
    part: TracingServiceState,
    /// Of `part`, encoded.
    size_bytes: usize,
    replies: Vec<QueryServiceStateResponse>,
    left_out: usize,
}

impl Splitter {
    fn add<T: Message>(&mut self, entry: T, list: fn(&mut TracingServiceState) -> &mut Vec<T>) {
        // The keys of all three lists have one byte.
        let entry_bytes = delimited_len(1, entry.encoded_len());
        if entry_bytes > SERVICE_STATE_ENTRY_SIZE_BYTES_MAX {
            self.left_out += 1;
            return;
        }
        if self.size_bytes > 0 && self.size_bytes + entry_bytes >= SERVICE_STATE_SIZE_BYTES_LIMIT {
            self.end_part();
        }
        self.size_bytes += entry_bytes;
        list(&mut self.part).push(entry);
    }

    fn end_part(&mut self) {
        let part = std::mem::take(&mut self.part);
        self.size_bytes = 0;
        self.replies.push(QueryServiceStateResponse { service_state: Some(part) });
    }
}
