//! Chunks in shared memory, many in a row: nearly all are such, whether they come out of the queue or are written at once.
//!
//! What the engine makes ready for a chunk ([`Shard::commits`]), the release of a chunk in its page's bitmap and the drop of a reference to the
//! memory ([`Reads`]) are done once for a row.

use watershed_engine::{ChunkInfo, Commits, Shard};
use watershed_smb::{ReadToken, Reads};

use crate::batch::{Batch, SharedBytes, Source};
use crate::drain::Turn;
use crate::inbox::{Inbox, Letters};
use crate::inner::State;
use crate::nodes::{Letter, Returns};
use crate::own::Owned;
use crate::part::{Part, ToDo};

/// Why a row ends before all is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Halt {
    /// Next comes something else.
    NotShared,
    /// The next chunk needs an extent first.
    NoRoom,
    /// The caller wants no more.
    Paused,
}

impl Owned<'_> {
    /// Works through the queue as far as there are chunks in shared memory. None if nothing is left; `at_work` is not done.
    #[inline(always)]
    pub(crate) fn do_shared_letters(
        &mut self,
        at_work: &mut Option<Letter<Part>>,
        turn: &mut Turn,
        returns: &mut Returns<Part>,
    ) -> Option<Halt> {
        self.engine();
        let (State { engine, backlog, .. }, inbox) = (&mut *self.state, &self.place.inbox);
        if at_work.is_none() {
            *at_work = next_letter(backlog, inbox);
        }
        let Some(Ok(mut commits)) = engine.as_mut().map(Shard::commits) else { return Some(Halt::NotShared) };
        while let Some(letter) = at_work {
            backlog.prefetch(Part::prefetch);
            let halt = letter.with_item(|part| do_shared_part(part, &mut commits, turn));
            if halt.is_some() {
                return halt;
            }
            let done = std::mem::replace(at_work, next_letter(backlog, inbox));
            done.into_iter().for_each(|letter| returns.add(letter));
        }
        None
    }

    /// Writes the chunks with which a batch begins that lie in shared memory, as far as there are extents; tells how many.
    pub(crate) fn write_shared(&mut self, batch: &mut Batch<'_>, first_ticket: u64) -> usize {
        let Some(memory) = batch.memory.take() else { return 0 };
        let (mut reads, mut done) = (Reads::new(), 0);
        reads.take_up(memory);
        loop {
            let Ok(mut commits) = self.engine().commits() else { break };
            let (chunks, ticket) = (&batch.chunks[done..], first_ticket + done as u64);
            let halt = commit_row(&mut commits, &mut reads, chunks, ticket, &mut done, |_| true);
            drop(commits);
            if !(halt == Some(Halt::NoRoom) && self.get_extent()) {
                break;
            }
        }
        if done != batch.chunks.len() {
            // What comes behind needs it.
            batch.memory = reads.put_down();
        }
        done
    }
}

#[inline]
fn next_letter(backlog: &mut Letters<Part>, inbox: &Inbox<Part>) -> Option<Letter<Part>> {
    backlog.next().or_else(|| {
        *backlog = inbox.take_all();
        backlog.next()
    })
}

/// Does what is left of a part, if that is chunks in shared memory. None if all of it is done.
#[inline(always)]
fn do_shared_part(part: &mut Part, commits: &mut Commits<'_>, turn: &mut Turn) -> Option<Halt> {
    // Nothing of anybody else's is called until it is put back, so that nothing panics but for a fault of ours.
    let Some(memory) = part.memory.take() else { return Some(Halt::NotShared) };
    let Turn { rest, reads } = turn;
    reads.take_up(memory);
    let ToDo { chunks, ticket, done, .. } = part.undone();
    let halt = commit_row(commits, reads, chunks, ticket, done, |bytes| {
        let may_do = !rest.is_over();
        if may_do {
            rest.note(bytes);
        }
        may_do
    });
    let halt = halt.or(part.has_ops.then_some(Halt::NotShared));
    match halt {
        None => drop(part.finish()),
        Some(_) => part.memory = reads.put_down(),
    }
    halt
}

/// Commits chunks from the front, each if the caller says of its size that it may be done, and counts them. None if none is left.
#[inline(always)]
fn commit_row(
    commits: &mut Commits<'_>,
    reads: &mut Reads,
    chunks: &[(ChunkInfo, Source<'_>)],
    first_ticket: u64,
    done: &mut usize,
    mut may_do: impl FnMut(usize) -> bool,
) -> Option<Halt> {
    for (ticket, (info, source)) in (first_ticket..).zip(chunks) {
        let Source::Shared(token) = source else { return Some(Halt::NotShared) };
        let bytes = token.size_bytes();
        if commits.needs_extent(bytes) {
            return Some(Halt::NoRoom);
        }
        if !may_do(bytes) {
            return Some(Halt::Paused);
        }
        commit_one(commits, reads, (info, token), ticket);
        *done += 1;
    }
    None
}

/// The token is not looked at again: its chunk counts as done, also if this panics.
#[inline(always)]
fn commit_one(
    commits: &mut Commits<'_>,
    reads: &mut Reads,
    (info, token): (&ChunkInfo, &ReadToken),
    ticket: u64,
) {
    // The commit has seen that there is memory.
    let Some(chunk) = reads.attach(token) else { return };
    // A refusal is the caller's mistake, who was told at the commit.
    let _ = commits.copy_chunk_untrusted(info, &SharedBytes(chunk.payload()), ticket);
}
