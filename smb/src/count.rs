//! Counted references, of which many can be given up at once.
//!
//! As `Arc`, with the same orderings, and one thing more: a queue whose items hold a reference each
//! gives up those of many items with one read-modify-write ([`Spent`]). With `Arc` that is one for
//! each item, on a cache line that other cores change.
//!
//! | atomic | publishes | ordering, and its partner | model |
//! |---|---|---|---|
//! | `Block::count` | that a holder no longer uses the value | RMW Release in `give_up`, Acquire load in `free` by the last; the RMW of `clone` is Relaxed, since whoever clones has a reference already | `the_last_holder_frees_what_all_have_done_with` |

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::sync::{AtomicUsize, Ordering};

/// Half of what the count can hold. Between the check of the count and the end of the process the
/// other half cannot be reached.
const MOST: usize = isize::MAX as usize;

/// One of any number of references to a value, which is dropped with the last of them.
pub(crate) struct Counted<T> {
    block: NonNull<Block<T>>,
    /// The last reference drops a value.
    value: PhantomData<T>,
}

#[repr(C)]
struct Block<T> {
    count: Apart,
    value: T,
}

/// Not in the cache lines of the value, which all read, nor in the pair of lines that a processor
/// fetches together.
#[repr(align(128))]
struct Apart(AtomicUsize);

// SAFETY: a reference gives shared access to the value, from any thread that has one, and the last
// drops it: `Sync` and `Send` of the value.
unsafe impl<T: Send + Sync> Send for Counted<T> {}
// SAFETY: as above; through a shared reference others can be made.
unsafe impl<T: Send + Sync> Sync for Counted<T> {}

impl<T> Counted<T> {
    pub(crate) fn new(value: T) -> Counted<T> {
        let block = Box::new(Block { count: Apart(AtomicUsize::new(1)), value });
        Counted { block: NonNull::from(Box::leak(block)), value: PhantomData }
    }
}

/// A reference that is counted, or that wraps one and drops nothing else.
pub(crate) trait Reference: Sized {
    /// Whether both refer to the same value.
    fn is_same(&self, other: &Self) -> bool;

    /// Another reference to the same value, which is not counted.
    ///
    /// # Safety
    /// The caller has forgotten a reference that was counted.
    unsafe fn uncounted(&self) -> Self;

    /// Gives up `num` references to one value, of which this is one.
    ///
    /// # Safety
    /// `num` is at least 1. The caller has `num - 1` more references beside this one, and uses none
    /// of them any more.
    unsafe fn give_up(self, num: usize);
}

impl<T> Reference for Counted<T> {
    #[inline]
    fn is_same(&self, other: &Self) -> bool {
        self.block == other.block
    }

    #[inline]
    unsafe fn uncounted(&self) -> Self {
        Counted { block: self.block, value: PhantomData }
    }

    #[inline]
    unsafe fn give_up(self, num: usize) {
        let counted = ManuallyDrop::new(self);
        // SAFETY: these references are not given up yet, so the block exists. Afterwards only the
        // last holder touches it.
        let before = unsafe { counted.block.as_ref() }.count.0.fetch_sub(num, Ordering::Release);
        if before == num {
            // SAFETY: no reference is left, and nobody can make one.
            unsafe { free(counted.block) };
        }
    }
}

/// # Safety
/// The last reference was given up, by the caller.
#[cold]
#[inline(never)]
unsafe fn free<T>(block: NonNull<Block<T>>) {
    // Acquire: pairs with the Release of all who gave up references; their read-modify-writes form
    // one release sequence, whose last value is loaded here. So all their uses of the value happen
    // before it is dropped. A load instead of a fence, since ThreadSanitizer does not support
    // fences.
    // SAFETY: nobody else frees the block.
    unsafe { block.as_ref() }.count.0.load(Ordering::Acquire);
    // SAFETY: the block came from a box in `Counted::new`, and there is no reference to it.
    drop(unsafe { Box::from_raw(block.as_ptr()) });
}

impl<T> Clone for Counted<T> {
    #[inline]
    fn clone(&self) -> Counted<T> {
        // SAFETY: the block lives as long as this reference.
        let before = unsafe { self.block.as_ref() }.count.0.fetch_add(1, Ordering::Relaxed);
        if before > MOST {
            // References may be forgotten any number of times. If the count wrapped, the value
            // would be dropped while others use it.
            std::process::abort();
        }
        Counted { block: self.block, value: PhantomData }
    }
}

impl<T> Drop for Counted<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the reference is this one, and it is not used again, nor dropped twice: `give_up`
        // does not drop it.
        unsafe { std::ptr::read(self).give_up(1) };
    }
}

impl<T> Deref for Counted<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the block lives as long as this reference, and its value is not changed.
        &unsafe { self.block.as_ref() }.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Counted<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// References that are to be given up. Consecutive ones to the same value are given up together:
/// when one to another value comes, or when this is dropped.
#[derive(Debug)]
pub(crate) struct Spent<R: Reference> {
    one: Option<R>,
    /// Further references to the same value, `one` not included.
    more: usize,
}

impl<R: Reference> Spent<R> {
    pub(crate) const fn none() -> Spent<R> {
        Spent { one: None, more: 0 }
    }

    /// The value of the latest references.
    #[inline]
    pub(crate) fn newest(&self) -> Option<&R> {
        self.one.as_ref()
    }

