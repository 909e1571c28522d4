//! What stands in front of a number in a packet, as constants.

const VARINT: u32 = 0;
const FIXED64: u32 = 1;
const LENGTH_DELIMITED: u32 = 2;

/// Bytes that are the same each time, at most a word of them. Behind six or less there is room for
/// a number of two bytes, which is stored with them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Prefix {
    pub(super) word: u64,
    pub(super) len: usize,
    /// Where the message starts that it opens.
    pub(super) open_at: usize,
}

impl Prefix {
    pub(super) const LEN_MAX: usize = 8;

    pub(super) const NONE: Self = Self { word: 0, len: 0, open_at: 0 };

    /// Begins a message, with one byte for its size.
    #[inline(always)]
    pub(super) const fn open(self, field: u32) -> Self {
        let opened = self.tag(field, LENGTH_DELIMITED).byte(0);
        Self { open_at: opened.len, ..opened }
    }

    /// A field with a value below 0x80.
    #[inline(always)]
    pub(super) const fn with(self, field: u32, value: u8) -> Self {
        assert!(value < 0x80, "one byte");
        self.varint(field).byte(value)
    }

    /// The tag of an integer.
    #[inline(always)]
    pub(super) const fn varint(self, field: u32) -> Self {
        self.tag(field, VARINT)
    }

    /// The tag of a string, bytes or a message whose size follows.
    #[inline(always)]
    pub(super) const fn sized(self, field: u32) -> Self {
        self.tag(field, LENGTH_DELIMITED)
    }

    /// The tag of eight bytes that follow.
    #[inline(always)]
    pub(super) const fn fixed64(self, field: u32) -> Self {
        self.tag(field, FIXED64)
    }

    /// A tag of any type.
    #[inline(always)]
    pub(super) const fn tag(self, field: u32, wire_type: u32) -> Self {
        let mut tag = field << 3 | wire_type;
        let mut tagged = self;
        while tag >= 0x80 {
            tagged = tagged.byte(tag as u8 | 0x80);
            tag >>= 7;
        }
        tagged.byte(tag as u8)
    }

    #[inline(always)]
    pub(super) const fn byte(self, byte: u8) -> Self {
        assert!(self.len < Self::LEN_MAX, "it is too long");
        Self { word: self.word | (byte as u64) << (8 * self.len), len: self.len + 1, ..self }
    }
}
