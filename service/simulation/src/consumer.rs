//! What consumers ask for.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use watershed_service::{CloneRequest, ConsumerId, FlushId, ObservedEvents, SessionId};
use watershed_wire::protos::{TraceConfig, TraceStats};

/// What a connection carries to the service.
#[derive(Debug)]
pub(crate) enum Request {
    Enable(Box<TraceConfig>),
    Start,
    Disable,
    Flush(u32),
    Read,
    Free,
    Observe(ObservedEvents),
    Detach(String),
    Attach(String),
    Clone(CloneRequest),
    ChangeConfig(Vec<String>),
    EndWanted,
    Query,
    Stats,
    Gone,
}

/// A connection, and the answers that it waits for.
#[derive(Debug)]
pub(crate) struct Consumer {
    pub(crate) id: ConsumerId,
    pub(crate) uid: i32,
    pub(crate) flushes: BTreeSet<FlushId>,
    /// What it is to be told.
    pub(crate) stats: VecDeque<TraceStats>,
    /// Of which session, and whether without its filter.
    pub(crate) clones: BTreeMap<SessionId, (SessionId, bool)>,
    /// It reads in steps, and the last one is not over.
    pub(crate) is_reading: bool,
}
