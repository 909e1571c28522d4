//! What tests need of a committer: one that stops in the middle of a commit. The feature `testing`.

use super::{CommitError, Committer};
use crate::batch::Batch;

impl Committer {
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
