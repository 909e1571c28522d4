//! Reading in the order of the buffer.
//!
//! ```text
//!   write cursor                                                             write cursor
//!   v oldest                                                          newest v
//!   | A0 | B0 | padding | A1 | C0 | ...                                      |
//!     ^ for each record: all packets of its sequence, from the sequence's front up to
//!       this record (module `walk`)
//! ```
//!
//! Reading is destructive: what was read is erased, what stalls stays for the next pass. Slices
//! point into the ring. Reads write headers only, so slices stay valid until the buffer is used for
//! something else.
//!
//! | module | part of a read |
//! |---|---|
//! | here | from record to record, in ring order or below a cut of tickets |
//! | `walk` | the front of one sequence, fragment by fragment |
//! | `chain` | packets over several chunks |
//! | `fast` | the same for ordinary records, many at once |

mod chain;
mod fast;
mod walk;

use std::ptr::NonNull;

use crate::ids::LossReasons;
use crate::index::records::{NONE, Slot};
use crate::index::sequence::Sequence;
use crate::packet::{Origin, Pieces, Unbound};
use crate::store::Store;
use fast::contiguous::{MAX_PARTS, MIN_CHECKED};
use fast::fragments::FragmentCursor;
use walk::Position;

/// What became of a packet that begins in one record and goes on in others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reassembly {
    Success,
    NotEnoughData,
    Loss(LossReasons),
}

/// A packet in one piece, or a list of pieces.
enum Found {
    Whole(*const [u8]),
    Pieces(Pieces),
}

/// The read pass, and memory that calls use again.
pub(crate) struct Reader {
    /// The record that the pass has reached; [`NONE`] when there is no more, or no pass.
    slot: Slot,
    /// The sequence that is being read up to that record; [`NONE`] between two.
    sequence: u32,
    /// In the front of the sequence; [`Position::NOWHERE`] between two.
    position: Position,
    /// What comes next from there, as long as it is ordinary.
    fragments: FragmentCursor,
    /// The list of the packet that the fragment cursor gave last.
    one: [*const [u8]; 1],
    /// Whose packets these are, and what was lost before the next one.
    origin: Origin,
    /// Records that are checked together next time ([`fast::contiguous`]).
    check_limit: usize,
    /// In a shard: the record whose ticket the pass has reached, which may come before `slot`, and
    /// the ticket.
    target: (Slot, u64),
    /// Number of the newest pass. Sequences note it when they stall.
    generation: u32,
    /// Records that hold the rest of a packet, after the one where it begins.
    chain: Vec<Slot>,
    /// The list of the packet that was found last, if the fast cursor did not find it.
    bodies: Vec<*const [u8]>,
    /// The list of the packet over several chunks that the fast cursor found last. Boxed, so that
    /// borrows of the reader do not touch it while a packet is handed out.
    parts: Box<[*const [u8]; 1 + MAX_PARTS]>,
    /// Lists of packets that are held together.
    kept: Vec<Vec<*const [u8]>>,
}

const NO_BODY: *const [u8] = std::ptr::slice_from_raw_parts(std::ptr::null(), 0);

// SAFETY: the pointers of the lists are used only through packets, whose lifetimes borrow the
// buffer.
unsafe impl Send for Reader {}
// SAFETY: a shared reader's pointers are not used.
unsafe impl Sync for Reader {}

impl Default for Reader {
    fn default() -> Reader {
        Reader {
            slot: NONE,
            sequence: NONE,
            position: Position::NOWHERE,
            fragments: FragmentCursor::default(),
            one: [NO_BODY],
            origin: Origin::default(),
            check_limit: MIN_CHECKED,
            target: (NONE, 0),
            generation: 0,
            chain: Vec::new(),
            bodies: Vec::new(),
            parts: Box::new([NO_BODY; 1 + MAX_PARTS]),
            kept: Vec::new(),
        }
    }
}

