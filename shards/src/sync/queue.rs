//! A shard's commit queue: many threads push, the owner of the shard takes everything at once.
//!
//! ```text
//!   push:      compare-exchange on `head`
//!              head -> [item 3] -> [item 2] -> [item 1] -> null
//!
//!   take_all:  swap `head` with null, reverse the list: item 1, item 2, item 3
//! ```
//!
//! A push is one successful compare-exchange, so there is no push that is half done and that a
//! taker has to wait for. (crossbeam's `ArrayQueue` claims a slot first and fills it later; its
//! `pop` spins meanwhile.) Nobody takes single nodes out of the list, so an address that comes back
//! at its head (ABA) does no harm: the compare-exchange means "my node is now before this list",
//! whatever the list is.
//!
//! The queue is bounded: each node notes how many were in the list when it was pushed, itself
//! included, and whoever finds `capacity` of them at the head does not push. Threads that look at
//! once may all push, so the bound is `capacity` plus one for each committer. If the head is taken,
//! used and pushed again between a look at its number and the exchange, the noted number is that of
//! the older list, and the queue seems shorter or longer until it is emptied. In any case a
//! committer has no more nodes than its pool may make.
//!
//! - `CommitQueue::head`: publishes the nodes. SeqCst: `push` releases the node, the swap in
//!   `take_all` acquires those of all pushes, since each read the head before it. The total order
//!   pairs it with `OwnerLock`: "push, then try to lock; unlock, then look again". Models:
//!   `nothing_stays_queued_when_an_owner_unlocks`, `nodes_return_to_their_pool`.
//! - `Node::depth`: publishes nothing, it only admits or refuses. Relaxed store before the push,
//!   Relaxed load after an Acquire load of `head`. Model: `nodes_return_to_their_pool`.

use crate::sync::node_pool::{Node, OwnedNode};
use crate::sync::{AtomicPtr, Ordering};
use std::ptr::{self, NonNull};

/// A bounded queue of many producers, emptied as a whole.
#[derive(Debug)]
pub struct CommitQueue<T> {
    /// The newest item.
    head: AtomicPtr<Node<T>>,
    capacity: usize,
}

// SAFETY: the queue hands items from one thread to another, by ownership; it shares no access to
// them.
unsafe impl<T: Send> Send for CommitQueue<T> {}
// SAFETY: as above; `head` is an atomic.
unsafe impl<T: Send> Sync for CommitQueue<T> {}

impl<T> CommitQueue<T> {
    /// An empty queue for `capacity` items, and one more for each thread that pushes.
    pub fn new(capacity: usize) -> Self {
        Self { head: AtomicPtr::new(ptr::null_mut()), capacity }
    }

    /// Whether one more item may be pushed.
    #[inline]
    pub fn has_room(&self) -> bool {
        // Acquire: the node at the head is looked at. SeqCst, for whoever waits for room: see
        // `Hints::is_room_wanted`.
        depth(self.head.load(Ordering::SeqCst)) < self.capacity
    }

    /// Pushes an item, whether there is room or not: the caller has asked `has_room`.
    #[inline]
    pub fn push(&self, node: OwnedNode<T>) {
        let node = node.into_raw();
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            // SAFETY: an owned node is the caller's alone until the compare-exchange below
            // succeeds.
            unsafe {
                (*node).next.with_mut(|next| *next = head);
                (*node).depth.store(depth(head) + 1, Ordering::Relaxed);
            }
            match self.head.compare_exchange_weak(head, node, Ordering::SeqCst, Ordering::Acquire) {
                Ok(_) => return,
                Err(newer) => head = newer,
            }
        }
    }

    /// Whether nothing is queued. SeqCst: the "look again" of the lock's rule.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.head.load(Ordering::SeqCst).is_null()
    }

    /// Takes everything that is queued now, oldest push first.
    #[inline]
    pub fn take_all(&self) -> NodeList<T> {
        // A swap of an empty queue would fetch its cache line from those who push.
        if self.is_empty() {
            return NodeList::none();
        }
        // The swap makes the whole list ours; each push published its node and its `next`.
        NodeList { first: self.head.swap(ptr::null_mut(), Ordering::SeqCst) }.reversed()
    }
}

/// How many items are in a list that begins with `head`.
#[inline]
fn depth<T>(head: *mut Node<T>) -> usize {
    // SAFETY: nodes are freed with their pools, which live as long as the queue (contract of
    // `NodePool::new`); `depth` is an atomic, so it does not matter who has the node by now.
    unsafe { head.as_ref() }.map_or(0, |node| node.depth.load(Ordering::Relaxed))
}

impl<T> Drop for CommitQueue<T> {
    fn drop(&mut self) {
        drop(self.take_all());
    }
}

