//! What tests need of a committer: one that stops in the middle of a commit. The feature `testing`.

use watershed_engine::ChunkInfo;

use super::{CommitError, Committer};
use crate::batch::{Batch, Source};

impl<'a> Batch<'a> {
    /// A batch of one chunk.
    pub fn of_chunk(info: ChunkInfo, bytes: &'a [u8]) -> Batch<'a> {
        Batch { chunks: vec![(info, Source::Borrowed(bytes))], ..Batch::default() }
    }
}

impl Committer {
    /// Commits one chunk of the caller's bytes, in a batch of its own.
    ///
    /// # Errors
    /// As [`commit`](Self::commit).
    pub fn commit_chunk(&mut self, info: &ChunkInfo, bytes: &[u8]) -> Result<(), CommitError> {
        self.commit(&mut Batch::of_chunk(*info, bytes))
    }

    /// Takes the ticket of a batch of one chunk and stops there, like a thread that is descheduled.
    pub fn stop_with_ticket(&mut self) -> u64 {
        self.reserve_tickets(1)
    }

    /// Commits the batch whose ticket was taken.
    ///
    /// # Errors
    /// As [`commit`](Self::commit); the ticket is given up all the same.
    pub fn resume_with_ticket(
        &mut self,
        first_ticket: u64,
        batch: &mut Batch<'_>,
    ) -> Result<(), CommitError> {
        let is_owned = batch.summarize().is_ok_and(|summary| summary.is_owned);
        self.commit_reserved(first_ticket, batch, is_owned, !self.shared.has_workers)
    }
}
