//! Where the decisions of a run come from.

use std::collections::VecDeque;

/// The decisions of a run: those of a seed, or those that a fuzzer's bytes make. The same seed or
/// bytes make the same ones.
#[derive(Clone, Debug)]
pub struct Choices(Source);

#[derive(Clone, Debug)]
enum Source {
    Seed(fastrand::Rng),
    Bytes(VecDeque<u8>),
}

impl Choices {
    /// Without end.
    pub fn of_seed(seed: u64) -> Choices {
        Choices(Source::Seed(fastrand::Rng::with_seed(seed)))
    }

    /// When the bytes are used up every choice is the first one.
    pub fn of_bytes(bytes: &[u8]) -> Choices {
        Choices(Source::Bytes(bytes.iter().copied().collect()))
    }

    /// Whether nothing but first choices follow.
    pub(crate) fn are_spent(&self) -> bool {
        matches!(&self.0, Source::Bytes(bytes) if bytes.is_empty())
    }

    /// A number from 0 to `end`, exclusive.
    pub(crate) fn below(&mut self, end: u64) -> u64 {
        match &mut self.0 {
            Source::Seed(random) => random.u64(..end.max(1)),
            Source::Bytes(bytes) => {
                let (mut value, mut left) = (0_u64, end.saturating_sub(1));
                while left > 0 {
                    value = value << 8 | u64::from(bytes.pop_front().unwrap_or(0));
                    left >>= 8;
                }
                value % end.max(1)
            }
        }
    }

    pub(crate) fn between(&mut self, first: u64, last: u64) -> u64 {
        first + self.below(last - first + 1)
    }

    pub(crate) fn small(&mut self, end: u32) -> u32 {
        self.below(u64::from(end)) as u32
    }

    /// True once in so many times; never when the bytes are used up.
    pub(crate) fn one_in(&mut self, times: u64) -> bool {
        self.below(times) + 1 == times
    }

    /// One of these, which must not be none.
    pub(crate) fn of<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize].clone()
    }

    /// As `of`; `None` if there are none.
    pub(crate) fn any<T: Clone>(&mut self, all: &[T]) -> Option<T> {
        (!all.is_empty()).then(|| self.of(all))
    }

    pub(crate) fn bytes(&mut self, len: u64) -> Vec<u8> {
        (0..len).map(|_| self.below(256) as u8).collect()
    }
}
