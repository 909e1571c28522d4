//! The nodes of the commit queues: who makes them, and how they return.
//!
//! ```text
//!   NodePool (one committer)          CommitQueue            the shard's owner
//!     free -> node -> node    take
//!       |  ----------------------->  push  ------------->  take_all, read the item
//!       |  free is empty: swap                                |
//!     returned <- node <- node  <-----------------------------+  compare-exchange, a chain at once
//! ```
//!
//! A node and the memory of its item are used again and again, so a steady flow allocates nothing.
//!
//! - `NodePool::returned`: publishes the item as its last holder left it. Release compare-exchange
//!   in `return_chain`, Acquire swap in `take`. Model: `nodes_return_to_their_pool`.
//! - `Node::depth`: see `queue`.

use crate::sync::{AtomicPtr, AtomicUsize, Ordering, UnsafeCell};
use crossbeam_utils::CachePadded;
use std::ptr::{self, NonNull};

/// One item and its links. Two cache lines, so that no thread writes a line that another one reads.
#[derive(Debug)]
#[repr(C, align(128))]
pub(crate) struct Node<T> {
    /// The rest of a list. Written by the holder, before the node goes into a list.
    pub(crate) next: UnsafeCell<*mut Node<T>>,
    /// The list of the pool to which the node returns.
    returned: *const AtomicPtr<Node<T>>,
    /// How many items were in the queue when this one was pushed, itself included. Whoever finds
    /// the node at the head reads it; by then the node may be in another list, and the number is of
    /// that one.
    pub(crate) depth: AtomicUsize,
    pub(crate) item: UnsafeCell<T>,
}

/// A node that one thread holds: with an item that is being written, or was taken from a queue.
/// Returns to its pool when it is dropped; the item stays in it, so that its memory is used again.
#[derive(Debug)]
pub struct OwnedNode<T> {
    node: NonNull<Node<T>>,
}

// SAFETY: an owned node is held by one thread alone.
unsafe impl<T: Send> Send for OwnedNode<T> {}

impl<T> OwnedNode<T> {
    /// # Safety
    /// The caller holds the node alone and does not use it any more.
    #[inline]
    pub(crate) unsafe fn new(node: NonNull<Node<T>>) -> OwnedNode<T> {
        OwnedNode { node }
    }

    /// The node, which is then the caller's to return.
    #[inline]
    pub(crate) fn into_raw(self) -> *mut Node<T> {
        std::mem::ManuallyDrop::new(self).node.as_ptr()
    }

    /// Reads the item, or changes it.
    #[inline]
    pub fn with_item<R>(&mut self, f: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: the node is held alone and is borrowed mutably.
        unsafe { self.node.as_ref().item.with_mut(|item| f(&mut *item)) }
    }
}

impl<T> Drop for OwnedNode<T> {
    fn drop(&mut self) {
        // SAFETY: the node is held alone, and not used after this.
        unsafe { return_chain(self.node.as_ptr(), self.node.as_ptr()) };
    }
}

/// Returns a chain of nodes of one pool, from `first` along `next` to `last`.
///
/// # Safety
/// The caller holds the nodes alone.
unsafe fn return_chain<T>(first: *mut Node<T>, last: *mut Node<T>) {
    // SAFETY: a node lives until its pool is dropped, and the pool outlives every owned node
    // (contract of `NodePool::new`), so its `returned` list can be reached.
    let returned = unsafe { &*(*first).returned };
    let mut head = returned.load(Ordering::Relaxed);
    loop {
        // SAFETY: the nodes are still the caller's alone.
        unsafe { (*last).next.with_mut(|next| *next = head) };
        match returned.compare_exchange_weak(head, first, Ordering::Release, Ordering::Relaxed) {
            Ok(_) => return,
            Err(newer) => head = newer,
        }
    }
}

/// Nodes that are done with: those of one pool that come one after the other return together.
#[derive(Debug)]
pub struct NodeReturns<T> {
    first: *mut Node<T>,
    last: *mut Node<T>,
}

impl<T> NodeReturns<T> {
    /// Nothing to return.
    pub const fn none() -> NodeReturns<T> {
        NodeReturns { first: ptr::null_mut(), last: ptr::null_mut() }
    }

    /// Adds a node; it returns with the next ones of its pool, at the latest when this is dropped.
    #[inline]
    pub fn add(&mut self, node: OwnedNode<T>) {
        let node = node.into_raw();
        // SAFETY: these nodes are this list's alone, and `returned` of a node never changes.
        if !self.first.is_null() && unsafe { !ptr::eq((*self.first).returned, (*node).returned) } {
            self.flush();
        }
        if self.first.is_null() {
            self.last = node;
        }
        // SAFETY: the node was held alone.
        unsafe { (*node).next.with_mut(|next| *next = self.first) };
        self.first = node;
    }

    fn flush(&mut self) {
        let first = std::mem::replace(&mut self.first, ptr::null_mut());
        if !first.is_null() {
            // SAFETY: the chain was this list's alone.
            unsafe { return_chain(first, self.last) };
        }
    }
}