/// Items that were taken, in the order of pushing. What is not taken out returns to the pools
/// unread.
#[derive(Debug)]
pub struct NodeList<T> {
    first: *mut Node<T>,
}

// SAFETY: the nodes are owned by this list alone.
unsafe impl<T: Send> Send for NodeList<T> {}

impl<T> NodeList<T> {
    pub(crate) const fn none() -> Self {
        Self { first: ptr::null_mut() }
    }

    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// All of these nodes: first those of which `is_first` says so, then the others, each in their
    /// order.
    pub(crate) fn sorted(
        nodes: impl Iterator<Item = OwnedNode<T>>,
        is_first: impl Fn(&mut T) -> bool,
    ) -> NodeList<T> {
        let (mut first, mut others) = (NodeList::none(), NodeList::none());
        for mut node in nodes {
            let list = if node.with_item(&is_first) { &mut first } else { &mut others };
            list.push_front(node);
        }
        let mut sorted = others.reversed();
        first.for_each(|node| sorted.push_front(node));
        sorted
    }

    #[inline]
    fn reversed(self) -> NodeList<T> {
        let mut reversed = NodeList::none();
        self.for_each(|node| reversed.push_front(node));
        reversed
    }

    #[inline]
    fn push_front(&mut self, node: OwnedNode<T>) {
        let node = node.into_raw();
        // SAFETY: the node was held alone.
        unsafe { (*node).next.with_mut(|next| *next = self.first) };
        self.first = node;
    }

    /// Takes the first item if it is wanted.
    #[inline]
    pub(crate) fn next_if(&mut self, is_wanted: impl FnOnce(&T) -> bool) -> Option<OwnedNode<T>> {
        // SAFETY: the list owns its nodes.
        let first = unsafe { self.first.as_ref() }?;
        // SAFETY: as above: nobody else changes the item.
        let is_wanted = first.item.with(|item| is_wanted(unsafe { &*item }));
        if is_wanted { self.next() } else { None }
    }
}

impl<T> Iterator for NodeList<T> {
    type Item = OwnedNode<T>;

    #[inline]
    fn next(&mut self) -> Option<OwnedNode<T>> {
        let node = NonNull::new(self.first)?;
        // SAFETY: the list owns its nodes, and `next` of each was written when it was pushed.
        self.first = unsafe { node.as_ref().next.with(|next| *next) };
        // SAFETY: the list had it alone, and no longer refers to it.
        Some(unsafe { OwnedNode::new(node) })
    }
}

impl<T> Drop for NodeList<T> {
    fn drop(&mut self) {
        self.for_each(drop);
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::sync::node_pool::{NodePool, tests::node_with};

    fn values(nodes: NodeList<u32>) -> Vec<u32> {
        nodes.map(|mut node| node.with_item(|item| *item)).collect()
    }

    #[test]
    fn items_come_out_in_the_order_of_pushing_and_a_full_queue_says_so() {
        // SAFETY: the nodes are dropped before the pool.
        let mut pool = unsafe { NodePool::new(8) };
        let queue = CommitQueue::new(3);
        for value in 1..=3 {
            assert!(queue.has_room());
            queue.push(node_with(&mut pool, value));
        }
        assert!(!queue.has_room(), "full");
        assert_eq!(values(queue.take_all()), [1, 2, 3]);
        assert!(queue.is_empty());
        assert!(queue.has_room(), "room again");
        queue.push(node_with(&mut pool, 4));
        assert_eq!(values(queue.take_all()), [4]);
        drop(queue);
    }

    #[test]
    fn nodes_are_sorted_and_keep_their_order() {
        // SAFETY: the nodes are dropped before the pool.
        let mut pool = unsafe { NodePool::new(8) };
        for limit in [0, 3, 9] {
            let nodes: Vec<_> = [4, 1, 7, 2].map(|value| node_with(&mut pool, value)).into();
            let mut list = NodeList::sorted(nodes.into_iter(), |value| *value < limit);
            let next = list.next_if(|value| *value < limit).map(|mut node| node.with_item(|item| *item));
            let (expected, rest): (_, &[u32]) = match limit {
                0 => (None, &[4, 1, 7, 2]),
                3 => (Some(1), &[2, 4, 7]),
                _ => (Some(4), &[1, 7, 2]),
            };
            assert_eq!((next, &values(list)[..]), (expected, rest));
        }
    }

    #[test]
    fn nodes_that_nobody_took_out_return_to_their_pool() {
        // SAFETY: the nodes are dropped before the pool.
        let mut pool = unsafe { NodePool::<u32>::new(2) };
        let queue = CommitQueue::new(2);
        for value in 1..=2 {
            queue.push(node_with(&mut pool, value));
        }
        let mut nodes = queue.take_all();
        drop(nodes.next());
        drop(nodes);
        assert!(pool.take().is_some());
    }
}
