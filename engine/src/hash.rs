//! A hash for keys of four bytes.

use std::hash::{BuildHasherDefault, Hasher};

/// Multiplies and folds. The same on every run, so that instruction counts are; a producer can choose 15 bits of its keys only, too few
/// to crowd a table.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct KeyHasher(u64);

pub(crate) type KeyState = BuildHasherDefault<KeyHasher>;

impl Hasher for KeyHasher {
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u32(byte.into());
        }
    }

    #[inline]
    fn write_u32(&mut self, key: u32) {
        let wide = u128::from(self.0 ^ u64::from(key)) * 0x9e37_79b9_7f4a_7c15;
        self.0 = wide as u64 ^ (wide >> 64) as u64;
    }

    #[inline]
    fn finish(&self) -> u64 {
        self.0
    }
}
