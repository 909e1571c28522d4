//! Collects what one scan finds and hands it out in packets of bounded size.

use crate::clock::boottime_now_ns;
use watershed_wire::protos::process_stats::Process as Counters;
use watershed_wire::protos::process_tree::{Process, Thread};
use watershed_wire::protos::trace_packet::Data;
use watershed_wire::protos::{ProcessStats, ProcessTree, TracePacket};

/// A packet is closed when its estimated size passes this: a machine with thousands of processes
/// then needs no large stretch of shared memory at once, and losing a packet loses little.
const PACKET_SIZE_SOFT: usize = 8 << 10;

/// What a message takes besides its strings, at most, for the estimate.
const MESSAGE_SIZE: usize = 48;
const COUNTERS_SIZE: usize = 96;

pub(super) struct Packets<'a> {
    timestamp_ns: u64,
    /// The next packet is the first after everything was forgotten.
    state_cleared: bool,
    tree: ProcessTree,
    tree_size: usize,
    stats: ProcessStats,
    stats_size: usize,
    emit: &'a mut dyn FnMut(&TracePacket),
}

impl<'a> Packets<'a> {
    pub(super) fn new(timestamp_ns: u64, state_cleared: bool, emit: &'a mut dyn FnMut(&TracePacket)) -> Self {
        Self {
            timestamp_ns,
            state_cleared,
            tree: ProcessTree::default(),
            tree_size: 0,
            stats: ProcessStats::default(),
            stats_size: 0,
            emit,
        }
    }

    pub(super) fn add_process(&mut self, process: Process) {
        self.tree_size += MESSAGE_SIZE + process.cmdline.iter().map(|a| a.len() + 4).sum::<usize>();
        self.tree.processes.push(process);
        self.close_full();
    }

    pub(super) fn add_thread(&mut self, thread: Thread) {
        self.tree_size += MESSAGE_SIZE;
        self.tree.threads.push(thread);
        self.close_full();
    }

    pub(super) fn add_counters(&mut self, counters: Counters) {
        self.stats_size += COUNTERS_SIZE + counters.fds.iter().map(|f| f.path().len() + 12).sum::<usize>();
        self.stats.processes.push(counters);
        self.close_full();
    }

    /// Emits what is left. Returns whether the mark of a cleared state is still to be written.
    pub(super) fn finish(mut self) -> bool {
        self.close_tree();
        self.close_stats();
        self.state_cleared
    }

    fn close_full(&mut self) {
        if self.tree_size >= PACKET_SIZE_SOFT {
            self.close_tree();
        }
        if self.stats_size >= PACKET_SIZE_SOFT {
            // Names go before the counters of the same processes.
            self.close_tree();
            self.close_stats();
        }
    }

    fn close_tree(&mut self) {
        self.tree_size = 0;
        let mut tree = std::mem::take(&mut self.tree);
        if !tree.processes.is_empty() || !tree.threads.is_empty() {
            tree.collection_end_timestamp = Some(boottime_now_ns());
            self.emit(Data::ProcessTree(tree));
        }
    }

    fn close_stats(&mut self) {
        self.stats_size = 0;
        let mut stats = std::mem::take(&mut self.stats);
        if !stats.processes.is_empty() {
            stats.collection_end_timestamp = Some(boottime_now_ns());
            self.emit(Data::ProcessStats(stats));
        }
    }

    fn emit(&mut self, data: Data) {
        (self.emit)(&TracePacket {
            timestamp: Some(self.timestamp_ns),
            incremental_state_cleared: std::mem::take(&mut self.state_cleared).then_some(true),
            data: Some(data),
            ..TracePacket::default()
        });
    }
}
