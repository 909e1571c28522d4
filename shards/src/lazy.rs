//! Something that is made when it is first needed, by whoever needs it, and then stays.

use crate::sync::{AtomicPtr, Ordering};
use std::ptr;

/// Made once, freed with its owner. All zeros means: not made yet.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Lazy<T>(AtomicPtr<T>);

impl<T> Lazy<T> {
    pub(crate) fn new() -> Lazy<T> {
        Lazy(AtomicPtr::new(ptr::null_mut()))
    }

    /// So many of them, none made. A large table of them is not touched.
    #[cfg(not(loom))]
    pub(crate) fn table(len: usize) -> Box<[Lazy<T>]> {
        // SAFETY: a `Lazy` is an `AtomicPtr` and nothing else, which is a null pointer when all of its bytes are zero.
        unsafe { Box::new_zeroed_slice(len).assume_init() }
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: what is published stays as it is until the owner drops this, which ends all borrows of it. Acquire pairs with the Release
        // of `make`.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// What there is, or what `make` makes. Whether it was made now.
    #[inline]
    pub(crate) fn get_or(&self, make: impl FnOnce() -> T) -> (&T, bool) {
        match self.get() {
            Some(made) => (made, false),
            None => self.make(make()),
        }
    }

    /// Who loses the race throws its own away.
    #[cold]
    fn make(&self, value: T) -> (&T, bool) {
        let new = Box::into_raw(Box::new(value));
        // Release publishes what was made, Acquire sees that of the one who was faster.
        match self.0.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just published, as in `get`.
            Ok(_) => (unsafe { &*new }, true),
            Err(winner) => {
                // SAFETY: `new` came from `into_raw` above and was not published; the winner's was, as in `get`.
                unsafe {
                    drop(Box::from_raw(new));
                    (&*winner, false)
                }
            }
        }
    }
}

impl<T> Drop for Lazy<T> {
    fn drop(&mut self) {
        // Relaxed: whoever drops this has it alone, and has synchronised with all others to get there.
        let made = self.0.load(Ordering::Relaxed);
        if !made.is_null() {
            // SAFETY: made by `make` with `into_raw`, freed here only.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn made_once_by_many_threads_and_freed_once() {
        let value = Arc::new(7);
        let table = Lazy::table(2);
        std::thread::scope(|scope| {
            let threads: Vec<_> =
                (0..4).map(|_| scope.spawn(|| table[1].get_or(|| Arc::clone(&value)).1)).collect();
            let made = threads.into_iter().map(|thread| thread.join().unwrap());
            assert_eq!(made.filter(|&is_made| is_made).count(), 1);
        });
        assert!(table[0].get().is_none() && table[1].get().is_some());
        assert_eq!(Arc::strong_count(&value), 2);
        drop(table);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
