//! Tickets: the order of records over all shards of a buffer.
//!
//! A shard lists its records in the order in which it got them. That is the order of their tickets
//! but for those whose committer was overtaken between taking a ticket and queueing its chunks.
//! These are marked as late and kept in a set of their own, usually no larger than there were
//! committers at once. A read takes the smaller of the next record that is not late and the
//! earliest late one.
//!
//! Nothing here looks at all late records, or at all records, for one of them: however many come
//! late, one costs the logarithm of their number.

use std::collections::BTreeSet;

use super::Index;
use super::records::Slot;

/// What a shard knows of tickets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tickets {
    /// Of the chunk that is being committed.
    current: u64,
    newest: u64,
    /// Late records by ticket: all that are listed, and some that are gone.
    late: BTreeSet<(u64, Slot)>,
    /// Above this number those that are gone are looked for: so each look is paid for by as many
    /// records that came late.
    max_late: usize,
}

/// So many late records are kept without a look whether they are gone.
const MIN_LATE: usize = 32;

/// The record to be read next.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NextRecord {
    pub(crate) slot: Slot,
    pub(crate) ticket: u64,
}

impl Index {
    fn tickets(&self) -> &Tickets {
        self.tickets.as_ref().expect("a shard has tickets")
    }

    #[inline(always)]
    pub(crate) fn has_tickets(&self) -> bool {
        self.tickets.is_some()
    }

    /// The ticket of the chunk that is committed next.
    #[inline(always)]
    pub(crate) fn set_ticket(&mut self, ticket: u64) {
        if let Some(tickets) = &mut self.tickets {
            tickets.current = ticket;
        }
    }

    /// The largest ticket so far; 0 if there was none.
    pub(crate) fn newest_ticket(&self) -> u64 {
        self.tickets.as_ref().map_or(0, |tickets| tickets.newest)
    }

    /// The record to be read next: of those below the cut whose sequence has not stalled in this
    /// pass, the one with the smallest ticket. Records that are not late are looked for from `from`
    /// on, which becomes the first of them, or, if there is none, the newest record.
    ///
    /// Records that are not late lie in the order of their tickets, so the next of them is compared
    /// with the earliest late one.
    pub(crate) fn next_to_read(&mut self, from: &mut Slot, cut: u64, generation: u32) -> Option<NextRecord> {
        if self.has_late() {
            self.drop_gone_late();
        }
        let is_ready = |slot: Slot| {
            let record = self.records.get(slot);
            !record.is_padding() && self.sequences.get(record.sequence).stalled_in != generation
        };
        let mut at = Some(*from);
        while let Some(slot) = at {
            *from = slot;
            if is_ready(slot) && !self.records.is_late(slot) {
                break;
            }
            at = self.records.next(slot);
        }
        let in_order = at.map(|slot| NextRecord { slot, ticket: self.records.ticket(slot) });
        let late = self.tickets().late.iter().find_map(|&(ticket, slot)| {
            let is_next = self.is_late(ticket, slot) && is_ready(slot);
            is_next.then_some(NextRecord { slot, ticket })
        });
        let next = match (in_order, late) {
            (Some(in_order), Some(late)) if late.ticket < in_order.ticket => Some(late),
            (None, late) => late,
            (in_order, _) => in_order,
        };
        next.filter(|next| next.ticket < cut)
    }

    /// Whether the order of the ring may not be the order of tickets.
    #[inline]
    pub(crate) fn has_late(&self) -> bool {
        self.tickets.as_ref().is_some_and(|tickets| !tickets.late.is_empty())
    }

    /// The ticket of a record that is next in the ring. None if a late record may come before it.
    #[inline]
    pub(crate) fn ticket_in_order(&self, slot: Slot) -> Option<u64> {
        self.tickets().late.is_empty().then(|| self.records.ticket(slot))
    }

    /// Late records that are gone are not the first any more.
    #[cold]
    fn drop_gone_late(&mut self) {
        while let Some(&(ticket, slot)) = self.tickets().late.first()
            && !self.is_late(ticket, slot)
            && let Some(tickets) = &mut self.tickets
        {
            tickets.late.pop_first();
        }
    }

    /// Whether an entry of the set of late records still means a listed record.
    fn is_late(&self, ticket: u64, slot: Slot) -> bool {
        !self.records.get(slot).is_padding()
            && self.records.is_late(slot)
            && self.records.ticket(slot) == ticket
    }

    /// Notes the ticket of the record that was just written.
    #[inline(always)]
    pub(crate) fn note_ticket(&mut self, slot: Slot) {
        let Some(tickets) = &mut self.tickets else { return };
        let ticket = tickets.current;
        self.records.set_ticket(slot, ticket);
        if ticket < tickets.newest {
            self.note_late(slot, ticket);
        } else {
            tickets.newest = ticket;
        }
    }

    #[cold]
    #[inline(never)]
    fn note_late(&mut self, slot: Slot, ticket: u64) {
        self.records.set_late(slot);
        let Some(mut tickets) = self.tickets.take() else { return };
        if tickets.late.len() > tickets.max_late.max(MIN_LATE) {
            tickets.late.retain(|&(ticket, slot)| self.is_late(ticket, slot));
            tickets.max_late = 2 * tickets.late.len();
        }
        tickets.late.insert((ticket, slot));
        self.tickets = Some(tickets);
    }
}
