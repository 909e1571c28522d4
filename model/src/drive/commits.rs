//! What writers do in a history: commits new and repeated, in stretches and late, and patches.

use super::{Held, Run, WRITERS};
use crate::committed::{Committed, Writer, names_of};
use crate::compare::same;
use crate::history::{Change, Contents, IdPick, Place, Stretch};
use crate::subject::Subject;
use crate::{Chunk, Identity, Patch, flag};

/// Chunks that a history commits in stretches, at most.
const MOST_IN_STRETCHES: usize = 4000;

/// Committers that are stopped at once, at most.
const MOST_HELD: usize = 3;

impl<S: Subject> Run<S> {
    pub(super) fn commit_new(&mut self, writer: u8, id: IdPick, contents: &Contents) -> Result<(), String> {
        let index = usize::from(writer % WRITERS);
        let chunk = self.new_chunk(index, id, contents);
        self.commit(index, chunk, contents.complete)
    }

    fn new_chunk(&mut self, writer: usize, id: IdPick, contents: &Contents) -> Committed {
        let writer = &self.writers[writer];
        let id = match id {
            IdPick::Next => writer.highest.wrapping_add(1),
            IdPick::Skip(n) => writer.highest.wrapping_add(2 + u32::from(n % 3)),
            IdPick::Back(n) => writer.highest.wrapping_sub(u32::from(n % 8)),
            IdPick::Any(id) => id,
        };
        let mut flags = contents.other_flags & !flag::KNOWN;
        flags |= u8::from(writer.continues != contents.flip_first_continues) * flag::FIRST_CONTINUES;
        flags |= u8::from(contents.last_continues) * flag::LAST_CONTINUES;
        flags |= u8::from(contents.needs_patching) * flag::NEEDS_PATCHING;
        let fragments: Vec<_> = contents.fragments.iter().map(|f| f.bytes(&mut self.serial)).collect();
        let declared = contents.declared.of(fragments.len());
        let slack = vec![contents.slack.byte; usize::from(contents.slack.len)];
        Committed { id, fragments, declared, flags, slack }
    }

    /// The ticket of the next commit.
    fn take_ticket(&mut self) -> u64 {
        self.next_ticket += 1;
        self.next_ticket - 1
    }

    pub(super) fn hold(&mut self, writer: u8, contents: &Contents) -> Result<(), String> {
        if !S::HAS_TICKETS || self.held.len() == MOST_HELD {
            return self.commit_new(writer, IdPick::Next, contents);
        }
        let index = usize::from(writer % WRITERS);
        let chunk = self.new_chunk(index, IdPick::Next, contents);
        let ticket = self.take_ticket();
        let Writer { producer_id, writer_id, .. } = self.writers[index];
        self.note(format_args!("ticket {ticket} is for {producer_id}/{writer_id}, id {}", chunk.id));
        self.subject.announce(ticket);
        self.writers[index].remember(chunk.clone());
        self.held.push(Held { ticket, writer: index, chunk, complete: contents.complete });
        Ok(())
    }

    pub(super) fn release(&mut self, nth: u8) -> Result<(), String> {
        if self.held.is_empty() {
            return Ok(());
        }
        let Held { ticket, writer, mut chunk, complete } =
            self.held.remove(usize::from(nth) % self.held.len());
        let Writer { producer_id, writer_id, .. } = self.writers[writer];
        if !self.model.has_one_order(producer_id, writer_id, chunk.id) {
            // It must continue without a report.
            (chunk.fragments, chunk.slack, chunk.declared) = (Vec::new(), Vec::new(), 0);
            chunk.id = self.writers[writer].highest;
        }
        self.note_commit("goes on: ", writer, &chunk, complete);
        let bytes = chunk.bytes();
        let chunk = self.chunk_of(writer, &chunk, complete, &bytes);
        self.model.set_ticket(ticket);
        same("commit", &self.subject.commit_announced(ticket, &chunk), &self.model.commit(&chunk))
    }

    pub(super) fn recommit(
        &mut self,
        writer: u8,
        nth_newest: u8,
        change: &Change,
        complete: bool,
    ) -> Result<(), String> {
        let index = usize::from(writer % WRITERS);
        let Some(mut chunk) = self.nth_newest(index, nth_newest) else {
            return Ok(());
        };
        match change {
            Change::Same => {}
            Change::Grow(more) => {
                for fragment in more {
                    let bytes = fragment.bytes(&mut self.serial);
                    chunk.slack.truncate(chunk.slack.len().saturating_sub(bytes.len()));
                    chunk.fragments.push(bytes);
                    chunk.declared = chunk.declared.saturating_add(1);
                }
            }
            Change::Shrink(n) => {
                let keep = chunk.fragments.len().saturating_sub(usize::from(*n));
                chunk.fragments.truncate(keep);
                chunk.declared = keep as u16;
            }
            Change::Replace(fragments, declared) => {
                chunk.fragments = fragments.iter().map(|f| f.bytes(&mut self.serial)).collect();
                chunk.declared = declared.of(fragments.len());
            }
            Change::Flags(flags) => chunk.flags = *flags,
            Change::Continue(needs_patching) => {
                chunk.flags |= flag::LAST_CONTINUES | (u8::from(*needs_patching) * flag::NEEDS_PATCHING);
            }
        }
        self.commit(index, chunk, complete)
    }

    fn nth_newest(&self, writer: usize, nth_newest: u8) -> Option<Committed> {
        self.writers[writer].commits.iter().rev().nth(usize::from(nth_newest)).cloned()
    }

    fn commit(&mut self, writer: usize, committed: Committed, complete: bool) -> Result<(), String> {
        let Writer { producer_id, writer_id, .. } = self.writers[writer];
        if self.model.has_one_order(producer_id, writer_id, committed.id) {
            self.note_commit("", writer, &committed, complete);
        }
        self.commit_silently(writer, committed, complete)
    }

