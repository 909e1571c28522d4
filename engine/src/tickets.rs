//! Tickets: the order of records over all shards of a buffer.
//!
//! A shard lists its records in the order in which it got them. That is the order of their tickets but for those whose committer was
//! overtaken between taking a ticket and queueing its chunks: their tickets are marked, and they are kept in a list beside, as many as
//! there were committers at once. A read takes the smaller of the next record that is not late and the earliest late one.

use crate::buffer::TraceBuffer;
use crate::records::{NONE, Slot};

/// What a shard knows of tickets.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tickets {
    /// Of the chunk that is being committed.
    pub(crate) now: u64,
    pub(crate) newest: u64,
    /// Late records, the smallest ticket last: all that are listed. Entries of records that have gone are passed over.
    late: Vec<(u64, Slot)>,
}

/// A record whose turn it is.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ToRead {
    pub(crate) slot: Slot,
    pub(crate) ticket: u64,
    pub(crate) is_late: bool,
}

impl TraceBuffer {
    fn tickets(&self) -> &Tickets {
        self.tickets.as_ref().expect("a shard has tickets")
    }

    /// The ticket of the chunk that comes next.
    #[inline(always)]
    pub(crate) fn set_ticket(&mut self, ticket: u64) {
        if let Some(tickets) = &mut self.tickets {
            tickets.now = ticket;
        }
    }

    /// The ticket of the oldest listed record.
    pub(crate) fn oldest_ticket(&self) -> Option<u64> {
        let oldest = self
            .records
            .slots()
            .find(|&slot| !self.records.get(slot).is_padding() && !self.reader.has_left(slot))?;
        let late = self.tickets().late.iter().rev().find(|&&(ticket, slot)| self.is_late(ticket, slot));
        Some(self.records.ticket(oldest).min(late.map_or(u64::MAX, |late| late.0)))
    }

    /// Takes the oldest record, which is padding, out of the list; a read pass that stands there goes on behind it.
    #[inline(always)]
    pub(crate) fn pop_oldest_record(&mut self) {
        let Some(front) = self.records.front() else { return };
        if self.tickets.is_some() {
            // The list of late records may still name it.
            self.records.get_mut(front).sequence = NONE;
        }
        if self.reader.stands_on(front) {
            self.reader.skip(front, self.records.next(front));
        }
        if self.records.pop_front() {
            self.sequences.fit_some();
        }
    }

    /// The record to be read next, at or behind `from`: of those below the cut that do not wait, the one with the smallest ticket.
    ///
    /// Records that did not come late lie in the order of their tickets, so the next of them is compared with the earliest late one.
    pub(crate) fn next_to_read(&self, from: Slot, cut: u64) -> Option<ToRead> {
        let is_ready = |slot: Slot| {
            let record = self.records.get(slot);
            !record.is_padding() && self.sequences.get(record.sequence).stalled_in != self.generation
        };
        let mut at = Some(from);
        while let Some(slot) = at
            && (!is_ready(slot) || self.records.is_late(slot))
        {
            at = self.records.next(slot);
        }
        let in_order = at.map(|slot| ToRead { slot, ticket: self.records.ticket(slot), is_late: false });
        let late = self.tickets().late.iter().rev().find_map(|&(ticket, slot)| {
            (self.is_late(ticket, slot) && is_ready(slot)).then_some(ToRead { slot, ticket, is_late: true })
        });
        let next = match (in_order, late) {
            (Some(in_order), Some(late)) if late.ticket < in_order.ticket => Some(late),
            (None, late) => late,
            (in_order, _) => in_order,
        };
        next.filter(|next| next.ticket < cut)
    }

    /// Whether the turns of records are not in the order of the ring.
    #[inline]
    pub(crate) fn has_late(&self) -> bool {
        self.tickets.as_ref().is_some_and(|tickets| !tickets.late.is_empty())
    }

    /// The ticket of a record whose turn it is when it is its turn in the ring, since no record is late.
    #[inline]
    pub(crate) fn ticket_in_order(&self, slot: Slot) -> Option<u64> {
        self.tickets().late.is_empty().then(|| self.records.ticket(slot))
    }

    /// Whether an entry of the list of late records still means a listed record.
    fn is_late(&self, ticket: u64, slot: Slot) -> bool {
        !self.records.get(slot).is_padding()
            && self.records.is_late(slot)
            && self.records.ticket(slot) == ticket
    }

    /// Notes the ticket of the record that was just written.
    #[inline(always)]
    pub(crate) fn note_ticket(&mut self, slot: Slot) {
        let Some(tickets) = &mut self.tickets else { return };
        let ticket = tickets.now;
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
        tickets.late.retain(|&(ticket, slot)| self.is_late(ticket, slot));
        let at = tickets.late.partition_point(|&(other, _)| other > ticket);
        tickets.late.insert(at, (ticket, slot));
        self.tickets = Some(tickets);
    }
}
