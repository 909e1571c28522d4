//! A shard's commit queue: many threads put, whoever owns the shard takes everything at once.
//!
//! ```text
//!            put: compare-exchange on `head`                 take_all: swap `head` with null, then turn the list round
//!   head -> [item 3] -> [item 2] -> [item 1] -> null   ==>   item 1, item 2, item 3
//! ```
//!
//! A put is one successful compare-exchange: there is no moment at which a place is claimed but not filled, so taking
//! never waits for a put that is half done and never has to pass one over. (crossbeam's `ArrayQueue` claims a slot first
//! and fills it later; its `pop` spins meanwhile. It is the rival in the benchmark.) Nobody takes single nodes out of
//! the list, so the same address coming back at its head (ABA) does no harm: the compare-exchange means "my node is now
//! before this list", whatever the list is.
//!
//! The queue is bounded by `len`, which is raised before the put (a place is reserved) and lowered after the take: it is
//! never below the number of items in the list. A batch for several shards reserves a place at each before it puts anything.
//!
//! Items live in nodes that belong to the one who put them ([`NodePool`]) and go back there, so that a steady flow
//! allocates nothing.

use crate::sync::{AtomicPtr, AtomicUsize, Ordering, UnsafeCell};
use crossbeam_utils::CachePadded;
use std::ptr;

/// One item on its way. Allocated by a [`NodePool`], which frees it when it is dropped itself.
#[derive(Debug)]
pub(crate) struct Node<T> {
    /// The rest of a list: written by the one who has the node, before it puts the node into a list.
    next: UnsafeCell<*mut Node<T>>,
    item: UnsafeCell<T>,
    /// The pool's list to which the node returns.
    returned: *const AtomicPtr<Node<T>>,
}

/// The queue itself.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    /// The newest item. Put with `SeqCst` (its Release publishes the node), taken by a `SeqCst` swap (its Acquire sees
    /// the nodes of all puts, since each put read the head before it). `SeqCst` because of the ownership word's rule
    /// "queue, then try to take; give, then look again".
    head: AtomicPtr<Node<T>>,
    /// An upper bound of the number of items in the list. Relaxed: it admits or refuses, it publishes nothing.
    len: AtomicUsize,
    capacity: usize,
}

// SAFETY: the inbox hands items from one thread to another, by ownership; it gives out no shared access to them.
unsafe impl<T: Send> Send for Inbox<T> {}
// SAFETY: as above; `head` and `len` are atomics.
unsafe impl<T: Send> Sync for Inbox<T> {}

impl<T> Inbox<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()), len: AtomicUsize::new(0), capacity }
    }

    /// Reserves a place for one item. False if the queue is full.
    pub(crate) fn reserve(&self) -> bool {
        let has_room = self.len.fetch_add(1, Ordering::Relaxed) < self.capacity;
        if !has_room {
            self.cancel();
        }
        has_room
    }

    /// Gives a reserved place up.
    pub(crate) fn cancel(&self) {
        self.len.fetch_sub(1, Ordering::Relaxed);
    }

    /// Puts an item into a place that was reserved.
    pub(crate) fn put(&self, letter: Letter<T>) {
        let node = letter.into_raw();
        let mut head = self.head.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node came from a letter, so it is ours alone until the compare-exchange below succeeds.
            unsafe { (*node).next.with_mut(|next| *next = head) };
            match self.head.compare_exchange_weak(head, node, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => return,
                Err(newer) => head = newer,
            }
        }
    }

    /// Whether something was put and not taken yet. `SeqCst`: the "look again" of the ownership word's rule.
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::SeqCst).is_null()
    }

    /// Takes everything that is in the queue now, oldest put first.
    pub(crate) fn take_all(&self) -> Letters<T> {
        let mut newest = self.head.swap(ptr::null_mut(), Ordering::SeqCst);
        let mut oldest = ptr::null_mut();
        let mut taken = 0;
        while !newest.is_null() {
            // SAFETY: the swap made the whole list ours; each put published its node and its `next`.
            newest = unsafe {
                (*newest).next.with_mut(|next| {
                    let rest = *next;
                    *next = oldest;
                    oldest = newest;
                    rest
                })
            };
            taken += 1;
        }
        self.len.fetch_sub(taken, Ordering::Relaxed);
        Letters { first: oldest }
    }
}

impl<T> Drop for Inbox<T> {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}

/// Items that were taken, in the order in which they were put. What is not taken out goes back to the pools unread.
#[derive(Debug)]
pub(crate) struct Letters<T> {
    first: *mut Node<T>,
}

// SAFETY: the nodes are owned by this list alone.
unsafe impl<T: Send> Send for Letters<T> {}

impl<T> Letters<T> {
    pub(crate) const fn none() -> Self {
        Self { first: ptr::null_mut() }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }
}

impl<T> Iterator for Letters<T> {
    type Item = Letter<T>;

    fn next(&mut self) -> Option<Letter<T>> {
        if self.first.is_null() {
            return None;
        }
        let node = self.first;
        // SAFETY: the list owns its nodes and `next` of each was written by `take_all`.
        self.first = unsafe { (*node).next.with(|next| *next) };
        Some(Letter { node })
    }
}

impl<T> Drop for Letters<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

