//! Commits: from untrusted bytes to a record.
//!
//! ```text
//!   open the sequence -> is the id listed? -> size the fragments -> recommit in place
//!                                                               \-> older than consumed: refuse
//!                                                               \-> make room -> copy -> insert
//! ```
//!
//! The bytes are looked at once, in a slice that nobody else can change: the caller's own, or a private copy. Everything that is kept
//! about the fragments comes from that look, and exactly these bytes go into the ring. The lookup comes before the eviction: an
//! eviction may destroy the record that the chunk is a second copy of.

use crate::buffer::{CommitScratch, SPANS, TraceBuffer};
use crate::config::{ChunkInfo, FillPolicy, Refused};
use crate::ids::{ChunkFlags, ChunkId, LossReasons, key_of};
use crate::records::{NO_SIZES, NONE, Record, bit};
use crate::sequences::{Ended, Sequence};
use crate::sizes;
use crate::source::ByteSource;
use crate::tbchunk::{self, TbChunk, outer_bytes};
use watershed_simd::{Span, Stop};

/// Why fewer fragments are visible than were declared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cut {
    /// A fragment is missing or malformed.
    Malformed,
    /// The writer gave up its packet.
    Abort,
}

/// A chunk whose fragments have been looked at.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SizedChunk<'a> {
    pub(crate) info: &'a ChunkInfo,
    pub(crate) key: u32,
    /// The visible fragments, and nothing else.
    pub(crate) visible: &'a [u8],
    pub(crate) reserved_bytes: usize,
    /// The flags that count: those of the header, less what a cut makes meaningless.
    pub(crate) flags: u8,
    pub(crate) cut: Option<Cut>,
    pub(crate) fragments: usize,
    pub(crate) first_bytes: u16,
    /// FIRST_EMPTY, LAST_EMPTY, DELIVERABLE.
    pub(crate) summary: u16,
}

impl SizedChunk<'_> {
    #[inline]
    pub(crate) fn outer_bytes(&self) -> usize {
        outer_bytes(self.reserved_bytes)
    }

    /// The bits of the record: flags, what a cut leaves, the summary.
    #[inline]
    pub(crate) fn bits(&self) -> u16 {
        let incomplete = if self.info.complete { 0 } else { bit::INCOMPLETE };
        u16::from(self.flags) & bit::KNOWN_FLAGS | incomplete | self.summary
    }
}

/// What a chunk loses with its last fragment.
const TIED_TO_LAST: u8 = ChunkFlags::LAST_CONTINUES.0 | ChunkFlags::NEEDS_PATCHING.0;

impl TraceBuffer {
    /// Commits a chunk: copies its complete fragments into the ring. Whatever is wrong with its bytes is counted, never an error.
    /// Ends the current read pass.
    ///
    /// # Errors
    /// If the call itself is wrong: see [`Refused`]. Then nothing has changed.
    #[inline]
    pub fn copy_chunk_untrusted<S: ByteSource + ?Sized>(
        &mut self,
        info: &ChunkInfo,
        source: &S,
    ) -> Result<(), Refused> {
        let key = key_of(info.producer_id_trusted, info.writer_id);
        let size_bytes = source.size_bytes();
        if self.is_read_only {
            return Err(Refused::ReadOnly);
        }
        if key == 0 {
            return Err(Refused::ReservedKey);
        }
        if size_bytes > ChunkInfo::MAX_SIZE_BYTES {
            return Err(Refused::ChunkTooLarge { size_bytes });
        }
        if self.sequences.is_full() {
            return Err(Refused::TooManySequences);
        }
        self.end_read_pass();
        let mut scratch = self.commit_scratch.take().unwrap_or_else(CommitScratch::new);
        let CommitScratch { staging, spans } = &mut *scratch;
        let bytes = match source.stable_bytes() {
            Some(bytes) => bytes,
            None => {
                let staging = &mut staging[..size_bytes];
                source.copy_range(0, staging);
                staging
            }
        };
        self.commit(info, key, bytes, spans);
        self.commit_scratch = Some(scratch);
        Ok(())
    }

