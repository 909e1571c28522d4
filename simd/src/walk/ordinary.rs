//! The walk over an ordinary chunk, into 16 bits a fragment.
//!
//! ```text
//!   dense    |05|..|21|....|1c|...|...       one-byte headers, in groups of 8: a load and an
//!             group of 8        group        addition each, one test of where they end
//!   sparse   |c8 01|..........|ff 02|....    any header from one load, without a branch
//! ```
//!
//! Fragments of ordinary chunks end where their writer says, so that 16 bits for each are enough.
//! What is not ordinary is refused, and walked by [`super::one`].
//!
//! The processor waits for header after header meanwhile. So it asks for lines that will be written
//! soon at the same time, some with each group ([`LinesAhead`]).

use super::MAX_HEADER_BYTES;
use crate::Kernels;
use crate::prefetch::LinesAhead;
use crate::word::{Header, opaque};

/// Where the length of the header begins in an entry of [`walk_ordinary`]; below it are the bytes
/// of the whole fragment.
pub const ENTRY_HEADER_SHIFT: u32 = 12;

/// The most bytes of a fragment that an entry counts.
pub const MAX_ENTRY_BYTES: usize = (1 << ENTRY_HEADER_SHIFT) - 1;

const _: () = assert!(MAX_HEADER_BYTES < 15, "15 is free to mean something else");

/// With fewer bytes for each fragment most headers take one byte, and a private copy of a chunk
/// takes less time than a fetch of its headers ([`crate::shared`]).
const DENSE_MEAN_BYTES: usize = 128;

/// Headers in a group, and the most bytes that their fragments take.
const GROUP: usize = 8;
const GROUP_BYTES: usize = GROUP * 128;

/// Whether a chunk has so many headers that it is better copied before they are walked.
#[inline(always)]
pub fn is_dense(fragments: usize, chunk_bytes: usize) -> bool {
    fragments * DENSE_MEAN_BYTES > chunk_bytes
}

/// Walks exactly as many fragments as there are `entries`, and writes the extent of each: `header
/// bytes << 12 | bytes with the header`. Meanwhile it prefetches the lines `ahead`.
///
/// Returns the bytes of all, which is above 0. Returns 0, and the entries mean nothing, if a
/// fragment is larger than [`MAX_ENTRY_BYTES`], a header is longer than four bytes, a header begins
/// in the last eight bytes, or there are not as many fragments. Some levels take longer headers,
/// and headers nearer to the last byte.
///
/// Any bytes are fine: no input makes it panic, and nothing outside `bytes` is read.
#[inline(always)]
pub fn walk_ordinary(bytes: &[u8], entries: &mut [u16], ahead: LinesAhead) -> usize {
    Kernels::chosen().walk_ordinary(bytes, entries, ahead)
}

/// The same contract, at the level of `H`.
///
/// # Safety
/// The processor has what `H` needs.
#[inline(always)]
pub(crate) unsafe fn walk<H: Header>(bytes: &[u8], entries: &mut [u16], ahead: LinesAhead) -> usize {
    let is_dense = is_dense(entries.len(), bytes.len());
    let mut ahead = Paced::new(ahead, bytes.len());
    // SAFETY: the bytes are readable, and the processor has the level.
    unsafe { walk_beside::<H>(bytes.as_ptr(), bytes.len(), entries, is_dense, &mut ahead) }
}

/// The same, with something to do beside the walk.
///
/// # Safety
/// The processor has what `H` needs, `len` bytes are readable from `start` on, and nobody writes to
/// those that the walk has come to.
#[inline(always)]
pub(crate) unsafe fn walk_beside<H: Header>(
    start: *const u8,
    len: usize,
    entries: &mut [u16],
    is_dense: bool,
    beside: &mut impl Beside,
) -> usize {
    let wide = H::BEFORE_BYTES + H::WIDE_BYTES;
    let (Some(last), Some(last_wide)) = (entries.len().checked_sub(1), len.checked_sub(wide)) else {
        return 0;
    };
    let mut walk = Ordinary { start, at: 0, last_wide };
    // SAFETY: the bytes are readable as `Ordinary` says, and the processor has the level.
    let before_last = unsafe {
        if is_dense {
            let last_group = len.saturating_sub(GROUP_BYTES);
            walk.take_dense::<H>(&mut entries[..last], last_group, beside)
        } else {
            walk.take_sparse::<H>(&mut entries[..last], beside)
        }
    };
    // SAFETY: as above.
    let is_walked = before_last.is_some() && unsafe { walk.take::<H>(&mut entries[last]) }.is_some();
    if is_walked && walk.at <= len { walk.at } else { 0 }
}

/// What is done beside a walk, while that waits for header after header.
pub(crate) trait Beside {
    /// There are so many steps, at most: headers, or groups of them in a dense chunk.
    fn begin(&mut self, steps: usize);
    /// Bytes in front of `end` are read next: inside of the chunk, if it is dense.
    fn before_step(&mut self, end: usize);
    /// Any bytes are read next.
    fn finish(&mut self);
}

/// Prefetches lines, as many with each step.
pub(crate) struct Paced {
    ahead: LinesAhead,
    lines: usize,
}

