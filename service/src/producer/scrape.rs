//! Scraping: chunks are read out of a producer's memory while they are still being written, so that
//! a flush, a stop or the producer's death does not lose them. Their state stays as it is, and
//! their regular commit follows later, if it does.

use watershed_engine::ProducerId;
use watershed_shards::Source;

use crate::ids::{BufferId, SessionId};
use crate::producer::ChunkSource;
use crate::producer::commit::BufferStage;
use crate::service::Service;

impl Service {
    /// Scrapes what `producer_id` has for the session, in one step: the trace buffer relies on
    /// chunks that are out of order arriving together, without a read in between.
    pub(crate) fn scrape(&mut self, session_id: SessionId, producer_id: ProducerId) {
        let (Some(session), Some(producer)) =
            (self.sessions.get(&session_id), self.producers.get(&producer_id))
        else {
            return;
        };
        let ChunkSource::Shared(smb) = &producer.chunks else { return };
        if !producer.scraped || !session.buffers.iter().any(|id| producer.allowed_buffers.contains(id)) {
            return;
        }
        self.counters.looked_at += 1;
        let (sessions, buffers, direct) = (&self.sessions, &mut self.buffers, &self.direct);
        let mut stage =
            BufferStage::new(producer_id, producer, sessions, buffers, direct, &mut self.counters);
        let failed = direct.while_held(producer_id, || {
            for chunk in smb.scrape() {
                let header = chunk.header();
                // Only a registered writer's buffer is known: nothing else says where a chunk that
                // was not committed goes.
                let buffer_id = producer.writers.get(&header.writer_id).map(|id| BufferId(*id));
                if let Some(buffer_id) = buffer_id.filter(|id| session.buffers.contains(id)) {
                    let source = || Source::Scraped(chunk.payload());
                    stage.add_chunk(buffer_id, header, chunk.is_complete(), source);
                }
            }
            stage.commit()
        });
        failed.into_iter().for_each(|session_id| self.warn_of_poisoned(session_id));
    }

    /// [`Service::scrape`] for every producer.
    pub(crate) fn scrape_all(&mut self, session_id: SessionId) {
        let producer_ids: Vec<ProducerId> = self.producers.keys().copied().collect();
        for producer_id in producer_ids {
            self.scrape(session_id, producer_id);
        }
    }

    /// Producers that scrape their own memory when they are asked to flush: those of the session
    /// whose chunks come by message.
    pub(crate) fn emulated_scraped_producers(&self, session_id: SessionId) -> Vec<ProducerId> {
        let Some(session) = self.sessions.get(&session_id) else { return Vec::new() };
        let concerned = self.producers.iter().filter(|(_, producer)| {
            producer.scraped
                && matches!(producer.chunks, ChunkSource::Messages)
                && session.buffers.iter().any(|id| producer.allowed_buffers.contains(id))
        });
        concerned.map(|(producer_id, _)| *producer_id).collect()
    }
}