    fn commit(&mut self, info: &ChunkInfo, key: u32, bytes: &[u8], spans: &mut [Span; SPANS]) {
        let id = info.chunk_id;
        let opened = self.sequences.open(key);
        let (mut is_new_life, mut found) = (false, Err(0));
        if let Some(index) = opened {
            let sequence = self.sequences.get(index);
            is_new_life = sequence.ended.is_some() && starts_new_life(sequence, id);
            found = if is_new_life { Err(sequence.queue.len()) } else { sequence.find(&self.records, id) };
        }
        if self.is_sealed && found.is_err() {
            self.stats.chunks_discarded += 1;
        } else {
            let chunk = size_fragments(info, key, bytes, spans);
            self.place(&chunk, spans, opened, is_new_life, found);
        }
        if let Some(index) = opened {
            self.sequences.release(index);
        }
    }

    /// Decides what becomes of a chunk that has been sized.
    fn place(
        &mut self,
        chunk: &SizedChunk<'_>,
        spans: &[Span],
        opened: Option<u32>,
        is_new_life: bool,
        found: Result<usize, usize>,
    ) {
        if chunk.cut == Some(Cut::Malformed) {
            self.stats.abi_violations += 1;
        }
        if chunk.outer_bytes() > self.space.size_bytes() {
            self.stats.abi_violations += 1;
            if let (Some(index), Err(at), true, false) = (opened, found, chunk.info.complete, is_new_life) {
                self.mark_oversize(index, at, chunk.info.chunk_id);
            }
            return;
        }
        match (opened, found) {
            (Some(sequence), Ok(at)) => self.recommit(chunk, spans, sequence, at),
            (Some(sequence), Err(_)) => {
                let identity = if is_new_life {
                    Some(self.identities.intern(chunk.info.identity_trusted))
                } else {
                    None
                };
                if let Some(identity) = identity {
                    self.sequences.get_mut(sequence).start_life(&mut self.records, identity);
                    self.sequences.get_mut(sequence).histogram = NONE;
                }
                if let Some(skip) = self.admit(chunk, sequence) {
                    self.write(chunk, spans, sequence, skip);
                }
            }
            (None, _) => {
                let identity = self.identities.intern(chunk.info.identity_trusted);
                let sequence = self.sequences.create(chunk.key, identity);
                self.write(chunk, spans, sequence, 0);
                self.sequences.release(sequence);
            }
        }
    }

    /// Compares an unlisted chunk with what was consumed last: none if it comes too late, else how many of its bytes have been consumed.
    #[inline]
    fn admit(&mut self, chunk: &SizedChunk<'_>, sequence: u32) -> Option<usize> {
        let Some(last) = self.sequences.get(sequence).last_of_newest_life() else { return Some(0) };
        let id = chunk.info.chunk_id;
        if id.is_newer_than(last.chunk_id) {
            return Some(0);
        }
        let payload_bytes = usize::from(last.payload_bytes);
        if id == last.chunk_id && last.incomplete && chunk.visible.len() > payload_bytes {
            return Some(payload_bytes);
        }
        if id == last.chunk_id && chunk.visible.len() == payload_bytes {
            self.ledger.duplicate_commits += 1;
        } else {
            self.stats.chunks_discarded += 1;
        }
        None
    }

    /// Makes room and writes a new record, of which the first `skip` bytes have been consumed before.
    pub(crate) fn write(&mut self, chunk: &SizedChunk<'_>, spans: &[Span], sequence: u32, skip: usize) {
        let outer = chunk.outer_bytes();
        self.pinned = sequence;
        if self.space.extents.is_some() {
            self.make_room_in_extents(outer);
            self.pinned = NONE;
            self.append(chunk, spans, sequence, skip);
            return;
        }
        if !self.space.fits(outer) {
            if self.policy == FillPolicy::Discard {
                self.is_sealed = true;
                self.stats.chunks_discarded += 1;
                self.pinned = NONE;
                return;
            }
            self.evict_tail();
            self.space.wrap();
            self.stats.write_wrap_count += 1;
        }
        self.make_room(outer);
        self.pinned = NONE;
        self.append(chunk, spans, sequence, skip);
    }

