//! Ids of writers.

/// Largest writer id.
pub(crate) const MAX_WRITER_ID: u16 = 32767;

/// Allocates ids round-robin, so that a freed one is reused as late as possible: the service may
/// still hold chunks of its former owner.
#[derive(Debug)]
pub(crate) struct WriterIds {
    used: Box<[u64]>,
    /// The id to try first, 1..=32767.
    next: u16,
    in_use: u16,
}

impl WriterIds {
    pub(crate) fn new() -> Self {
        Self { used: vec![0; (MAX_WRITER_ID as usize + 1) / 64].into(), next: 1, in_use: 0 }
    }

    /// A free id in 1..=32767, or `None` when all are in use.
    pub(crate) fn allocate(&mut self) -> Option<u16> {
        if self.in_use == MAX_WRITER_ID {
            return None;
        }
        loop {
            let id = self.next;
            self.next = if id == MAX_WRITER_ID { 1 } else { id + 1 };
            let (word, bit) = place(id);
            if self.used[word] & bit == 0 {
                self.used[word] |= bit;
                self.in_use += 1;
                return Some(id);
            }
        }
    }

    /// Frees an id that was allocated.
    pub(crate) fn free(&mut self, id: u16) {
        let (word, bit) = place(id);
        if self.used[word] & bit != 0 {
            self.used[word] &= !bit;
            self.in_use -= 1;
        }
    }
}

fn place(id: u16) -> (usize, u64) {
    (usize::from(id) / 64, 1 << (id % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_go_round_and_end() {
        let mut ids = WriterIds::new();
        assert_eq!((ids.allocate(), ids.allocate()), (Some(1), Some(2)));
        ids.free(1);
        let rest: Vec<_> = std::iter::from_fn(|| ids.allocate()).collect();
        assert_eq!(rest.len(), 32766);
        assert_eq!((rest[0], rest[32764], rest[32765]), (3, 32767, 1), "a freed id comes back last");
        ids.free(500);
        ids.free(500);
        assert_eq!((ids.allocate(), ids.allocate()), (Some(500), None));
    }
}
