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
//! The queue is bounded: each node knows how many were in the list when it was put, itself included, and who finds `capacity` of
//! them at the head does not put. Several who look at once may all put, so the bound is `capacity` and one for each
//! committer. A batch for several shards looks at all of them before it puts anything. Here the address that comes back does harm, a little: if
//! the head is taken, done with and put again between a committer's look at its number and the exchange, the number that the committer notes is that
//! of the older list, and the queue seems shorter or longer than it is until it is emptied. What holds in any case is that a committer has no more
//! nodes than its pool may make.
//!
//! Items live in nodes that belong to the one who put them (module `nodes`) and go back there, so that a steady flow
//! allocates nothing.

use crate::nodes::{Letter, Node};
use crate::sync::{AtomicPtr, Ordering};
use std::ptr::{self, NonNull};
use watershed_simd::prefetch;

/// The queue itself.
#[derive(Debug)]
pub(crate) struct Inbox<T> {
    /// The newest item. Put with `SeqCst` (its Release publishes the node), taken by a `SeqCst` swap (its Acquire sees
    /// the nodes of all puts, since each put read the head before it). `SeqCst` because of the ownership word's rule
    /// "queue, then try to take; give, then look again".
    head: AtomicPtr<Node<T>>,
    capacity: usize,
}

/// What a queue was when it was looked at.
#[derive(Debug)]
pub(crate) struct Seen<T> {
    head: *mut Node<T>,
    depth: usize,
}

impl<T> Clone for Seen<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Seen<T> {}

// SAFETY: the inbox hands items from one thread to another, by ownership; it gives out no shared access to them.
unsafe impl<T: Send> Send for Inbox<T> {}
// SAFETY: as above; `head` is an atomic.
unsafe impl<T: Send> Sync for Inbox<T> {}

impl<T> Inbox<T> {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()), capacity }
    }

    /// Whether one more item may be put.
    #[inline]
    pub(crate) fn has_room(&self) -> bool {
        self.admits(self.look())
    }

    /// The queue as it is now.
    #[inline]
    pub(crate) fn look(&self) -> Seen<T> {
        // Acquire: pairs with the put of the node that is looked at.
        let head = self.head.load(Ordering::Acquire);
        Seen { head, depth: depth(head) }
    }

    /// Whether one more item may be put, by what was seen.
    #[inline]
    pub(crate) fn admits(&self, seen: Seen<T>) -> bool {
        seen.depth < self.capacity
    }

    /// Puts an item, whether there is room or not: who puts has looked.
    #[inline]
    pub(crate) fn put(&self, letter: Letter<T>) {
        self.put_behind(self.look(), letter);
    }

    /// The same where the queue was looked at before. If others have put or taken since then, it is looked at again.
    #[inline]
    pub(crate) fn put_behind(&self, seen: Seen<T>, letter: Letter<T>) {
        let node = letter.into_raw();
        let Seen { mut head, depth: mut before } = seen;
        loop {
            // SAFETY: the node came from a letter, so it is ours alone until the compare-exchange below succeeds.
            unsafe {
                (*node).next.with_mut(|next| *next = head);
                (*node).depth.store(before + 1, Ordering::Relaxed);
            }
            match self.head.compare_exchange_weak(head, node, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => return,
                Err(newer) => (head, before) = (newer, depth(newer)),
            }
        }
    }

    /// Whether something was put and not taken yet. `SeqCst`: the "look again" of the ownership word's rule.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::SeqCst).is_null()
    }

    /// Takes everything that is in the queue now, oldest put first.
    #[inline]
    pub(crate) fn take_all(&self) -> Letters<T> {
        // Looked at first: who polls an empty queue does not take its line from those who put.
        if self.is_empty() {
            return Letters::none();
        }
        let mut newest = self.head.swap(ptr::null_mut(), Ordering::SeqCst);
        let mut oldest = ptr::null_mut();
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
        }
        Letters { first: oldest }
    }
}

/// How many items are in a list that begins with `head`.
#[inline]
fn depth<T>(head: *mut Node<T>) -> usize {
    // SAFETY: nodes are freed with their pools, and these live as long as the inbox (contract of `NodePool::new`); `depth` is an atomic,
    // so it does not matter who has the node by now.
    unsafe { head.as_ref() }.map_or(0, |node| node.depth.load(Ordering::Relaxed))
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

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// A hint that the items will be worked on: `prefetch` is that for what the first item points to, the second item is fetched.
    #[inline]
    pub(crate) fn prefetch(&self, prefetch: impl FnOnce(&T)) {
        self.peek(prefetch);
        if !self.first.is_null() {
            // SAFETY: the list owns its nodes.
            let second: *const u8 = unsafe { (*self.first).next.with(|next| (*next).cast()) };
            prefetch::for_read(second);
            prefetch::for_read(second.wrapping_add(prefetch::LINE_BYTES));
        }
    }

    /// Looks at the first item.
    #[inline]
    pub(crate) fn peek(&self, look: impl FnOnce(&T)) {
        if !self.first.is_null() {
            // SAFETY: the list owns its nodes.
            unsafe { (*self.first).item.with(|item| look(&*item)) };
        }
    }
}

impl<T> Iterator for Letters<T> {
    type Item = Letter<T>;

    #[inline]
    fn next(&mut self) -> Option<Letter<T>> {
        let node = NonNull::new(self.first)?;
        // SAFETY: the list owns its nodes and `next` of each was written by `take_all`.
        self.first = unsafe { node.as_ref().next.with(|next| *next) };
        // SAFETY: the list had it for itself.
        Some(unsafe { Letter::new(node) })
    }
}

impl<T> Drop for Letters<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::nodes::{NodePool, tests::letter};

    fn values(letters: Letters<u32>) -> Vec<u32> {
        letters.map(|mut letter| letter.with_item(|item| *item)).collect()
    }

    #[test]
    fn items_come_out_in_the_order_of_putting_and_a_full_queue_hands_back() {
        // SAFETY: the letters are dropped before the pool.
        let mut pool = unsafe { NodePool::new(8) };
        let inbox = Inbox::new(3);
        for value in 1..=3 {
            assert!(inbox.has_room());
            inbox.put(letter(&mut pool, value));
        }
        assert!(!inbox.has_room(), "full");
        assert_eq!(values(inbox.take_all()), [1, 2, 3]);
        assert!(inbox.is_empty());
        assert!(inbox.has_room(), "room again");
        inbox.put(letter(&mut pool, 4));
        assert_eq!(values(inbox.take_all()), [4]);
        drop(inbox);
    }

    #[test]
    fn letters_that_nobody_took_out_go_back() {
        // SAFETY: the letters are dropped before the pool.
        let mut pool = unsafe { NodePool::<u32>::new(2) };
        let inbox = Inbox::new(2);
        for value in 1..=2 {
            inbox.put(letter(&mut pool, value));
        }
        let mut letters = inbox.take_all();
        drop(letters.next());
        drop(letters);
        assert!(pool.letter().is_some());
    }
}
