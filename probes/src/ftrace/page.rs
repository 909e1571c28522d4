//! A page of the kernel's ring buffer, as `trace_pipe_raw` gives it.
//!
//! ```text
//!   offset 0      8           8 + size of commit                      + commit bytes
//!   | time stamp  | commit    | record | record | ...                 | lost? | zeros ...
//!                   bits 0..26  bytes of records
//!                   bit 30      the number of lost events follows the records
//!                   bit 31      events were lost before this page
//!
//!   record:  u32 = type_len (5 bits), time_delta (27 bits), then by type_len
//!     0        data, next u32 = size with itself     29   padding, next u32 = size with itself
//!     1..=28   data of 4 * type_len bytes            30   time extend: next u32 << 27 is added
//!                                                    31   time stamp: replaces the clock
//! ```
//!
//! The kernel wrote it, but it is parsed as if somebody else had: whatever the bytes are, the
//! answer is records that lie inside the page, or a [`PageError`] with the format's number.

use std::fmt;

/// Width of `time_delta`.
const DELTA_BITS: u32 = 27;
/// A time stamp has 59 bits; those above are the page's.
const STAMP_BITS: u32 = 59;
const COMMIT_SIZE_MASK: u32 = (1 << DELTA_BITS) - 1;
const COUNT_STORED: u32 = 1 << 30;
const EVENTS_LOST: u32 = 1 << 31;

/// Where a page's fields lie: `events/header_page`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PageLayout {
    commit_size_bytes: usize,
    data_offset_bytes: usize,
    page_size_bytes: usize,
}

impl PageLayout {
    /// Reads `events/header_page`. Kernels give the fields `timestamp`, `commit` and `data`.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let number = |field: &str, what: &str| -> Option<usize> {
            let line = text.lines().find(|line| {
                let declaration = line.split(';').next().unwrap_or("");
                declaration.split_whitespace().next_back() == Some(field)
            })?;
            let value = line.split(';').find_map(|part| part.trim().strip_prefix(what))?;
            value.trim().parse().ok()
        };
        let commit_size_bytes = number("commit", "size:")?;
        let data_offset_bytes = number("data", "offset:")?;
        let page_size_bytes = data_offset_bytes.checked_add(number("data", "size:")?)?;
        let layout = Self { commit_size_bytes, data_offset_bytes, page_size_bytes };
        let is_sane = matches!(commit_size_bytes, 4 | 8)
            && data_offset_bytes == 8 + commit_size_bytes
            && (64..=1 << 20).contains(&page_size_bytes);
        is_sane.then_some(layout)
    }

    /// Size of a page, and of the buffer that a read needs.
    pub(super) fn page_size_bytes(&self) -> usize {
        self.page_size_bytes
    }

    /// The same fields in pages of another size (`buffer_subbuf_size_kb`).
    pub(super) fn with_page_size(self, page_size_bytes: usize) -> Self {
        Self { page_size_bytes, ..self }
    }
}

/// What is wrong with a page, by the numbers of `FtraceParseStatus`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(i32)]
pub(super) enum PageError {
    InvalidPageHeader = 4,
    ShortEventHeader = 5,
    NullPadding = 6,
    ShortPaddingLength = 7,
    InvalidPaddingLength = 8,
    ShortTimeExtend = 9,
    ShortTimeStamp = 10,
    ShortDataLength = 11,
    ZeroDataLength = 12,
    InvalidDataLength = 13,
    ShortEventId = 14,
    EndOverflow = 15,
}

impl fmt::Display for PageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:?}")
    }
}

/// One data record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record<'p> {
    /// By the ring's clock, in nanoseconds.
    pub(super) timestamp_ns: u64,
    /// The event's id: which format the bytes have.
    pub(super) event_id: u16,
    /// The whole record, id included. What may follow the fields is padding.
    pub(super) bytes: &'p [u8],
}

/// The records of a page, in order. After an error there are none.
#[derive(Clone, Debug)]
pub(super) struct Records<'p> {
    rest: &'p [u8],
    now_ns: u64,
}

/// A page with a valid header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Page<'p> {
    /// When its first record was begun, by the ring's clock.
    pub(super) timestamp_ns: u64,
    /// Events were lost between the page that was read before and this one.
    pub(super) has_lost_events: bool,
    /// How many, where the kernel says so.
    pub(super) lost_events: Option<u64>,
    payload: &'p [u8],
}

fn u32_at(bytes: &[u8], offset: usize) -> Option<u32> {
    bytes.get(offset..offset + 4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]]))
}

fn u64_at(bytes: &[u8], offset: usize) -> Option<u64> {
    Some(u64::from(u32_at(bytes, offset)?) | u64::from(u32_at(bytes, offset + 4)?) << 32)
}

