//! The random numbers of the workloads: the same in any language, on any machine.

/// The "minimal standard" generator: `x = x * 48271 mod (2^31 - 1)`.
#[derive(Clone, Debug)]
pub struct Minstd(u64);

impl Minstd {
    /// A generator that starts from `seed`, `1 <= seed <= 2^31 - 2`.
    pub fn new(seed: u32) -> Self {
        debug_assert!((1..0x7fff_ffff).contains(&seed));
        Self(seed.into())
    }

    /// The next draw, `1 <= draw <= 2^31 - 2`.
    pub fn draw(&mut self) -> usize {
        self.0 = self.0 * 48271 % 0x7fff_ffff;
        self.0 as usize
    }

    /// A draw from `0..bound`, as the workloads take it: by remainder.
    pub fn below(&mut self, bound: usize) -> usize {
        self.draw() % bound
    }

    /// Puts `items` into a random order.
    pub fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ten_thousandth_draw_is_the_published_one() {
        // The C++ standard states it for std::minstd_rand with seed 1.
        let mut random = Minstd::new(1);
        let last = (0..10_000).map(|_| random.draw()).last();
        assert_eq!(last, Some(399_268_537));
    }

    #[test]
    fn a_shuffle_keeps_every_item() {
        let mut items: Vec<u32> = (0..8).collect();
        Minstd::new(42).shuffle(&mut items);
        assert_ne!(items, (0..8).collect::<Vec<_>>());
        items.sort_unstable();
        assert_eq!(items, (0..8).collect::<Vec<_>>());
    }
}
