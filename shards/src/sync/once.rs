//! A value that is made when it is first needed, and then stays.
//!
//! `OnceBox`: publishes the value. AcqRel compare-exchange in `make`, Acquire load in `get`;
//! Relaxed in the drop, which has exclusive access. Model: `homes_never_split` makes its tables by
//! it.

use crate::sync::{AtomicPtr, Ordering};
use std::ptr;

/// Made once, freed with its owner. All bytes zero: not made yet.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct OnceBox<T>(AtomicPtr<T>);

impl<T> Default for OnceBox<T> {
    fn default() -> OnceBox<T> {
        OnceBox(AtomicPtr::default())
    }
}

impl<T> OnceBox<T> {
    /// `len` of them, none made. The memory of a large table is not touched.
    #[cfg(not(loom))]
    pub(crate) fn table(len: usize) -> Box<[OnceBox<T>]> {
        // SAFETY: a `OnceBox` is an `AtomicPtr` and nothing else; zero bytes are a null pointer.
        unsafe { Box::new_zeroed_slice(len).assume_init() }
    }

    #[inline]
    pub(crate) fn get(&self) -> Option<&T> {
        // SAFETY: a published value stays as it is until the owner drops this, which ends all
        // borrows.
        unsafe { self.0.load(Ordering::Acquire).as_ref() }
    }

    /// The value, made by `make` if there is none.
    #[inline]
    pub(crate) fn get_or(&self, make: impl FnOnce() -> T) -> &T {
        self.get().unwrap_or_else(|| self.make(make()))
    }

    /// Whoever loses the race drops its own value.
    #[cold]
    fn make(&self, value: T) -> &T {
        let new = Box::into_raw(Box::new(value));
        match self.0.compare_exchange(ptr::null_mut(), new, Ordering::AcqRel, Ordering::Acquire) {
            // SAFETY: just published, as in `get`.
            Ok(_) => unsafe { &*new },
            Err(winner) => {
                // SAFETY: `new` came from `into_raw` and was not published; the winner's was, as in
                // `get`.
                unsafe {
                    drop(Box::from_raw(new));
                    &*winner
                }
            }
        }
    }
}

impl<T> Drop for OnceBox<T> {
    fn drop(&mut self) {
        let made = self.0.load(Ordering::Relaxed);
        if !made.is_null() {
            // SAFETY: it came from `into_raw` in `make`, and is freed here only.
            drop(unsafe { Box::from_raw(made) });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn many_threads_make_it_once_and_it_is_freed_once() {
        let value = Arc::new(7);
        let table = OnceBox::table(2);
        std::thread::scope(|scope| {
            let threads = [(); 4].map(|()| scope.spawn(|| table[1].get_or(|| Arc::clone(&value))));
            let [first, others @ ..] = threads.map(|thread| ptr::from_ref(thread.join().unwrap()));
            assert_eq!(others, [first; 3]);
        });
        assert!(table[0].get().is_none() && table[1].get().is_some());
        assert_eq!(Arc::strong_count(&value), 2);
        drop(table);
        assert_eq!(Arc::strong_count(&value), 1);
    }
}