    /// Writes a record at the cursor, where there is room, and lists it.
    fn append(&mut self, chunk: &SizedChunk<'_>, spans: &[Span], sequence: u32, skip: usize) {
        let (offset, outer) = (self.space.cursor(), chunk.outer_bytes());
        let (id, visible_bytes) = (chunk.info.chunk_id, chunk.visible.len());
        let mut bits = chunk.bits();
        if skip != 0 {
            bits = bits & !bit::FIRST_TAKEN | bit::STARTED;
            if !ends_a_fragment(chunk, spans, skip) {
                bits |= bit::UNALIGNED;
            }
        }
        let mut kept_at = NO_SIZES;
        if sizes::is_worth_keeping(chunk.fragments, visible_bytes)
            && chunk.fragments <= SPANS
            && bits & bit::UNALIGNED == 0
            && let Some((list, at)) = self.records.sizes_for_next()
        {
            sizes::append(list, &spans[..chunk.fragments], visible_bytes);
            kept_at = at;
        }
        let record = Record {
            sequence,
            chunk_id: id.0,
            unread_bytes: (visible_bytes - skip) as u16,
            first_bytes: chunk.first_bytes,
            sizes: kept_at,
            bits,
            ..Record::padding(offset)
        };
        let slot = self.records.push_back(record);
        self.ring.set_header(
            offset,
            TbChunk {
                chunk_id: id.0,
                key: chunk.key,
                reserved_bytes: chunk.reserved_bytes as u16,
                visible_bytes: visible_bytes as u16,
                unread_bytes: record.unread_bytes,
                flags: chunk.flags | if chunk.info.complete { 0 } else { tbchunk::INCOMPLETE },
                checksum: 0,
            },
        );
        self.ring.write(offset + tbchunk::HEADER_BYTES, chunk.visible);
        self.space.advance(outer);
        self.ring.prefetch_ahead(offset + outer, outer);
        if let Some(extents) = &mut self.space.extents {
            extents.note_listed(offset);
        }
        self.note_ticket(slot);

        let listed = self.sequences.get_mut(sequence);
        let (Ok(at) | Err(at)) = listed.find(&self.records, id);
        if at != listed.queue.len() {
            self.stats.chunks_committed_out_of_order += 1;
        }
        listed.insert(at, slot, id);
        self.stats.chunks_written += 1;
        self.stats.bytes_written += outer as u64;
        self.ledger.written.add(outer);
        self.ledger.listed.add(outer);
        self.count_size(sequence, visible_bytes);
        self.mark_cut(slot, chunk.cut);
    }

    /// Adds a visible size to the histogram of a sequence's writer.
    #[inline]
    pub(crate) fn count_size(&mut self, sequence: u32, visible_bytes: usize) {
        let sequence = self.sequences.get_mut(sequence);
        if sequence.histogram == NONE {
            sequence.histogram = self.histograms.number_of(sequence.key, sequence.newest_identity());
        }
        self.histograms.add(sequence.histogram, visible_bytes);
    }

    /// Notes at a record's end what came after its visible fragments.
    #[inline]
    pub(crate) fn mark_cut(&mut self, slot: u32, cut: Option<Cut>) {
        let Some(cut) = cut else { return };
        let record = self.records.get_mut(slot);
        match cut {
            Cut::Malformed => record.bits |= bit::CUT,
            Cut::Abort => {
                self.stats.trace_writer_packet_loss += u64::from(!record.has(bit::ABORTED));
                record.bits |= bit::ABORTED;
            }
        }
    }

    /// A chunk larger than the buffer gets no record: its loss is noted where it would have been.
    fn mark_oversize(&mut self, sequence: u32, at: usize, id: ChunkId) {
        let listed = self.sequences.get_mut(sequence);
        if listed.last_of_newest_life().is_some_and(|last| !id.is_newer_than(last.chunk_id)) {
            return;
        }
        match at.checked_sub(1) {
            None => listed.add_loss(LossReasons::CHUNK_CORRUPTED),
            Some(before) => self.records.get_mut(listed.queue.get(before)).bits |= bit::CUT,
        }
    }
}

