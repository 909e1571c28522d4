//! The bytes that are appended to a packet.

/// A few encoded fields, kept so that appending them to a block is one copy of fixed size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stamp {
    /// Only the first `size_bytes` mean anything, the others are 0.
    bytes: [u8; Stamp::BYTES_MAX],
    /// `0 <= size_bytes <= BYTES_MAX`
    size_bytes: u8,
}

impl Stamp {
    /// All fields at their longest: uid 11 bytes, sequence id 6, pid 12, machine id 7, loss 7; one step of rounding.
    pub(crate) const BYTES_MAX: usize = 48;
    /// What nearly every stamp fits: uid, sequence id and pid of usual sizes.
    const SHORT_BYTES: usize = 16;

    /// Nothing to append.
    pub(crate) const EMPTY: Stamp = Stamp { bytes: [0; Stamp::BYTES_MAX], size_bytes: 0 };

    /// # Panics
    ///
    /// If the fields are longer than [`Stamp::BYTES_MAX`], which the fields of a stamp cannot be.
    pub(crate) fn of(fields: &[u8]) -> Stamp {
        let mut stamp = Stamp::EMPTY;
        stamp.bytes[..fields.len()].copy_from_slice(fields);
        stamp.size_bytes = fields.len() as u8;
        stamp
    }

    #[inline]
    pub(crate) fn size_bytes(&self) -> usize {
        usize::from(self.size_bytes)
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.size_bytes()]
    }

    /// Appends the stamp. More than it is written and cut off again where that saves a call of `memcpy`.
    #[inline]
    pub(crate) fn append_to(&self, block: &mut Vec<u8>) {
        let end = block.len() + self.size_bytes();
        if self.size_bytes() <= Self::SHORT_BYTES {
            block.extend_from_slice(
                self.bytes.first_chunk::<{ Self::SHORT_BYTES }>().expect("shorter than the array"),
            );
        } else {
            block.extend_from_slice(&self.bytes);
        }
        block.truncate(end);
    }
}

const _: () = assert!(11 + 6 + 12 + 7 + 7 <= Stamp::BYTES_MAX && Stamp::BYTES_MAX <= u8::MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exactly_the_fields_are_appended() {
        for size_bytes in 0..=Stamp::BYTES_MAX {
            let fields: Vec<u8> = (1..=size_bytes as u8).collect();
            let mut block = vec![0xee; 3];
            Stamp::of(&fields).append_to(&mut block);
            assert_eq!(block[..3], [0xee; 3]);
            assert_eq!(block[3..], fields);
        }
    }
}
