//! How much a clone's file will have, for who asks for its room before there is something to write.

use std::sync::Arc;

use watershed_shards::ShardedBuffer;

use crate::compress::Codec;
use crate::ids::SessionId;
use crate::service::Service;
use crate::session::FileWriter;

/// What will be in the file of a clone that is being made. See [`Service::clone_room`].
#[derive(Clone, Debug)]
pub struct CloneRoom {
    /// Of the original's file.
    file_bytes: u64,
    buffers: Vec<Arc<ShardedBuffer>>,
}

impl CloneRoom {
    /// About how many bytes the file will have, as far as is known now. Waits for shards as
    /// statistics do: not for the service's thread.
    pub fn size_bytes(&self) -> u64 {
        self.file_bytes + self.buffers.iter().map(|buffer| buffer.listed_bytes()).sum::<u64>()
    }
}

impl Service {
    /// What will be in the file of a clone that is being made; `None` if there is no such clone, if
    /// it goes into no file, or if it is not known because the file is compressed.
    pub fn clone_room(&self, clone_id: SessionId) -> Option<CloneRoom> {
        let source = self.sessions.values().find(|session| session.clones.contains_key(&clone_id))?;
        let goes_into_file = source.clones.get(&clone_id)?.in_file;
        if !goes_into_file || Codec::of(source.config.message()).is_some() {
            return None;
        }
        let buffers = source.buffers.iter().filter_map(|id| self.buffers.get(*id));
        Some(CloneRoom {
            file_bytes: source.file.as_ref().map_or(0, FileWriter::bytes_written),
            buffers: buffers.map(|buffer| Arc::clone(&buffer.trace)).collect(),
        })
    }
}
