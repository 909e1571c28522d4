//! Geometry of a page: the five layouts, the chunk states, and the bitmap word that holds both.

/// Bytes in front of the first chunk of a page: the bitmap word and a reserved word.
pub const PAGE_HEADER_BYTES: usize = 8;
/// Bytes in front of the payload of a chunk.
pub const CHUNK_HEADER_BYTES: usize = 8;
/// The largest number of chunks in a page: 28 bits of the bitmap hold two bits for each.
pub const MAX_CHUNKS_PER_PAGE: usize = 14;

const STATE_BITS: u32 = 2;
const STATE_MASK: u32 = 0b11;
const ALL_STATES_MASK: u32 = (1 << (STATE_BITS * MAX_CHUNKS_PER_PAGE as u32)) - 1;
const LAYOUT_SHIFT: u32 = 28;
const LAYOUT_MASK: u32 = 0b111 << LAYOUT_SHIFT;

/// How a page is cut into chunks. The values are the ABI's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum PageLayout {
    /// Not partitioned: the page is free as a whole. The reserved values 6 and 7 read as this.
    #[default]
    NotPartitioned = 0,
    /// One chunk.
    Div1 = 1,
    /// Two chunks.
    Div2 = 2,
    /// Four chunks.
    Div4 = 3,
    /// Seven chunks.
    Div7 = 4,
    /// Fourteen chunks.
    Div14 = 5,
}

impl PageLayout {
    /// The layouts that have chunks, from the largest chunk to the smallest.
    pub const PARTITIONED: [Self; 5] = [Self::Div1, Self::Div2, Self::Div4, Self::Div7, Self::Div14];

    /// How many chunks a page of this layout has, 0..=14.
    #[must_use]
    pub const fn num_chunks(self) -> usize {
        match self {
            Self::NotPartitioned => 0,
            Self::Div1 => 1,
            Self::Div2 => 2,
            Self::Div4 => 4,
            Self::Div7 => 7,
            Self::Div14 => 14,
        }
    }

    /// Size of one chunk with its header, in bytes: a multiple of 4, at most 65528; 0 when there
    /// are no chunks.
    #[must_use]
    pub const fn chunk_size_bytes(self, page_size_bytes: usize) -> usize {
        match self.num_chunks() {
            0 => 0,
            n => (page_size_bytes - PAGE_HEADER_BYTES) / n / 4 * 4,
        }
    }

    /// Where chunk `index` starts, in bytes from the start of its page.
    pub(crate) const fn chunk_offset_bytes(self, page_size_bytes: usize, index: usize) -> usize {
        PAGE_HEADER_BYTES + index * self.chunk_size_bytes(page_size_bytes)
    }
}

/// The state of one chunk. The values are the ABI's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ChunkState {
    /// Nobody uses it.
    Free = 0,
    /// A writer of the producer owns it.
    BeingWritten = 1,
    /// The service owns it.
    BeingRead = 2,
    /// Written, waiting for the service.
    Complete = 3,
}

/// One value of a page's bitmap word: layout and chunk states at one moment.
///
/// All of it comes from the same load, so it is consistent. For a chunk that the caller does not
/// own it is a hint, since the owner may change the state at any time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PageSnapshot(u32);

impl PageSnapshot {
    pub(crate) const FREE: Self = Self(0);

    pub(crate) const fn from_word(word: u32) -> Self {
        Self(word)
    }

    pub(crate) const fn word(self) -> u32 {
        self.0
    }

    /// A page that has just been partitioned: all chunks free.
    pub(crate) const fn partitioned(layout: PageLayout) -> Self {
        Self((layout as u32) << LAYOUT_SHIFT)
    }

    /// The page's layout. The reserved values 6 and 7 have no chunks and read as
    /// [`PageLayout::NotPartitioned`].
    #[must_use]
    pub const fn layout(self) -> PageLayout {
        match (self.0 & LAYOUT_MASK) >> LAYOUT_SHIFT {
            1 => PageLayout::Div1,
            2 => PageLayout::Div2,
            3 => PageLayout::Div4,
            4 => PageLayout::Div7,
            5 => PageLayout::Div14,
            _ => PageLayout::NotPartitioned,
        }
    }