impl<T> Drop for NodeReturns<T> {
    fn drop(&mut self) {
        self.flush();
    }
}

/// A slab has at most so many nodes.
const MAX_SLAB_NODES: usize = 64;

/// The nodes of one committer.
#[derive(Debug)]
pub struct NodePool<T> {
    /// Nodes that came back.
    returned: Box<CachePadded<AtomicPtr<Node<T>>>>,
    /// Nodes to be used next. Only the committer touches them.
    free: *mut Node<T>,
    /// Every node ever made. In slabs, so that the next node of a list is where the processor
    /// expects it.
    slabs: Vec<*mut [Node<T>]>,
    num_nodes: usize,
    max_nodes: usize,
}

// SAFETY: one committer at a time uses a pool (`&mut self`); others reach only `returned`, an
// atomic.
unsafe impl<T: Send> Send for NodePool<T> {}

impl<T: Default> NodePool<T> {
    /// A pool of at most `max_nodes` nodes, made when they are needed.
    ///
    /// # Safety
    /// Every node of the pool must be dropped before the pool is, and no queue in which one of them
    /// lay may be used after that.
    pub(crate) unsafe fn new(max_nodes: usize) -> Self {
        Self {
            returned: Box::new(CachePadded::new(AtomicPtr::new(ptr::null_mut()))),
            free: ptr::null_mut(),
            slabs: Vec::new(),
            num_nodes: 0,
            max_nodes,
        }
    }

    /// A pool that is never dropped, so that no node of it can outlive it. For the queue's
    /// benchmark.
    #[cfg(all(not(loom), any(test, feature = "testing")))]
    pub fn leaked(max_nodes: usize) -> &'static mut Self {
        // SAFETY: the pool is never dropped.
        Box::leak(Box::new(unsafe { Self::new(max_nodes) }))
    }

    /// A node with the item that its last holder left in it, or with a new one. None if all are in
    /// use.
    #[inline]
    pub fn take(&mut self) -> Option<OwnedNode<T>> {
        if self.free.is_null() {
            self.free = self.returned.swap(ptr::null_mut(), Ordering::Acquire);
        }
        self.take_free().or_else(|| self.make())
    }

    #[inline]
    fn take_free(&mut self) -> Option<OwnedNode<T>> {
        let node = NonNull::new(self.free)?;
        // SAFETY: nodes in `free` are the pool's alone.
        self.free = unsafe { node.as_ref().next.with(|next| *next) };
        Some(OwnedNode { node })
    }

    /// A new slab: as many nodes as there are already, but not more than [`MAX_SLAB_NODES`].
    #[cold]
    fn make(&mut self) -> Option<OwnedNode<T>> {
        let more = self.num_nodes.clamp(1, MAX_SLAB_NODES).min(self.max_nodes - self.num_nodes);
        let new = || Node {
            next: UnsafeCell::new(ptr::null_mut()),
            item: UnsafeCell::new(T::default()),
            depth: AtomicUsize::new(0),
            returned: &raw const **self.returned,
        };
        let slab = Box::into_raw(std::iter::repeat_with(new).take(more).collect::<Box<[_]>>());
        self.slabs.push(slab);
        self.num_nodes += more;
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
            // SAFETY: each slab came from `Box::into_raw` and is in the list once; none of its
            // nodes is held (contract of `new`).
            drop(unsafe { Box::from_raw(slab) });
        }
    }
}

#[cfg(all(test, not(loom)))]
pub(crate) mod tests {
    use super::*;

    pub(crate) fn node_with(pool: &mut NodePool<u32>, value: u32) -> OwnedNode<u32> {
        let mut node = pool.take().expect("a free node");
        node.with_item(|item| *item = value);
        node
    }

    #[test]
    fn a_pool_makes_no_more_nodes_than_allowed_and_uses_them_again() {
        // SAFETY: the nodes are dropped before the pool.
        let mut pool = unsafe { NodePool::<u32>::new(2) };
        let (a, b) = (node_with(&mut pool, 1), node_with(&mut pool, 2));
        assert!(pool.take().is_none());
        drop((a, b));
        for _ in 0..1000 {
            drop(node_with(&mut pool, 3));
        }
        assert_eq!(pool.num_nodes, 2);
    }

    #[test]
    fn nodes_return_together_each_to_its_own_pool() {
        // SAFETY: the nodes are dropped before the pools.
        let mut pools = unsafe { [NodePool::<u32>::new(3), NodePool::<u32>::new(3)] };
        let mut returns = NodeReturns::none();
        for which in [0, 0, 1, 0, 1, 1] {
            returns.add(pools[which].take().expect("a free node"));
        }
        drop(returns);
        for pool in &mut pools {
            let nodes: Vec<_> = std::iter::from_fn(|| pool.take()).collect();
            assert_eq!((nodes.len(), pool.num_nodes), (3, 3));
        }
    }
}
