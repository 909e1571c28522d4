//! What a pass takes producers' packets from: all that was committed before it was made, whoever
//! commits meanwhile. A pass may be made on another thread than the service's.

use std::sync::{Arc, Mutex, PoisonError};

use watershed_engine::Packet;
use watershed_shards::ShardedBuffer;

use crate::filter::Filtering;
use crate::limits::READ_IN_POOL_BYTES_MIN;
use crate::options::PoolFactory;
use crate::read::sequences::SequenceTable;
use crate::read::{Framer, PassEnd, Sink};

/// The shell's factory, of which passes on several threads ask.
pub(crate) type SharedPool = Arc<Mutex<PoolFactory>>;

/// The buffers of a session, each up to a cut, and the sequences that are in them.
#[derive(Clone)]
pub(crate) struct PassSource {
    /// In the order of the config.
    pub(crate) buffers: Vec<(Arc<ShardedBuffer>, u64)>,
    /// At least all sequences below the cuts.
    pub(crate) sequences: Arc<SequenceTable>,
    pub(crate) filtering: Arc<Filtering>,
    pub(crate) pool: SharedPool,
}

/// How a pass over the buffers went.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    pub(crate) end: PassEnd,
    /// Packets that were dropped because they are not valid.
    pub(crate) num_invalid: u64,
}

impl PassSource {
    /// Reads packets into the sink, until it has about `threshold_bytes` or all are read.
    pub(crate) fn read(&self, sink: &mut impl Sink, threshold_bytes: usize) -> Passed {
        let framer = Framer::new(&self.sequences, &self.filtering);
        let ends = self.buffers.iter().enumerate().map(|(index, (buffer, cut))| {
            if sink.bytes() >= threshold_bytes {
                return PassEnd::Threshold;
            }
            let discarded_before_bytes = self.filtering.discarded_bytes();
            let end = self.read_buffer(buffer, *cut, &framer, sink, threshold_bytes);
            self.filtering.note_discarded(index, self.filtering.discarded_bytes() - discarded_before_bytes);
            end
        });
        let early = ends.into_iter().find(|end| *end != PassEnd::Drained);
        let is_enough = sink.bytes() >= threshold_bytes;
        let end = early.unwrap_or(if is_enough { PassEnd::Threshold } else { PassEnd::Drained });
        Passed { end, num_invalid: framer.num_invalid() }
    }

    fn read_buffer(
        &self,
        buffer: &ShardedBuffer,
        cut: u64,
        framer: &Framer<'_>,
        sink: &mut impl Sink,
        threshold_bytes: usize,
    ) -> PassEnd {
        let threads;
        let write = |packet: &Packet<'_>, out: &mut Vec<u8>| framer.write(packet, out);
        let mut pass = buffer.read_pass_to(cut, write);
        if pass.unread_bytes().min(threshold_bytes as u64) >= READ_IN_POOL_BYTES_MIN {
            threads = self.threads();
            pass = pass.with_pool(threads.as_deref());
        }
        loop {
            let wanted_bytes = threshold_bytes.saturating_sub(sink.bytes());
            if wanted_bytes == 0 {
                return PassEnd::Threshold;
            }
            let mut is_over = true;
            let written = pass.write_up_to(wanted_bytes, |pieces| {
                is_over = false;
                sink.framed(pieces)
            });
            match written {
                Ok(()) if is_over => return PassEnd::Drained,
                Ok(()) => {}
                Err(left_bytes) => {
                    pass.take_back(left_bytes);
                    return PassEnd::NoRoom;
                }
            }
        }
    }

    fn threads(&self) -> Option<Arc<rayon::ThreadPool>> {
        // Held only while the shell's factory makes its pool.
        let mut factory = self.pool.lock().unwrap_or_else(PoisonError::into_inner);
        factory()
    }
}
