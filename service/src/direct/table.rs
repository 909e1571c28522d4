//! Who may commit where. Its lock is held for a look or an entry, never for a commit.

use std::collections::BTreeMap;
use std::sync::Arc;

use watershed_engine::{ClientIdentity, ProducerId, WriterId};
use watershed_shards::ShardedBuffer;
use watershed_smb::Smb;

use super::Writer;
use crate::ids::BufferId;
use crate::read::SharedSequences;

/// A buffer to which a producer may write.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The producer's memory.
    pub(crate) smb: Smb,
    /// Who it is.
    pub(crate) identity: ClientIdentity,
    pub(crate) trace: Arc<ShardedBuffer>,
    /// Of the buffer's session.
    pub(crate) sequences: SharedSequences,
}

#[derive(Debug, Default)]
pub(super) struct Table {
    targets: BTreeMap<(ProducerId, BufferId), Target>,
    /// Those that have not ended.
    writers: BTreeMap<(ProducerId, WriterId), Arc<Writer>>,
    /// Nobody gets a committer: it would not be held.
    is_scraping: bool,
}

/// What a writer without a committer is told.
pub(super) enum Answer {
    Target(Target),
    /// There is a scrape. The service commits what waits when it is over.
    Later,
    Gone,
}

impl Table {
    pub(super) fn allow(&mut self, producer_id: ProducerId, buffer_id: BufferId, target: Target) {
        self.targets.entry((producer_id, buffer_id)).or_insert(target);
    }

    pub(super) fn replace(&mut self, buffer_id: BufferId, trace: &Arc<ShardedBuffer>) {
        let targets = self.targets.iter_mut().filter(|((_, buffer), _)| *buffer == buffer_id);
        targets.for_each(|(_, target)| target.trace = Arc::clone(trace));
    }

    pub(super) fn forbid(&mut self, is_meant: impl Fn(ProducerId, BufferId) -> bool) {
        self.targets.retain(|(producer_id, buffer_id), _| !is_meant(*producer_id, *buffer_id));
    }

    pub(super) fn target(&self, producer_id: ProducerId, buffer_id: BufferId) -> Option<&Target> {
        self.targets.get(&(producer_id, buffer_id))
    }

    pub(super) fn access(&self, writer: &Writer) -> Answer {
        match self.target(writer.producer_id, writer.buffer_id) {
            None => Answer::Gone,
            Some(_) if self.is_scraping => Answer::Later,
            Some(target) => Answer::Target(target.clone()),
        }
    }

    /// False, and nothing done, if there is a writer of this number.
    pub(super) fn insert(&mut self, writer: Arc<Writer>) -> bool {
        let key = (writer.producer_id, writer.writer_id);
        let is_new = !self.writers.contains_key(&key);
        if is_new {
            self.writers.insert(key, writer);
        }
        is_new
    }

    pub(super) fn has_writer(&self, producer_id: ProducerId, writer_id: WriterId) -> bool {
        self.writers.contains_key(&(producer_id, writer_id))
    }

    pub(super) fn remove_writer(&mut self, producer_id: ProducerId, id: WriterId) -> Option<Arc<Writer>> {
        self.writers.remove(&(producer_id, id))
    }

    pub(super) fn remove_writers(&mut self, producer_id: ProducerId) {
        self.writers.retain(|(producer, _), _| *producer != producer_id);
    }

    pub(super) fn writers(&self, is_meant: impl Fn(&Writer) -> bool) -> Vec<Arc<Writer>> {
        self.writers.values().filter(|writer| is_meant(writer)).cloned().collect()
    }

    /// All writers of the producer that may have a committer until
    /// [`end_scrape`](Self::end_scrape).
    pub(super) fn begin_scrape(&mut self, producer_id: ProducerId) -> Vec<Arc<Writer>> {
        self.is_scraping = true;
        self.writers(|writer| writer.producer_id == producer_id)
    }

    pub(super) fn end_scrape(&mut self) {
        self.is_scraping = false;
    }
}
