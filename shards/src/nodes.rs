//! The nodes in which items travel: where they come from, and their way back.

use crate::sync::{AtomicPtr, AtomicUsize, Ordering, UnsafeCell};
use crossbeam_utils::CachePadded;
use std::ptr::{self, NonNull};
use watershed_simd::prefetch;

/// One item on its way. Allocated by a [`NodePool`], which frees it when it is dropped itself. Not in one cache line with the next, which
/// its sender may be writing while this one is read.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Node<T> {
    /// The rest of a list: written by the one who has the node, before it puts the node into a list.
    pub(crate) next: UnsafeCell<*mut Node<T>>,
    /// The pool's list to which the node returns.
    returned: *const AtomicPtr<Node<T>>,
    /// How many items were in the list when this one was put, itself included. Written by the one who has the node, before the put; read
    /// with Relaxed by any committer that finds the node at the head. By then it may be in another list: the number then is of that one.
    pub(crate) depth: AtomicUsize,
    pub(crate) item: UnsafeCell<T>,
}

/// A node that one thread has for itself: an item that is being written, or one that was taken from a queue. Goes back
/// to its pool when it is dropped; the item in it is kept there as it is, so that its memory is used again.
#[derive(Debug)]
pub(crate) struct Letter<T> {
    node: NonNull<Node<T>>,
}

// SAFETY: a letter owns its node alone.
unsafe impl<T: Send> Send for Letter<T> {}

impl<T> Letter<T> {
    /// # Safety
    /// The caller has the node for itself and does not use it any more.
    #[inline]
    pub(crate) unsafe fn new(node: NonNull<Node<T>>) -> Letter<T> {
        Letter { node }
    }

    /// The node, which is then the caller's.
    #[inline]
    pub(crate) fn into_raw(self) -> *mut Node<T> {
        std::mem::ManuallyDrop::new(self).node.as_ptr()
    }

    /// Looks at the item, or changes it.
    #[inline]
    pub(crate) fn with_item<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the letter owns its node alone and is borrowed mutably.
        unsafe { self.node.as_ref().item.with_mut(|item| f(&mut *item)) }
    }
}

impl<T> Drop for Letter<T> {
    fn drop(&mut self) {
        // SAFETY: the letter owns its node alone, and has it for the last time.
        unsafe { give_back(self.node.as_ptr(), self.node.as_ptr()) };
    }
}

/// Gives a chain of nodes of one pool back to it, from `first` along `next` to `last`.
///
/// # Safety
/// The caller has the nodes for itself.
unsafe fn give_back<T>(first: *mut Node<T>, last: *mut Node<T>) {
    // SAFETY: a node lives until its pool is dropped, and the pool lives as long as any letter of it (contract of `NodePool::new`), so its
    // `returned` list can be reached.
    let returned = unsafe { &*(*first).returned };
    let mut head = returned.load(Ordering::Relaxed);
    loop {
        // SAFETY: the nodes are still the caller's alone.
        unsafe { (*last).next.with_mut(|next| *next = head) };
        // Release publishes the items as the last holder left them; pairs with the Acquire swap in `NodePool::letter`.
        match returned.compare_exchange_weak(head, first, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(newer) => head = newer,
        }
    }
}

/// Letters that are done with, on their way back: those of one pool that come one after the other go back together.
#[derive(Debug)]
pub(crate) struct Returns<T> {
    first: *mut Node<T>,
    last: *mut Node<T>,
}

impl<T> Returns<T> {
    pub(crate) const fn none() -> Returns<T> {
        Returns { first: ptr::null_mut(), last: ptr::null_mut() }
    }

    #[inline]
    pub(crate) fn add(&mut self, letter: Letter<T>) {
        let node = letter.into_raw();
        // SAFETY: these nodes are this list's alone, and `returned` of a node never changes.
        if !self.first.is_null() && unsafe { !ptr::eq((*self.first).returned, (*node).returned) } {
            self.flush();
        }
        if self.first.is_null() {
            self.last = node;
        }
        // SAFETY: the letter owned its node alone.
        unsafe { (*node).next.with_mut(|next| *next = self.first) };
        self.first = node;
    }

    fn flush(&mut self) {
        let first = std::mem::replace(&mut self.first, ptr::null_mut());
        if !first.is_null() {
            // SAFETY: the chain was this list's alone.
            unsafe { give_back(first, self.last) };
        }
    }
}

impl<T> Drop for Returns<T> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// The most nodes of a slab.
const MOST_AT_ONCE: usize = 64;