    fn note_commit(&mut self, how: &str, writer: usize, committed: &Committed, complete: bool) {
        let Writer { producer_id, writer_id, .. } = self.writers[writer];
        let Committed { id, fragments, declared, flags, slack } = committed;
        let bytes = committed.bytes();
        let sizes = fragments.iter().map(Vec::len).collect::<Vec<_>>();
        let raw = bytes.iter().take(24).map(|b| format!("{b:02x}")).collect::<String>();
        self.note(format_args!(
            "{how}commit({producer_id}/{writer_id}, id {id}, {}, {}, {declared} of {sizes:?} + {} = {} bytes {raw}..)",
            if complete { "complete" } else { "scraped" },
            names_of(*flags),
            slack.len(),
            bytes.len(),
        ));
    }

    fn chunk_of<'a>(
        &self,
        writer: usize,
        committed: &Committed,
        complete: bool,
        bytes: &'a [u8],
    ) -> Chunk<'a> {
        let Writer { producer_id, writer_id, .. } = self.writers[writer];
        let identity = Identity {
            uid: producer_id.cast_signed(),
            pid: 100 + self.epochs[(producer_id >> 16) as usize],
            machine_id: producer_id - 1,
        };
        let &Committed { id: chunk_id, declared: num_fragments, flags, .. } = committed;
        Chunk { producer_id, writer_id, identity, chunk_id, num_fragments, flags, complete, bytes }
    }

    fn commit_silently(&mut self, writer: usize, committed: Committed, complete: bool) -> Result<(), String> {
        let Writer { producer_id, writer_id, .. } = self.writers[writer];
        if !self.model.has_one_order(producer_id, writer_id, committed.id) {
            return Ok(());
        }
        let bytes = committed.bytes();
        let chunk = self.chunk_of(writer, &committed, complete, &bytes);
        if S::HAS_TICKETS {
            let ticket = self.take_ticket();
            self.subject.set_ticket(ticket);
            self.model.set_ticket(ticket);
        }
        same("commit", &self.subject.commit(&chunk), &self.model.commit(&chunk))?;
        self.writers[writer].remember(committed);
        Ok(())
    }

    pub(super) fn stretch(&mut self, stretch: &Stretch) -> Result<(), String> {
        let open: Vec<_> = self.writers.iter().map(|writer| writer.continues).collect();
        let mut next: Vec<_> = self.writers.iter().map(|writer| writer.highest.wrapping_add(1)).collect();
        self.note(format_args!("{stretch:?} from ids {next:?}"));
        let mut chunks = Vec::new();
        let mut continues = open.clone();
        for (nth, page) in stretch.pages(&open).into_iter().enumerate() {
            let writer = usize::from(page.writer);
            let id = next[writer].wrapping_add(u32::from(stretch.skips_before(nth)));
            next[writer] = id.wrapping_add(1);
            let flags = [
                (continues[writer], flag::FIRST_CONTINUES),
                (page.goes_on, flag::LAST_CONTINUES),
                (page.needs_patching, flag::NEEDS_PATCHING),
            ];
            let flags = flags.iter().filter(|(is_set, _)| *is_set).fold(0, |all, (_, flag)| all | flag);
            continues[writer] = page.goes_on;
            let fragments: Vec<_> = page.fragments.iter().map(|f| f.bytes(&mut self.serial)).collect();
            let declared = fragments.len() as u16;
            chunks.push((writer, Committed { id, fragments, declared, flags, slack: Vec::new() }));
        }
        for (nth, complete) in stretch.order(chunks.len()) {
            if self.in_stretches < MOST_IN_STRETCHES {
                self.in_stretches += 1;
                let (writer, chunk) = chunks[nth].clone();
                self.commit_silently(writer, chunk, complete)
                    .map_err(|told| format!("chunk {nth} of the stretch: {told}"))?;
            }
        }
        Ok(())
    }

    pub(super) fn patch(
        &mut self,
        writer: u8,
        nth_newest: u8,
        places: &[Place],
        pending: bool,
    ) -> Result<(), String> {
        let index = usize::from(writer % WRITERS);
        let (producer_id, writer_id) = (self.writers[index].producer_id, self.writers[index].writer_id);
        let chunk = self.nth_newest(index, nth_newest);
        let id = chunk.as_ref().map_or(77_777, |chunk| chunk.id);
        let fragments = chunk.map_or(Vec::new(), |chunk| chunk.fragments);
        let total: usize = fragments.iter().map(Vec::len).sum();
        let last = fragments.last().map_or(&[][..], |fragment| fragment);
        let header = last.iter().position(|&byte| byte < 0x80).map_or(0, |i| i + 1);
        let room = last.len().saturating_sub(header + 3).max(1);
        let patches: Vec<_> = places
            .iter()
            .map(|place| {
                self.serial += 1;
                let offset = match *place {
                    Place::LastBody(n) => (total - last.len() + header + usize::from(n) % room) as u32,
                    Place::Offset(n) => u32::from(n),
                    Place::NearEnd(n) => (total as u32).wrapping_add(u32::from(n)).wrapping_sub(6),
                    Place::Far(n) => n,
                };
                Patch { offset, data: self.serial.to_be_bytes() }
            })
            .collect();
        let offsets: Vec<_> = patches.iter().map(|patch| patch.offset).collect();
        self.note(format_args!(
            "patch({producer_id}/{writer_id}, id {id}, at {offsets:?}, pending {pending})"
        ));
        let subject = self.subject.patch(producer_id, writer_id, id, &patches, pending);
        same("patch", &subject, &self.model.patch(producer_id, writer_id, id, &patches, pending))
    }
}