impl Paced {
    /// The lines of so many bytes.
    #[inline(always)]
    pub(crate) fn new(ahead: LinesAhead, bytes: usize) -> Paced {
        Paced { ahead: ahead.of_bytes(bytes), lines: 0 }
    }
}

impl Beside for Paced {
    #[inline(always)]
    fn begin(&mut self, steps: usize) {
        self.lines = self.ahead.lines_a_step(steps);
    }

    #[inline(always)]
    fn before_step(&mut self, _end: usize) {
        self.ahead.ask(self.lines);
    }

    #[inline(always)]
    fn finish(&mut self) {
        self.ahead.finish();
    }
}

/// A walk that has come to byte `at`, which may lie behind the bytes. `start` is readable up to
/// `last_wide` and what a header's decode reads from there.
struct Ordinary {
    start: *const u8,
    at: usize,
    last_wide: usize,
}

impl Ordinary {
    /// Takes a fragment with any header. None if it is not ordinary, or too near to the end to be
    /// decoded.
    ///
    /// # Safety
    /// The processor has what `H` needs, and the bytes are readable.
    #[inline(always)]
    unsafe fn take<H: Header>(&mut self, entry: &mut u16) -> Option<()> {
        if self.at > self.last_wide {
            return None;
        }
        // SAFETY: at <= last_wide.
        let (body, header) = unsafe { H::first_header(self.start.add(self.at)) };
        // It cannot overflow: a body is below 2^50, or 2^28 where there are only 32 bits.
        let total = header + body as usize;
        if total > MAX_ENTRY_BYTES {
            return None;
        }
        *entry = ((header << ENTRY_HEADER_SHIFT) + total) as u16;
        self.at += total;
        Some(())
    }

    /// Takes a fragment for each entry, which may have any header.
    ///
    /// # Safety
    /// As [`take`](Self::take).
    #[inline(always)]
    unsafe fn take_sparse<H: Header>(&mut self, entries: &mut [u16], beside: &mut impl Beside) -> Option<()> {
        beside.begin(entries.len());
        for entry in entries {
            beside.before_step(self.at + H::WIDE_BYTES);
            // SAFETY: the caller's promise.
            unsafe { self.take::<H>(entry)? }
        }
        beside.finish();
        Some(())
    }

    /// Takes a fragment for each entry, most with a header of one byte. Groups may begin before
    /// `last_group`, which is [`GROUP_BYTES`] before the end of the bytes.
    ///
    /// # Safety
    /// As [`take`](Self::take).
    #[inline(always)]
    unsafe fn take_dense<H: Header>(
        &mut self,
        entries: &mut [u16],
        last_group: usize,
        beside: &mut impl Beside,
    ) -> Option<()> {
        beside.begin(entries.len() / GROUP);
        let mut i = 0;
        while self.at < last_group
            && let Some(group) = entries[i..].first_chunk_mut::<GROUP>()
        {
            beside.before_step(self.at + GROUP_BYTES);
            // SAFETY: at < last_group; the rest is the caller's promise.
            match unsafe { self.take_group(group) } {
                GROUP => i += GROUP,
                taken => {
                    // SAFETY: the caller's promise.
                    unsafe { self.take::<H>(&mut group[taken])? }
                    i += taken + 1;
                }
            }
        }
        beside.finish();
        for entry in &mut entries[i..] {
            // SAFETY: at <= last_wide.
            let body = if self.at > self.last_wide { 0x80 } else { unsafe { self.body_at(self.at) } };
            if body < 0x80 {
                *entry = one_byte(body);
                self.at += body + 1;
            } else {
                // SAFETY: the caller's promise.
                unsafe { self.take::<H>(entry)? }
            }
        }
        Some(())
    }

    /// Takes fragments with headers of one byte. How many; fewer than eight in front of a longer
    /// header.
    ///
    /// # Safety
    /// [`GROUP_BYTES`] are readable from `at` on.
    #[inline(always)]
    unsafe fn take_group(&mut self, group: &mut [u16; GROUP]) -> usize {
        // Without the headers, whose bytes are constants in the addresses: so the chain from header
        // to header has one addition.
        let mut bodies = self.at;
        for (taken, entry) in group.iter_mut().enumerate() {
            // SAFETY: so many fragments of at most 128 bytes are in front of it.
            let body = unsafe { self.body_at(bodies + taken) };
            if body >= 0x80 {
                self.at = bodies + taken;
                return taken;
            }
            *entry = one_byte(body);
            bodies += body;
        }
        self.at = bodies + GROUP;
        GROUP
    }

    /// The byte at an offset.
    ///
    /// # Safety
    /// It is readable.
    #[inline(always)]
    unsafe fn body_at(&self, at: usize) -> usize {
        // SAFETY: the caller's promise.
        opaque(usize::from(unsafe { *self.start.add(at) }))
    }
}

/// The entry of a header of one byte.
#[inline(always)]
fn one_byte(body: usize) -> u16 {
    (body + (1 << ENTRY_HEADER_SHIFT) + 1) as u16
}

#[cfg(test)]
mod tests;