/// The nodes of one committer.
#[derive(Debug)]
pub(crate) struct NodePool<T> {
    /// Nodes that came back. Pushed with Release, taken as a whole with Acquire.
    returned: Box<CachePadded<AtomicPtr<Node<T>>>>,
    /// Nodes to be used next: only the committer touches them.
    free: *mut Node<T>,
    /// Every node ever made, side by side in slabs, so that who goes through a list of them finds the next where the processor expects it. Freed
    /// when the pool is dropped.
    slabs: Vec<*mut [Node<T>]>,
    made: usize,
    most: usize,
}

// SAFETY: a pool is used by one committer at a time (`&mut self`); what other threads reach is `returned`, an atomic.
unsafe impl<T: Send> Send for NodePool<T> {}

impl<T: Default> NodePool<T> {
    /// A pool of at most `most` nodes, made when they are needed.
    ///
    /// # Safety
    ///
    /// Every letter of the pool must be dropped before the pool is, and nobody may use an inbox in which one of them lay after that.
    pub(crate) unsafe fn new(most: usize) -> Self {
        Self {
            returned: Box::new(CachePadded::new(AtomicPtr::new(ptr::null_mut()))),
            free: ptr::null_mut(),
            slabs: Vec::new(),
            made: 0,
            most,
        }
    }

    /// A node with the item that its last holder left in it (or a new one); `None` if all are on their way.
    #[inline]
    pub(crate) fn letter(&mut self) -> Option<Letter<T>> {
        if self.free.is_null() {
            // Acquire pairs with the Release in `Letter::drop`.
            self.free = self.returned.swap(ptr::null_mut(), Ordering::Acquire);
        }
        self.take_free().or_else(|| self.make())
    }

    #[inline]
    fn take_free(&mut self) -> Option<Letter<T>> {
        let node = NonNull::new(self.free)?;
        // SAFETY: nodes in `free` are the pool's alone.
        self.free = unsafe { node.as_ref().next.with(|next| *next) };
        // The next commit will write there.
        prefetch::for_write_shared(self.free.cast());
        prefetch::for_write_shared(self.free.cast::<u8>().wrapping_add(prefetch::LINE_BYTES));
        Some(Letter { node })
    }

    /// A new slab: as many nodes as there are already, but not more than [`MOST_AT_ONCE`].
    #[cold]
    fn make(&mut self) -> Option<Letter<T>> {
        let more = self.made.clamp(1, MOST_AT_ONCE).min(self.most - self.made);
        let new = || Node {
            next: UnsafeCell::new(ptr::null_mut()),
            item: UnsafeCell::new(T::default()),
            depth: AtomicUsize::new(0),
            returned: &raw const **self.returned,
        };
        let slab = Box::into_raw(std::iter::repeat_with(new).take(more).collect::<Box<[_]>>());
        self.slabs.push(slab);
        self.made += more;
        let first = slab.cast::<Node<T>>();
        for at in (0..more).rev() {
            // SAFETY: the slab has `more` nodes, and nobody else knows of them.
            unsafe {
                let node = first.add(at);
                (*node).next.with_mut(|next| *next = self.free);
                self.free = node;
            }
        }
        self.take_free()
    }
}

impl<T> Drop for NodePool<T> {
    fn drop(&mut self) {
        for &slab in &self.slabs {
            // SAFETY: each slab came from `Box::into_raw` and is in the list once; no letter of it lives (contract of `new`).
            drop(unsafe { Box::from_raw(slab) });
        }
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests {
    use super::*;

    /// A letter with this item.
    pub(crate) fn letter(pool: &mut NodePool<u32>, value: u32) -> Letter<u32> {
        let mut letter = pool.letter().expect("a free node");
        letter.with_item(|item| *item = value);
        letter
    }

    #[test]
    fn a_pool_makes_no_more_nodes_than_it_may_and_uses_them_again() {
        // SAFETY: the letters are dropped before the pool.
        let mut pool = unsafe { NodePool::<u32>::new(2) };
        let (a, b) = (letter(&mut pool, 1), letter(&mut pool, 2));
        assert!(pool.letter().is_none());
        drop((a, b));
        for _ in 0..1000 {
            drop(letter(&mut pool, 3));
        }
        assert_eq!(pool.made, 2);
    }

    #[test]
    fn letters_go_back_together_each_to_its_own_pool() {
        // SAFETY: the letters are dropped before the pools.
        let mut pools = unsafe { [NodePool::<u32>::new(3), NodePool::<u32>::new(3)] };
        let mut returns = Returns::none();
        for which in [0, 0, 1, 0, 1, 1] {
            returns.add(pools[which].letter().expect("a free node"));
        }
        drop(returns);
        for pool in &mut pools {
            let letters: Vec<_> = std::iter::from_fn(|| pool.letter()).collect();
            assert_eq!((letters.len(), pool.made), (3, 3));
        }
    }
}