/// Whether a chunk comes from another writer than the one that has ended.
fn starts_new_life(sequence: &Sequence, id: ChunkId) -> bool {
    match sequence.ended {
        None => false,
        Some(Ended::Producer) => true,
        Some(Ended::Writer) => {
            let consumed = sequence.last_of_newest_life().map(|last| last.chunk_id);
            [sequence.newest_listed(), consumed].into_iter().flatten().any(|known| !id.is_newer_than(known))
        }
    }
}

/// Looks at the fragments of a chunk: how many are visible, and what the record needs to know about them. Spans of the first
/// [`SPANS`] are left in `spans`.
#[inline]
fn size_fragments<'a>(info: &'a ChunkInfo, key: u32, bytes: &'a [u8], spans: &mut [Span]) -> SizedChunk<'a> {
    let mut flags = info.flags.0 & ChunkFlags::FIELD.0;
    let mut count = usize::from(info.num_fragments);
    if !info.complete && count > 0 {
        count -= 1;
        flags &= !TIED_TO_LAST;
    }
    let walk = watershed_simd::walk(bytes, count, spans);
    let (mut fragments, mut visible_bytes, mut stop) = (walk.fragments, walk.visible_bytes, walk.stop);
    let found = &spans[..fragments];
    let header_bytes_of = |spans: &[Span]| spans.iter().map(|span| span.header_bytes()).sum::<usize>();
    let first = found.first().copied().unwrap_or_default();
    let mut last = found.last().copied().unwrap_or_default();
    let mut more_header_bytes = 0;
    if fragments == SPANS && count > SPANS {
        let mut more = [Span::default(); 64];
        while fragments < count && stop == Stop::Limit {
            let walk = watershed_simd::walk(&bytes[visible_bytes..], count - fragments, &mut more);
            fragments += walk.fragments;
            visible_bytes += walk.visible_bytes;
            more_header_bytes += header_bytes_of(&more[..walk.fragments]);
            last = more[..walk.fragments].last().copied().unwrap_or(last);
            stop = walk.stop;
        }
    }
    let cut = match stop {
        _ if fragments == count => None,
        Stop::DropMarker => Some(Cut::Abort),
        _ => Some(Cut::Malformed),
    };
    if cut.is_some() {
        flags &= !TIED_TO_LAST;
    }
    // Usually there are more bytes than all headers together can have.
    let body_of_ends = body_of_ends(flags, fragments, first, last);
    let is_deliverable = visible_bytes > body_of_ends + fragments * 10
        || visible_bytes > body_of_ends + header_bytes_of(found) + more_header_bytes;
    let mut summary = if is_deliverable { bit::DELIVERABLE } else { 0 };
    if fragments > 0 {
        summary |= if first.body_bytes() == 0 { bit::FIRST_EMPTY } else { 0 };
        summary |= if last.body_bytes() == 0 { bit::LAST_EMPTY } else { 0 };
    }
    SizedChunk {
        info,
        key,
        visible: &bytes[..visible_bytes],
        reserved_bytes: if info.complete { visible_bytes } else { bytes.len() },
        flags,
        cut,
        fragments,
        first_bytes: if fragments > 0 { first.total_bytes() as u16 } else { 0 },
        summary,
    }
}

/// Body bytes of the fragments that are no packets by themselves.
#[inline]
fn body_of_ends(flags: u8, fragments: usize, first: Span, last: Span) -> usize {
    let continues = flags & ChunkFlags::FIRST_CONTINUES.0 != 0 && fragments > 0;
    let goes_on = flags & ChunkFlags::LAST_CONTINUES.0 != 0 && fragments > usize::from(continues);
    let first = if continues { first.body_bytes() } else { 0 };
    first + if goes_on { last.body_bytes() } else { 0 }
}

/// Whether a fragment ends after `skip` visible bytes.
pub(crate) fn ends_a_fragment(chunk: &SizedChunk<'_>, spans: &[Span], skip: usize) -> bool {
    let mut end = 0;
    for span in &spans[..chunk.fragments.min(SPANS)] {
        if end >= skip {
            break;
        }
        end += span.total_bytes();
    }
    // Behind the spans that were kept nothing is known: the bytes are tested as they are read.
    end == skip
}
