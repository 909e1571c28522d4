/// How a value is encoded: the low three bits of a tag. Groups (3, 4) and 6, 7 are not
/// representable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum WireType {
    /// A varint.
    Varint = 0,
    /// Eight bytes.
    Fixed64 = 1,
    /// A length varint and as many bytes.
    LengthDelimited = 2,
    /// Four bytes.
    Fixed32 = 5,
}

impl WireType {
    /// The wire type of a tag, `None` for groups and the two undefined ones.
    #[inline]
    pub const fn of_tag(tag: u64) -> Option<WireType> {
        match tag & 7 {
            0 => Some(WireType::Varint),
            1 => Some(WireType::Fixed64),
            2 => Some(WireType::LengthDelimited),
            5 => Some(WireType::Fixed32),
            _ => None,
        }
    }
}

/// Bit w of a class says that wire type w is allowed.
pub(crate) const ANY: u8 = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 5;

/// Field numbers whose class is looked up in a table: those whose tag has one or two bytes.
pub(crate) const TABLED: usize = 2048;

/// Which fields a packet may hold. Made once, used for every packet.
///
/// ```
/// use watershed_simd::fields::{Rules, ViolationKind, WireType, scan};
///
/// let rules = Rules::new().reserve([3, 10]).expect_wire_type(8, WireType::Varint);
/// assert!(scan(&[&[0x40, 0x07]], &rules).is_ok(), "field 8, a varint");
/// assert_eq!(scan(&[&[0x18], &[0x01]], &rules).unwrap_err().kind, ViolationKind::Reserved, "field 3");
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct Rules {
    /// By number: the wire types that are allowed. 0 means that the number is not; number 0 never
    /// is.
    pub(crate) classes: Box<[u8; TABLED]>,
    /// The same for numbers from [`TABLED`] on that are not [`ANY`], sorted by number.
    high: Vec<(u32, u8)>,
    pub(crate) max_length_bytes: u64,
}

impl Rules {
    /// The longest length-delimited field unless told otherwise: what a redundant varint of four
    /// bytes can say, 2^28 - 1.
    pub const DEFAULT_MAX_LENGTH_BYTES: u64 = (1 << 28) - 1;

    /// Nothing is reserved, every number may have any of the four wire types.
    pub fn new() -> Rules {
        let mut classes = Box::new([ANY; TABLED]);
        classes[0] = 0;
        Rules { classes, high: Vec::new(), max_length_bytes: Self::DEFAULT_MAX_LENGTH_BYTES }
    }

    /// Packets must not hold these field numbers. Wins over [`Rules::expect_wire_type`].
    pub fn reserve(mut self, numbers: impl IntoIterator<Item = u32>) -> Rules {
        for number in numbers {
            self.set_class(number, 0);
        }
        self
    }

    /// Fields of this number must have this wire type.
    pub fn expect_wire_type(mut self, number: u32, wire_type: WireType) -> Rules {
        if self.class(number) != 0 {
            self.set_class(number, 1 << wire_type as u8);
        }
        self
    }

    /// Length-delimited fields may have at most this many bytes.
    pub fn max_length_bytes(mut self, bytes: u64) -> Rules {
        self.max_length_bytes = bytes;
        self
    }

    #[inline]
    pub(crate) fn class(&self, number: u32) -> u8 {
        match self.classes.get(number as usize) {
            Some(&class) => class,
            None => self.high.binary_search_by_key(&number, |&(n, _)| n).map_or(ANY, |i| self.high[i].1),
        }
    }

    fn set_class(&mut self, number: u32, class: u8) {
        if let Some(place) = self.classes.get_mut(number as usize) {
            *place = class;
        } else {
            match self.high.binary_search_by_key(&number, |&(n, _)| n) {
                Ok(i) => self.high[i].1 = class,
                Err(i) => self.high.insert(i, (number, class)),
            }
        }
    }
}

impl Default for Rules {
    fn default() -> Rules {
        Rules::new()
    }
}

impl std::fmt::Debug for Rules {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let low = self.classes.iter().enumerate().skip(1).map(|(n, &class)| (n as u32, class));
        let special = low.chain(self.high.iter().copied()).filter(|&(_, class)| class != ANY);
        f.debug_struct("Rules")
            .field("classes", &special.collect::<Vec<_>>())
            .field("max_length_bytes", &self.max_length_bytes)
            .finish()
    }
}
