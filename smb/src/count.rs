//! Counted references, of which many can be given up at once.
//!
//! What `Arc` does, with the same orderings, and one thing more: a queue whose items bring a reference each gives up those of a whole turn with one
//! read-modify-write ([`Spent`]). With `Arc` that is one for each item, on a cache line that others are changing.
//!
//! | atomic | publishes | ordering, and its partner | model |
//! |---|---|---|---|
//! | `Block::count` | that a holder has done with the value | RMW Release in `give_up`, Acquire load in `free` by the last, of what these wrote; the RMW of `clone` is Relaxed: who clones has a reference, so the value is there already | `the_last_holder_frees_what_all_have_done_with` |

use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::Deref;
use std::ptr::NonNull;

use crate::sync::{AtomicUsize, Ordering};

/// Half of what the count can hold: between a look at the count and the end of the process no other half comes together.
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

/// Not in the lines of the value, which is looked at by all, nor in the pair of lines that a processor fetches together.
#[repr(align(128))]
struct Apart(AtomicUsize);

// SAFETY: a reference gives shared access to the value, from any thread that has one, and the last drops it: `Sync` and `Send` of the value.
unsafe impl<T: Send + Sync> Send for Counted<T> {}
// SAFETY: as above; through a shared reference others can be made.
unsafe impl<T: Send + Sync> Sync for Counted<T> {}

impl<T> Counted<T> {
    pub(crate) fn new(value: T) -> Counted<T> {
        let block = Box::new(Block { count: Apart(AtomicUsize::new(1)), value });
        Counted { block: NonNull::from(Box::leak(block)), value: PhantomData }
    }
}

/// A reference that is counted, or that has one and nothing else to be dropped.
pub(crate) trait Reference: Sized {
    /// Whether it is one to the same value.
    fn is_same(&self, other: &Self) -> bool;

    /// Another to the same value, that is not counted.
    ///
    /// # Safety
    /// The caller has forgotten one that was.
    unsafe fn uncounted(&self) -> Self;

    /// Gives up `num` references to one value, of which this is one.
    ///
    /// # Safety
    /// `num` is at least 1, and the caller has as many more references than this one as it is more than 1, and does not use them any more.
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
        // SAFETY: references are left as long as these are not given up, so the block is there. It is not touched after that but by the last.
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
    // Pairs with the Release of all who gave up references, whose read-modify-writes are a chain that ends in what is loaded here: what they did
    // with the value comes before its end. A load where a fence would do, for ThreadSanitizer knows no fences.
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
            // References that are forgotten again and again. Were the count to wrap, the value would be dropped under the others.
            std::process::abort();
        }
        Counted { block: self.block, value: PhantomData }
    }
}

impl<T> Drop for Counted<T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: the reference is this one, and it is not used again, nor dropped twice: `give_up` does not drop it.
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

/// References that are done with. Those to one value that come one after the other are given up together: when one to another value
/// comes, or when this is dropped.
#[derive(Debug)]
pub(crate) struct Spent<R: Reference> {
    one: Option<R>,
    /// References to the same value, without those that `one` is.
    more: usize,
}

impl<R: Reference> Spent<R> {
    pub(crate) const fn none() -> Spent<R> {
        Spent { one: None, more: 0 }
    }

    /// The value of the references that came last.
    #[inline]
    pub(crate) fn newest(&self) -> Option<&R> {
        self.one.as_ref()
    }

    #[inline]
    pub(crate) fn add(&mut self, reference: R) {
        if self.one.as_ref().is_some_and(|one| one.is_same(&reference)) {
            std::mem::forget(reference);
            // References are counted, and there are never more than the count holds.
            self.more += 1;
        } else {
            self.flush();
            self.one = Some(reference);
        }
    }

    /// One of the references that came last, not to be given up after all.
    pub(crate) fn take_back(&mut self) -> Option<R> {
        match self.more.checked_sub(1) {
            None => self.one.take(),
            Some(less) => {
                self.more = less;
                // SAFETY: one that was the same was forgotten when it was added, and is counted here no more.
                self.one.as_ref().map(|one| unsafe { one.uncounted() })
            }
        }
    }

    #[inline]
    fn flush(&mut self) {
        let num = 1 + std::mem::take(&mut self.more);
        if let Some(one) = self.one.take() {
            // SAFETY: all that were added since the last flush are references to one value, and each but `one` was forgotten.
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

    /// References to a value of which the `Arc` tells whether it is still there.
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

    /// As `Arc`: the process ends before the count wraps. Looked at from outside, in this test run once more in a process of its own.
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
