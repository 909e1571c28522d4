//! Clones: a read-only copy of all shards at one cut.

use std::ops::Range;
use std::sync::{Arc, Mutex};

use watershed_engine::{CreateError, HugePages, mem::Region};

use crate::buffer::ShardedBuffer;
use crate::config::Report;
use crate::crew;
use crate::directory::Directory;
use crate::extents::Pool;
use crate::inner::{Inner, Places, oldest_of_none};
use crate::own::Owned;
use crate::sync::AtomicU32;
use crate::ticket::Tickets;
use crate::wish::Debts;

/// What one thread copies at a time: a huge page of the new region, which is then touched by one thread only.
const STRIDE_BYTES: usize = 2 << 20;

impl ShardedBuffer {
    /// A read-only copy of all shards at one cut. All shards are held for the time of the copy, which is made in parallel.
    ///
    /// # Errors
    /// If the system has no memory.
    pub fn clone_read_only(&self) -> Result<ShardedBuffer, CreateError> {
        let inner = &*self.inner;
        let size_bytes = self.size_bytes();
        let reading = inner.reading.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        let region = Region::map(size_bytes, HugePages::Advise)
            .map_err(|source| CreateError::NoMemory { size_bytes, source })?;
        let region = Arc::new(region);
        // The cut comes first: what it covers is queued now, so it is in the rings when they have been drained. What else gets
        // there meanwhile is behind the cut and not read from the copy.
        let limit = self.limit.unwrap_or_else(|| inner.tickets.cut());
        let mut held: Vec<Owned<'_>> =
            inner.places.made().map(|(shard, _)| self.hold_drained(shard)).collect();
        let ranges = held.iter().filter_map(|owned| Some(owned.state.engine.as_ref()?.filled())).flatten();
        copy_bytes(&inner.region, &region, ranges.collect());
        let copy = Inner {
            places: Places::new(inner.places.len(), 1),
            reading: Mutex::new(reading.clone()),
            pools: Mutex::default(),
            tickets: Tickets::new(),
            directory: Directory::new(),
            // Where reads of the copy put extents that they have emptied; nobody takes them.
            pool: Pool::new(inner.cutting.num_extents).into(),
            cutting: inner.cutting,
            policy: inner.policy,
            region,
            topology: inner.topology.clone(),
            oldest: oldest_of_none(inner.places.len()),
            next_owner: AtomicU32::new(0),
            live: AtomicU32::new(0).into(),
            debts: Debts::new(),
            has_workers: false,
            homes: inner.homes,
            next_home: AtomicU32::new(0),
        };
        let copy_structure = |original: &mut Owned<'_>| {
            if let (Some(engine), Some(owned)) =
                (&original.state.engine, Owned::try_new(&copy, original.shard, self.owner))
            {
                // SAFETY: the region is new and has the bytes; each of its extents is given to the one copy whose original has it.
                owned.state.engine = Some(unsafe { engine.copy_structure(Arc::clone(&copy.region)) });
            }
        };
        crew::share(held.iter_mut(), copy_structure);
        for owned in held {
            let shard = owned.shard;
            drop(owned);
            inner.look_again(shard, self.owner);
        }
        inner.attend(self.owner);
        let report = Report { num_workers: 0, num_workers_pinned: 0, ..self.report };
        let inner = Arc::new(copy);
        Ok(ShardedBuffer { workers: None, inner, owner: self.owner, report, limit: Some(limit) })
    }
}

/// Copies ranges of one region to the same places of another, which nobody else has seen. The caller owns all shards.
fn copy_bytes(from: &Region, to: &Region, mut ranges: Vec<Range<usize>>) {
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
        // SAFETY: the shards whose bytes are read are held by the caller, nobody else knows the new region, and no two ranges overlap.
        unsafe { to.copy_range(from, part.clone()) }
    };
    crew::share(strides.iter(), |(_, parts)| parts.iter().for_each(copy));
}