    /// How many chunks the page has, 0..=14.
    #[must_use]
    pub const fn num_chunks(self) -> usize {
        self.layout().num_chunks()
    }

    /// The state of chunk `index`, or `None` if the layout has no such chunk.
    #[must_use]
    pub const fn state(self, index: usize) -> Option<ChunkState> {
        if index >= self.num_chunks() {
            return None;
        }
        Some(match (self.0 >> (STATE_BITS * index as u32)) & STATE_MASK {
            0 => ChunkState::Free,
            1 => ChunkState::BeingWritten,
            2 => ChunkState::BeingRead,
            _ => ChunkState::Complete,
        })
    }

    /// The states of all chunks, in index order.
    pub fn states(self) -> impl ExactSizeIterator<Item = (usize, ChunkState)> {
        (0..self.num_chunks()).map(move |i| (i, self.state(i).unwrap_or(ChunkState::Free)))
    }

    /// The first free chunk, if the page has one.
    pub(crate) const fn first_free(self) -> Option<usize> {
        const LOW_BITS: u32 = ALL_STATES_MASK / STATE_MASK;
        let chunks = LOW_BITS & ((1 << (STATE_BITS * self.num_chunks() as u32)) - 1);
        let free = chunks & !(self.0 | self.0 >> 1);
        if free == 0 { None } else { Some((free.trailing_zeros() / STATE_BITS) as usize) }
    }

    /// True when the page is not partitioned: the word is zero.
    #[must_use]
    pub const fn is_free(self) -> bool {
        self.0 == 0
    }

    /// True when the page has chunks and every one of them is complete.
    #[must_use]
    pub fn is_complete(self) -> bool {
        self.num_chunks() > 0 && self.states().all(|(_, state)| state == ChunkState::Complete)
    }

    /// The word with the state of chunk `index` replaced. `index` must be below
    /// [`MAX_CHUNKS_PER_PAGE`].
    pub(crate) const fn with_state(self, index: usize, state: ChunkState) -> Self {
        let shift = STATE_BITS * index as u32;
        Self(self.0 & !(STATE_MASK << shift) | ((state as u32) << shift))
    }

    /// The bits that hold the state of chunk `index`, which must be below [`MAX_CHUNKS_PER_PAGE`].
    pub(crate) const fn state_bits(index: usize) -> u32 {
        STATE_MASK << (STATE_BITS * index as u32)
    }

    /// The word with those chunks freed whose states these bits hold; zero when no other chunk is
    /// in use. `None` unless all of them are being read.
    pub(crate) const fn with_read_chunks_freed(self, state_bits: u32) -> Option<Self> {
        const ALL_BEING_READ: u32 = ALL_STATES_MASK / STATE_MASK * ChunkState::BeingRead as u32;
        if (self.0 ^ ALL_BEING_READ) & state_bits != 0 {
            return None;
        }
        let freed = Self(self.0 & !state_bits);
        Some(if freed.0 & ALL_STATES_MASK == 0 { Self::FREE } else { freed })
    }

    /// The word with chunk `index` freed; zero when no other chunk is in use.
    pub(crate) const fn with_chunk_freed(self, index: usize) -> Self {
        let freed = self.with_state(index, ChunkState::Free);
        if freed.0 & ALL_STATES_MASK == 0 { Self::FREE } else { freed }
    }
}

const _: () = {
    assert!(ALL_STATES_MASK & LAYOUT_MASK == 0 && ALL_STATES_MASK | LAYOUT_MASK == 0x7FFF_FFFF);
    let mut i = 0;
    while i < PageLayout::PARTITIONED.len() {
        let layout = PageLayout::PARTITIONED[i];
        assert!(layout.num_chunks() <= MAX_CHUNKS_PER_PAGE);
        let mut page = 4096;
        while page <= 65536 {
            let size = layout.chunk_size_bytes(page);
            assert!(size.is_multiple_of(4) && size > CHUNK_HEADER_BYTES && size <= u16::MAX as usize);
            assert!(layout.chunk_offset_bytes(page, layout.num_chunks()) <= page);
            page *= 2;
        }
        i += 1;
    }
    assert!(
        PageLayout::Div1.chunk_size_bytes(4096) == 4088 && PageLayout::Div14.chunk_size_bytes(32768) == 2340
    );
};
