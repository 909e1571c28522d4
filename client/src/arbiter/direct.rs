//! Writers that commit themselves, because the service is in the same process.

use watershed_service::DirectCommitter;

use super::counts::count;
use super::{Returned, Shared, Target};
use crate::endpoint::Endpoint;
use crate::sync::{Arc, lock};
use crate::writer::{PatchGroup, PatchList};

impl Shared {
    /// A new writer's own committer, where the service gives it one.
    pub(super) fn direct_committer(&self, writer_id: u16, target: Target) -> Option<DirectCommitter> {
        let Target::Buffer(buffer) = target else { return None };
        self.service.get()?.endpoint.direct_committer(writer_id, buffer)
    }

    /// Commits a chunk by its writer's own committer, with the patches that can be committed. No
    /// lock of the arbiter or of the service is taken, and nobody is woken unless work is left.
    pub(crate) fn commit_chunk(
        &self,
        returned: Returned,
        patches: &mut PatchList,
        direct: &mut DirectCommitter,
    ) {
        let (page, index) = (returned.chunk.page(), returned.chunk.index());
        match self.smb.complete(returned.chunk) {
            Ok(()) => direct.commit_chunk(page, index),
            Err(_) => count(&self.counters.violations),
        }
        commit_patches(patches, direct);
    }

    /// The service was told that these writers have ended: other ones may have their ids.
    pub(super) fn free_ids(&self, endpoint: &dyn Endpoint, ended: Vec<u16>) {
        let writer_ids = Arc::clone(&self.writer_ids);
        let free = move || ended.iter().for_each(|writer_id| lock(&writer_ids).free(*writer_id));
        match endpoint.is_direct() {
            // They may commit before they are registered: the service must have handled the ends.
            true => endpoint.sync(Box::new(free)),
            // They are registered behind the ends.
            false => free(),
        }
    }
}

/// Commits what can be committed of a writer's patches by its own committer.
pub(crate) fn commit_patches(patches: &mut PatchList, direct: &mut DirectCommitter) {
    while let Some(PatchGroup { chunk_id, patches, has_more }) = patches.take_group() {
        direct.commit_patches(chunk_id, patches, has_more);
    }
}