/// A node that one thread has for itself: an item that is being written, or one that was taken from a queue. Goes back
/// to its pool when it is dropped; the item in it is kept there as it is, so that its memory is used again.
#[derive(Debug)]
pub(crate) struct Letter<T> {
    node: *mut Node<T>,
}

// SAFETY: a letter owns its node alone.
unsafe impl<T: Send> Send for Letter<T> {}

impl<T> Letter<T> {
    fn into_raw(self) -> *mut Node<T> {
        let node = self.node;
        std::mem::forget(self);
        node
    }

    /// Looks at the item, or changes it.
    pub(crate) fn with_item<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the letter owns its node alone and is borrowed mutably.
        unsafe { (*self.node).item.with_mut(|item| f(&mut *item)) }
    }
}

impl<T> Drop for Letter<T> {
    fn drop(&mut self) {
        // SAFETY: the node lives until its pool is dropped, and the pool lives as long as any letter of it (contract of
        // `NodePool::new`), so its `returned` list can be reached.
        let returned = unsafe { &*(*self.node).returned };
        let mut head = returned.load(Ordering::Relaxed);
        loop {
            // SAFETY: the node is still ours alone.
            unsafe { (*self.node).next.with_mut(|next| *next = head) };
            // Release publishes the item as the last holder left it; pairs with the Acquire swap in `NodePool::letter`.
            match returned.compare_exchange_weak(head, self.node, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(newer) => head = newer,
            }
        }
    }
}

/// The nodes of one committer.
#[derive(Debug)]
pub(crate) struct NodePool<T> {
    /// Nodes that came back. Pushed with Release, taken as a whole with Acquire.
    returned: Box<CachePadded<AtomicPtr<Node<T>>>>,
    /// Nodes to be used next: only the committer touches them.
    free: *mut Node<T>,
    /// Every node ever made: freed when the pool is dropped.
    all: Vec<*mut Node<T>>,
    most: usize,
}

// SAFETY: a pool is used by one committer at a time (`&mut self`); what other threads reach is `returned`, an atomic.
unsafe impl<T: Send> Send for NodePool<T> {}

impl<T: Default> NodePool<T> {
    /// A pool of at most `most` nodes, made when they are needed.
    ///
    /// # Safety
    ///
    /// Every letter of the pool must be dropped before the pool is.
    pub(crate) unsafe fn new(most: usize) -> Self {
        Self {
            returned: Box::new(CachePadded::new(AtomicPtr::new(ptr::null_mut()))),
            free: ptr::null_mut(),
            all: Vec::new(),
            most,
        }
    }

    /// A node with the item that its last holder left in it (or a new one); `None` if all are on their way.
    pub(crate) fn letter(&mut self) -> Option<Letter<T>> {
        if self.free.is_null() {
            // Acquire pairs with the Release in `Letter::drop`.
            self.free = self.returned.swap(ptr::null_mut(), Ordering::Acquire);
        }
        if self.free.is_null() {
            return self.make();
        }
        let node = self.free;
        // SAFETY: nodes in `free` are the pool's alone.
        self.free = unsafe { (*node).next.with(|next| *next) };
        Some(Letter { node })
    }

    fn make(&mut self) -> Option<Letter<T>> {
        if self.all.len() == self.most {
            return None;
        }
        let node = Box::into_raw(Box::new(Node {
            next: UnsafeCell::new(ptr::null_mut()),
            item: UnsafeCell::new(T::default()),
            returned: &raw const **self.returned,
        }));
        self.all.push(node);
        Some(Letter { node })
    }
}

impl<T> Drop for NodePool<T> {
    fn drop(&mut self) {
        for &node in &self.all {
            // SAFETY: each node came from `Box::into_raw` and is in `all` once; no letter of it lives (contract of `new`).
            drop(unsafe { Box::from_raw(node) });
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn letter(pool: &mut NodePool<u32>, value: u32) -> Letter<u32> {
        let mut letter = pool.letter().expect("a free node");
        letter.with_item(|item| *item = value);
        letter
    }

    fn values(letters: Letters<u32>) -> Vec<u32> {
        letters.map(|mut letter| letter.with_item(|item| *item)).collect()
    }

    #[test]
    fn items_come_out_in_the_order_of_putting_and_a_full_queue_hands_back() {
        // SAFETY: the letters are dropped before the pool.
        let mut pool = unsafe { NodePool::new(8) };
        let inbox = Inbox::new(3);
        for value in 1..=3 {
            assert!(inbox.reserve());
            inbox.put(letter(&mut pool, value));
        }
        assert!(!inbox.reserve(), "full");
        assert_eq!(values(inbox.take_all()), [1, 2, 3]);
        assert!(inbox.is_empty());
        assert!(inbox.reserve(), "room again");
        inbox.cancel();
        assert!(inbox.reserve());
        inbox.put(letter(&mut pool, 4));
        assert_eq!(values(inbox.take_all()), [4]);
        drop(inbox);
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
        assert_eq!(pool.all.len(), 2);
    }

    #[test]
    fn letters_that_nobody_took_out_go_back() {
        // SAFETY: the letters are dropped before the pool.
        let mut pool = unsafe { NodePool::<u32>::new(2) };
        let inbox = Inbox::new(2);
        for value in 1..=2 {
            assert!(inbox.reserve());
            inbox.put(letter(&mut pool, value));
        }
        let mut letters = inbox.take_all();
        drop(letters.next());
        drop(letters);
        assert!(pool.letter().is_some());
    }
}