impl<'p> Page<'p> {
    /// Reads the header.
    ///
    /// # Errors
    ///
    /// [`PageError::InvalidPageHeader`] if the page is too short, has no records or says that they
    /// reach beyond it.
    pub(super) fn parse(bytes: &'p [u8], layout: PageLayout) -> Result<Self, PageError> {
        let error = PageError::InvalidPageHeader;
        let timestamp_ns = u64_at(bytes, 0).ok_or(error)?;
        let commit = u32_at(bytes, 8).ok_or(error)?;
        let size = (commit & COMMIT_SIZE_MASK) as usize;
        let end = layout.data_offset_bytes + size;
        let payload = bytes.get(layout.data_offset_bytes..end).filter(|p| !p.is_empty()).ok_or(error)?;
        let has_lost_events = commit & EVENTS_LOST != 0;
        let lost_events = (has_lost_events && commit & COUNT_STORED != 0).then(|| u64_at(bytes, end));
        Ok(Self { timestamp_ns, has_lost_events, lost_events: lost_events.flatten(), payload })
    }

    /// Its records.
    pub(super) fn records(&self) -> Records<'p> {
        Records { rest: self.payload, now_ns: self.timestamp_ns }
    }
}

impl<'p> Records<'p> {
    fn take(&mut self, size: usize, error: PageError) -> Result<&'p [u8], PageError> {
        let (taken, rest) = self.rest.split_at_checked(size).ok_or(error)?;
        self.rest = rest;
        Ok(taken)
    }

    fn take_u32(&mut self, error: PageError) -> Result<u32, PageError> {
        let bytes = self.take(4, error)?;
        Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    }

    #[inline]
    fn next_record(&mut self) -> Result<Option<Record<'p>>, PageError> {
        while !self.rest.is_empty() {
            let header = self.take_u32(PageError::ShortEventHeader)?;
            let (type_len, delta) = (header & 0x1F, header >> 5);
            self.now_ns = self.now_ns.wrapping_add(u64::from(delta));
            match type_len {
                0 => return self.long_record().map(Some),
                1..=28 => {
                    let bytes = self.take(4 * type_len as usize, PageError::EndOverflow)?;
                    return self.record(bytes).map(Some);
                }
                29 => self.skip_padding(delta)?,
                30 => {
                    let high = self.take_u32(PageError::ShortTimeExtend)?;
                    self.now_ns = self.now_ns.wrapping_add(u64::from(high) << DELTA_BITS);
                }
                _ => {
                    let high = self.take_u32(PageError::ShortTimeStamp)?;
                    self.set_clock(u64::from(delta) | u64::from(high) << DELTA_BITS);
                }
            }
        }
        Ok(None)
    }

    fn record(&self, bytes: &'p [u8]) -> Result<Record<'p>, PageError> {
        let [low, high, ..] = *bytes else { return Err(PageError::ShortEventId) };
        Ok(Record { timestamp_ns: self.now_ns, event_id: u16::from_le_bytes([low, high]), bytes })
    }

    fn long_record(&mut self) -> Result<Record<'p>, PageError> {
        match self.take_u32(PageError::ShortDataLength)? {
            0 => Err(PageError::ZeroDataLength),
            1..=3 => Err(PageError::InvalidDataLength),
            size => {
                let bytes = self.take(size as usize - 4, PageError::EndOverflow)?;
                self.record(bytes)
            }
        }
    }

    fn skip_padding(&mut self, delta: u32) -> Result<(), PageError> {
        // Padding without a time is the rest of a page, which lies behind the records.
        if delta == 0 {
            return Err(PageError::NullPadding);
        }
        match self.take_u32(PageError::ShortPaddingLength)? {
            0..=3 => Err(PageError::InvalidPaddingLength),
            size => self.take(size as usize - 4, PageError::EndOverflow).map(drop),
        }
    }

    /// The stamp has the low 59 bits, so those above are the clock's so far; a stamp far below it
    /// has passed into the next of these periods.
    fn set_clock(&mut self, stamp: u64) {
        const PERIOD: u64 = 1 << STAMP_BITS;
        let stamp = (self.now_ns & !(PERIOD - 1)) | (stamp & (PERIOD - 1));
        let wrapped = stamp < self.now_ns && self.now_ns - stamp > PERIOD / 2;
        self.now_ns = if wrapped { stamp.wrapping_add(PERIOD) } else { stamp };
    }
}

impl<'p> Iterator for Records<'p> {
    type Item = Result<Record<'p>, PageError>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let record = self.next_record().transpose();
        if let Some(Err(_)) = record {
            self.rest = &[];
        }
        record
    }
}

#[cfg(test)]
#[path = "page_tests.rs"]
mod tests;