impl Reader {
    /// A reader of a copy: it has no pass yet, and sequences that stalled here stall there.
    pub(crate) fn of_copy(&self) -> Reader {
        Reader { generation: self.generation, ..Reader::default() }
    }

    /// Starts a pass at the oldest record. Sequences that stalled are tried again.
    pub(crate) fn begin(&mut self, store: &mut Store) {
        self.flush(store);
        self.generation = self.generation.checked_add(1).unwrap_or(1);
        self.kept.clear();
        self.pause();
        self.slot = store.index.records.front().unwrap_or(NONE);
        self.target = (NONE, 0);
    }

    /// To be called before anything is written: the pass ends. In a shard it goes on afterwards,
    /// from the front of a sequence.
    #[inline]
    pub(crate) fn interrupt(&mut self, store: &mut Store) {
        self.flush(store);
        if !store.index.has_tickets() {
            self.stop();
        } else if self.sequence != NONE {
            // Between two sequences all is as a pause leaves it.
            self.pause();
        }
    }

    /// Leaves the sequence: its front is looked up again.
    #[inline]
    pub(crate) fn pause(&mut self) {
        self.sequence = NONE;
        self.position = Position::NOWHERE;
        self.check_limit = MIN_CHECKED;
    }

    /// Ends the pass.
    #[inline]
    fn stop(&mut self) {
        self.slot = NONE;
        self.sequence = NONE;
        (self.position.left_bytes, self.position.checked) = (0, 0);
    }

    /// Slots at which the pass is: the reached record, the target, the front of the sequence.
    pub(crate) fn slots_in_use(&self) -> [Slot; 3] {
        [self.slot, self.target.0, self.position.slot]
    }

    /// Whether no record that goes away matters to the pass.
    #[inline]
    pub(crate) fn is_between_passes(&self) -> bool {
        self.slot & self.target.0 == NONE
    }

    /// Whether the pass must be told when this record goes away.
    #[inline]
    pub(crate) fn is_at(&self, slot: Slot) -> bool {
        self.slot == slot || self.target.0 == slot
    }

    /// The record at `gone` goes away.
    #[cold]
    pub(crate) fn skip(&mut self, gone: Slot, next: Option<Slot>) {
        if self.slot == gone {
            self.slot = next.unwrap_or(NONE);
        }
        if self.target.0 == gone {
            self.pause();
        }
    }

    /// Whose the packets of the open sequence are.
    pub(crate) fn origin(&self) -> Origin {
        self.origin
    }

    /// Whose the next packet is, and what was lost before it, which is reported once.
    #[inline(always)]
    fn take_origin(&mut self) -> Origin {
        let origin = self.origin;
        self.origin.loss = LossReasons::NONE;
        origin
    }

    /// What was lost before the next packet of the sequence will be reported with that.
    #[inline(always)]
    fn take_loss(&mut self, sequence: &mut Sequence) {
        self.origin.loss = LossReasons(u32::from(std::mem::take(&mut sequence.pending_loss)));
    }

    /// The next packet of the pass, which is consumed. None when there is no more.
    // Always inlined, as all up to the caller's loop: see `Pieces`.
    #[inline(always)]
    pub(crate) fn next(&mut self, store: &mut Store) -> Option<Unbound> {
        let found = self.next_found(|reader| reader.find_next(store))?;
        // SAFETY: the caller bounds the packet by a borrow that ends before the next call.
        Some(unsafe { self.hand_out(found) })
    }

    /// As [`next`](Self::next), of records with tickets below `cut`; with the ticket of the record
    /// at which the packet comes.
    #[inline(always)]
    pub(crate) fn next_below(&mut self, store: &mut Store, cut: u64) -> Option<(u64, Unbound)> {
        if self.fragments.is_ahead() && !self.advance_target(store, cut) {
            self.flush(store);
        }
        let found = self.next_found(|reader| reader.find_next_below(store, cut))?;
        let ticket = self.target.1;
        // SAFETY: as in `next`.
        Some((ticket, unsafe { self.hand_out(found) }))
    }