    #[inline]
    pub(crate) fn add(&mut self, reference: R) {
        if self.one.as_ref().is_some_and(|one| one.is_same(&reference)) {
            std::mem::forget(reference);
            // There are never more references than the count holds.
            self.more += 1;
        } else {
            self.flush();
            self.one = Some(reference);
        }
    }

    /// One of the latest references, which is then not given up.
    pub(crate) fn take_back(&mut self) -> Option<R> {
        match self.more.checked_sub(1) {
            None => self.one.take(),
            Some(less) => {
                self.more = less;
                // SAFETY: a reference to the same value was forgotten when it was added, and is no
                // longer counted here.
                self.one.as_ref().map(|one| unsafe { one.uncounted() })
            }
        }
    }

    #[inline]
    fn flush(&mut self) {
        let num = 1 + std::mem::take(&mut self.more);
        if let Some(one) = self.one.take() {
            // SAFETY: all that were added since the last flush are references to one value, and
            // each but `one` was forgotten.
            unsafe { one.give_up(num) };
        }
    }
}

impl<R: Reference> Drop for Spent<R> {
    #[inline]
    fn drop(&mut self) {
        self.flush();
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::sync::Arc;

    /// References to a value; the `Arc` tells whether it still exists.
    fn counted() -> (Counted<Arc<()>>, Arc<()>) {
        let witness = Arc::new(());
        (Counted::new(Arc::clone(&witness)), witness)
    }

    fn count<T>(counted: &Counted<T>) -> usize {
        // SAFETY: the block lives as long as the reference.
        unsafe { counted.block.as_ref() }.count.0.load(Ordering::Relaxed)
    }

    #[test]
    fn the_value_goes_with_the_last_reference_in_whatever_order() {
        for last in 0..3 {
            let (first, witness) = counted();
            let mut all = vec![first.clone(), first.clone(), first];
            assert_eq!(count(&all[0]), 3);
            let kept = all.remove(last);
            drop(all);
            assert_eq!((count(&kept), Arc::strong_count(&witness)), (1, 2));
            drop(kept);
            assert_eq!(Arc::strong_count(&witness), 1);
        }
    }

    #[test]
    fn spent_references_are_given_up_when_another_value_comes_and_at_the_end() {
        let ((a, a_is_there), (b, b_is_there)) = (counted(), counted());
        let mut spent = Spent::none();
        for _ in 0..5 {
            spent.add(a.clone());
        }
        assert_eq!(count(&a), 6, "not yet");
        spent.add(b.clone());
        assert_eq!((count(&a), count(&b)), (1, 2));
        spent.add(b);
        spent.add(a.clone());
        assert_eq!(Arc::strong_count(&b_is_there), 1, "those were all");
        spent.add(a);
        assert_eq!(Arc::strong_count(&a_is_there), 2);
        drop(spent);
        assert_eq!(Arc::strong_count(&a_is_there), 1);
        drop(Spent::<Counted<u32>>::none());
    }

    #[test]
    fn a_reference_that_is_taken_back_is_not_given_up() {
        let (a, witness) = counted();
        let mut spent = Spent::none();
        spent.add(a.clone());
        spent.add(a.clone());
        let back: Vec<_> = std::iter::from_fn(|| spent.take_back()).collect();
        assert_eq!((back.len(), count(&a)), (2, 3));
        drop(spent);
        assert_eq!(count(&a), 3, "none was left");
        drop((back, a));
        assert_eq!(Arc::strong_count(&witness), 1);
    }

    #[test]
    fn many_threads_share_one_value() {
        let (first, witness) = counted();
        std::thread::scope(|scope| {
            for rank in 0..4 {
                let mine = first.clone();
                scope.spawn(move || {
                    let mut spent = Spent::none();
                    for n in 0..2000 {
                        if n % (5 + rank) == 0 {
                            spent = Spent::none();
                        }
                        spent.add(mine.clone());
                    }
                });
            }
        });
        assert_eq!((count(&first), Arc::strong_count(&witness)), (1, 2));
        drop(first);
        assert_eq!(Arc::strong_count(&witness), 1);
    }

    /// As with `Arc`, the process ends before the count wraps. The test starts itself as a second
    /// process to see that.
    #[cfg(unix)]
    #[test]
    fn too_many_references_end_the_process() {
        use std::os::unix::process::ExitStatusExt;
        const AT: &str = "WATERSHED_SMB_COUNT_AT";
        if let Ok(at) = std::env::var(AT) {
            let (first, _witness) = counted();
            // SAFETY: the block lives as long as the reference.
            unsafe { first.block.as_ref() }.count.0.store(at.parse().unwrap(), Ordering::Relaxed);
            std::mem::forget((first.clone(), first));
            return;
        }
        let program = std::env::current_exe().unwrap();
        let run = |at: usize| {
            let mut this = match std::env::var("WATERSHED_TEST_EMULATOR") {
                Ok(emulator) => {
                    let mut command = std::process::Command::new(emulator);
                    command.arg(&program);
                    command
                }
                Err(_) => std::process::Command::new(&program),
            };
            this.args(["--exact", "count::tests::too_many_references_end_the_process"]);
            this.env(AT, at.to_string()).output().unwrap().status
        };
        assert!(run(MOST).success());
        assert_eq!(run(MOST + 1).signal(), Some(6), "SIGABRT");
    }
}
