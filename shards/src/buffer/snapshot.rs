//! Clones: a read-only copy of all shards at one cut.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use rayon::ThreadPool;
use watershed_engine::{CreateError, HugePages, mem::Region};

use crate::buffer::ShardedBuffer;
use crate::buffer::config::Report;
use crate::read::parallel::for_each;
use crate::shard::drain::DrainBudget;
use crate::shard::guard::ShardGuard;
use crate::shard::{Shared, SharedConfig};
use crate::sync::{AtomicUsize, Ordering};

/// What one thread copies at a time: a huge page of the new region, so that one thread alone
/// touches it.
const STRIDE_BYTES: usize = 2 << 20;

impl ShardedBuffer {
    /// A read-only copy of all shards at one cut. All shards are locked for the time of the copy.
    /// Waits for a read pass to be dropped: not for a thread that has one.
    ///
    /// # Errors
    /// If the system has no memory.
    pub fn clone_read_only(&self) -> Result<ShardedBuffer, CreateError> {
        self.clone_in_pool(None)
    }

    /// As [`clone_read_only`](Self::clone_read_only). The calling thread and those of the pool
    /// copy, each a part at a time.
    ///
    /// # Errors
    /// As there.
    pub fn clone_in_pool(&self, pool: Option<&ThreadPool>) -> Result<ShardedBuffer, CreateError> {
        let shared = &*self.shared;
        let size_bytes = self.size_bytes();
        let reading = self.reading.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let region = Region::map(size_bytes, HugePages::Advise)
            .map_err(|source| CreateError::NoMemory { size_bytes, source })?;
        let region = Arc::new(region);
        // The cut comes first. What it covers is queued by now, so it is in the rings when they
        // have been drained. What else gets there meanwhile is behind the cut and is not read from
        // the copy. No shard is held while another one is drained: that one may need an extent of
        // the first.
        let limit = self.limit.unwrap_or_else(|| shared.tickets.cut());
        for (shard, _) in shared.slots.made() {
            // Others are helped when the copy is made: it should have nothing that is behind the
            // cut.
            self.lock_drained(shard, limit).note_rest();
        }
        let mut guards: Vec<ShardGuard<'_>> =
            shared.slots.made().map(|(shard, _)| self.lock(shard)).collect();
        let ranges = guards.iter().filter_map(|guard| Some(guard.state.engine.as_ref()?.filled())).flatten();
        copy_bytes(pool, &shared.region, &region, ranges.collect());
        let copy = Shared::new(SharedConfig {
            layout: shared.layout,
            queue_capacity: 1,
            policy: shared.policy,
            region,
            topology: shared.topology.clone(),
            has_workers: false,
            homes: shared.homes,
        });
        // Relaxed: whoever reads the copy has got it from this thread.
        copy.extracted_bytes.store(self.extracted_bytes(), Ordering::Relaxed);
        let copy_structure = |original: &mut ShardGuard<'_>| {
            if let (Some(engine), Some(guard)) =
                (&original.state.engine, ShardGuard::try_lock(&copy, original.shard, self.owner))
            {
                // SAFETY: the region is new and has the bytes. Each of its extents goes to the one
                // copy whose original has it.
                guard.state.engine = Some(unsafe { engine.copy_structure(Arc::clone(&copy.region)) });
            }
        };
        for_each(pool, guards.iter_mut(), copy_structure);
        let locked: Vec<usize> = guards.iter().map(|guard| guard.shard).collect();
        drop(guards);
        let mut budget = DrainBudget::new();
        locked.into_iter().for_each(|shard| shared.help_after_unlock(shard, self.owner, &mut budget));
        let report = Report { num_workers: 0, num_workers_pinned: 0, ..self.report };
        let shared = Arc::new(copy);
        let reading = Mutex::new(reading.clone());
        Ok(ShardedBuffer {
            workers: None,
            shared,
            reading,
            owner: self.owner,
            report,
            limit: Some(limit),
            prefaulted_bytes: AtomicUsize::new(0),
        })
    }
}

/// Copies ranges of one region to the same places of another, which nobody else has seen. The
/// caller has locked all shards.
fn copy_bytes(pool: Option<&ThreadPool>, from: &Region, to: &Region, mut ranges: Vec<Range<usize>>) {
    ranges.sort_unstable_by_key(|range| range.start);
    let mut strides: Vec<(usize, Vec<Range<usize>>)> = Vec::new();
    for range in ranges {
        let mut start = range.start;
        while start < range.end {
            let stride = start / STRIDE_BYTES;
            let end = range.end.min((stride + 1) * STRIDE_BYTES);
            match strides.last_mut() {
                Some((last, parts)) if *last == stride => parts.push(start..end),
                _ => strides.push((stride, std::iter::once(start..end).collect())),
            }
            start = end;
        }
    }
    let copy = |part: &Range<usize>| {
        // SAFETY: the caller has locked the shards whose bytes are read, nobody else knows the new
        // region, and no two ranges overlap.
        unsafe { to.copy_range(from, part.clone()) }
    };
    for_each(pool, strides.iter(), |(_, parts)| parts.iter().for_each(copy));
}