    /// As [`next`](Self::next); the packet may be held until the next pass begins.
    pub(crate) fn next_kept(&mut self, store: &mut Store) -> Option<Unbound> {
        let packet = self.next(store)?;
        let mut list: Vec<*const [u8]> = packet.slices().iter().map(|&slice| slice as *const _).collect();
        let pieces = NonNull::from_mut(list.as_mut_slice());
        self.kept.push(list);
        // SAFETY: bodies lie in the ring, of which a pass writes headers only. The list is in
        // memory of its own, which does not move with `kept` and stays until the next pass begins.
        Some(unsafe { Unbound::pieces(pieces, packet.origin()) })
    }

    /// The next packet of the fragment cursor, or else what `find` finds.
    #[inline(always)]
    fn next_found(&mut self, mut find: impl FnMut(&mut Self) -> Option<Pieces>) -> Option<Found> {
        loop {
            if let Some(body) = self.fragments.take() {
                if self.fragments.is_at_end() {
                    self.fragments.close();
                }
                return Some(Found::Whole(body));
            }
            let pieces = find(self)?;
            if !pieces.is_empty() {
                return Some(Found::Pieces(pieces));
            }
        }
    }

    /// The packet that was just found.
    ///
    /// # Safety
    /// It may be held until the next packet is asked for: bodies lie in the ring, of which reads
    /// write headers only, lists in the reader.
    #[inline(always)]
    unsafe fn hand_out(&mut self, found: Found) -> Unbound {
        let origin = self.take_origin();
        let pieces = match found {
            Found::Pieces(pieces) => pieces,
            Found::Whole(body) => {
                self.one = [body];
                NonNull::from_mut(&mut self.one)
            }
        };
        // SAFETY: the caller's promise.
        unsafe { Unbound::pieces(pieces, origin) }
    }

    /// Looks for the next packet: the fast cursor first, then record by record.
    #[inline(never)]
    fn find_next(&mut self, store: &mut Store) -> Option<Pieces> {
        let found = self.next_ordinary(store, None);
        if found.is_some() {
            return found;
        }
        loop {
            let slot = self.slot;
            if slot == NONE {
                return None;
            }
            if self.sequence == NONE && !store.index.records.get(slot).is_padding() {
                self.enter_sequence_of(store, slot);
            }
            if self.sequence != NONE {
                let found = self.next_of_sequence(store, slot);
                if found.is_some() {
                    return found;
                }
            }
            self.slot = store.index.records.next(slot).unwrap_or(NONE);
        }
    }

    /// As [`find_next`](Self::find_next), of records with tickets below `cut`.
    #[inline(never)]
    fn find_next_below(&mut self, store: &mut Store, cut: u64) -> Option<Pieces> {
        let found = self.next_ordinary(store, Some(cut));
        if found.is_some() {
            return found;
        }
        while self.slot != NONE {
            if self.sequence == NONE {
                let next = store.index.next_to_read(&mut self.slot, cut, self.generation)?;
                self.target = (next.slot, next.ticket);
                self.enter_sequence_of(store, next.slot);
            }
            let found = self.next_of_sequence(store, self.target.0);
            if found.is_some() {
                return found;
            }
        }
        None
    }

    /// Goes to the front of the sequence of a record.
    #[inline]
    fn enter_sequence_of(&mut self, store: &mut Store, slot: Slot) {
        let sequence = store.index.records.get(slot).sequence;
        store.index.note_gap_before_front(sequence);
        self.open_front(store, sequence);
        Self::prefetch_ahead_of(store, slot);
    }

    /// Looks for the next packet of the open sequence up to `target`. None when that has been read;
    /// then the pass is between two sequences.
    #[inline]
    fn next_of_sequence(&mut self, store: &mut Store, target: Slot) -> Option<Pieces> {
        let sequence = self.sequence;
        let found = self.walk_sequence(store, sequence, target);
        if found.is_none() {
            store.index.sequences.release(sequence);
            self.pause();
        }
        found
    }
}
