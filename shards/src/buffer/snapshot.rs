//! Clones: a read-only copy of all shards at one cut.
//!
//! ```text
//!   look at what is listed -> touch its memory in the new region -> again, while there is more
//!     (before that, by another thread, too: clone_memory)
//!   drain each shard up to the cut -> lock all -> copy bytes and structures -> unlock all
//! ```
//!
//! While shards are held every commit to them queues, so the memory is made ready before: of a
//! clone of 64 MB that took 20 to 37 ms, 24 ms were page faults.

use std::ops::Range;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use watershed_engine::{
    CreateError, HugePages,
    mem::{Region, page_size_bytes},
};

use crate::buffer::ShardedBuffer;
use crate::buffer::config::Report;
use crate::shard::budget::DrainBudget;
use crate::shard::guard::ShardGuard;
use crate::shard::{POISONED, Shared, SharedConfig};
use crate::sync::{AtomicUsize, Ordering};

/// What is touched at a time at most: a huge page of the new region.
const UNIT_BYTES_MAX: usize = 2 << 20;

/// While memory is made ready others commit, a third as much at most as was made ready: after so
/// many looks little is left.
const MAX_LOOKS: usize = 4;

/// Memory for a clone, see [`ShardedBuffer::clone_memory`].
#[derive(Debug)]
pub struct CloneMemory {
    region: Region,
    /// Of each unit of [`ShardedBuffer::unit_bytes`], whether its pages have been touched.
    is_ready: Vec<bool>,
}

impl ShardedBuffer {
    /// The memory that a clone will need, made ready for what the buffer has now. The system may
    /// take long to find it: a thread for which nobody waits can do that before the clone.
    /// Committers go on meanwhile.
    ///
    /// # Errors
    /// If the system has no memory.
    pub fn clone_memory(&self) -> Result<CloneMemory, CreateError> {
        // A clone may come much later, or never: who has queued something meanwhile is helped.
        self.ready_memory(None, |shard| self.shared.after_unlock(shard, self.owner))
    }

    /// A read-only copy of what a [`cut`](Self::cut) covers that was taken before. What has been
    /// written over since the cut is not in it. All shards are locked for the time of the copy.
    /// Waits for a read pass to be dropped: not for a thread that has one.
    ///
    /// It goes into the memory, if there is some that was made ready for a buffer of this size.
    ///
    /// # Errors
    /// If the system has no memory.
    pub fn clone_in_memory(
        &self,
        cut: u64,
        memory: Option<CloneMemory>,
    ) -> Result<ShardedBuffer, CreateError> {
        let shared = &*self.shared;
        let reading = self.reading.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        // Here it is helped when the copy is made: it should have nothing that is behind the cut.
        let memory = self.ready_memory(memory, |_| {})?;
        let config = SharedConfig {
            layout: shared.config.layout,
            policy: shared.config.policy,
            region: Arc::new(memory.region),
            topology: shared.config.topology.clone(),
            workers: None,
            homes: shared.config.homes,
        };
        let copy = Shared::new(config, 1);
        // The cut comes first. What it covers is queued by now, so it is in the rings when they
        // have been drained. What else gets there meanwhile is behind the cut and is not read from
        // the copy. No shard is held while another one is drained: that one may need an extent of
        // the first.
        let limit = self.limit.map_or(cut, |limit| limit.min(cut));
        for (shard, _) in shared.slots.made() {
            // Others are helped at the end, as above.
            self.lock_drained(shard, limit).note_rest();
        }
        let held_from = Instant::now();
        let mut guards: Vec<ShardGuard<'_>> =
            shared.slots.made().map(|(shard, _)| self.lock(shard)).collect();
        for range in guards.iter().flat_map(filled) {
            // SAFETY: the shards whose bytes are read are locked, nobody else knows the new region,
            // and no two ranges overlap.
            unsafe { copy.config.region.copy_range_touched(&shared.config.region, range) };
        }
        // Relaxed: whoever reads the copy has got it from this thread.
        copy.extracted_bytes.store(self.extracted_bytes(), Ordering::Relaxed);
        for original in &mut guards {
            if let (Some(engine), Some(guard)) =
                (&original.state.engine, ShardGuard::try_lock(&copy, original.shard, self.owner))
            {
                guard.state.is_poisoned = original.state.is_poisoned;
                guard.state.discarded_before_poison = original.state.discarded_before_poison;
                if original.state.is_poisoned {
                    // Relaxed: as above.
                    guard.slot.hints.live.store(POISONED, Ordering::Relaxed);
                    copy.has_poisoned.store(true, Ordering::Relaxed);
                }
                // SAFETY: the region is new and has the bytes. Each of its extents goes to the one
                // copy whose original has it.
                guard.state.engine = Some(unsafe { engine.copy_structure(Arc::clone(&copy.config.region)) });
            }
        }
        let locked: Vec<usize> = guards.iter().map(|guard| guard.shard).collect();
        drop(guards);
        let held = held_from.elapsed();
        let budget = &mut DrainBudget::new();
        locked.into_iter().for_each(|shard| shared.help_after_unlock(shard, self.owner, budget));
        let report = Report { held, ..self.report };
        let shared = Arc::new(copy);
        let reading = Mutex::new(reading.clone());
        Ok(ShardedBuffer {
            shared,
            reading,
            owner: self.owner,
            report,
            limit: Some(limit),
            prefaulted_bytes: AtomicUsize::new(0),
        })
    }

    /// What is touched at a time: no more than one extent, of which nothing else may be wanted.
    fn unit_bytes(&self) -> usize {
        self.shared.config.layout.extent_bytes.min(UNIT_BYTES_MAX)
    }

    /// New memory for a copy, unless there is some of the right size. Of what lies in shards now,
    /// and of the rest of their open extents, each page has been touched. Where commits come
    /// meanwhile it is looked again.
    fn ready_memory(
        &self,
        memory: Option<CloneMemory>,
        after_unlock: impl Fn(usize),
    ) -> Result<CloneMemory, CreateError> {
        let (size_bytes, unit_bytes) = (self.size_bytes(), self.unit_bytes());
        let num_units = size_bytes.div_ceil(unit_bytes);
        let is_of_this = |memory: &CloneMemory| {
            (memory.region.size_bytes(), memory.is_ready.len()) == (size_bytes, num_units)
        };
        let mut memory = match memory.filter(is_of_this) {
            Some(memory) => memory,
            None => {
                let region = Region::map(size_bytes, HugePages::Advise);
                let region = region.map_err(|source| CreateError::NoMemory { size_bytes, source })?;
                CloneMemory { region, is_ready: vec![false; num_units] }
            }
        };
        for _ in 0..MAX_LOOKS {
            let mut is_wanted = vec![false; num_units];
            for (shard, _) in self.shared.slots.made() {
                let ranges = filled(&self.lock(shard));
                after_unlock(shard);
                for range in ranges {
                    let units = range.start / unit_bytes..range.end.div_ceil(unit_bytes);
                    units.for_each(|unit| is_wanted[unit] = !memory.is_ready[unit]);
                }
            }
            if !is_wanted.contains(&true) {
                break;
            }
            touch(&mut memory.region, unit_bytes, &is_wanted);
            memory.is_ready.iter_mut().zip(is_wanted).for_each(|(is_ready, wanted)| *is_ready |= wanted);
        }
        Ok(memory)
    }
}

/// Where records of a locked shard lie.
fn filled(guard: &ShardGuard<'_>) -> Vec<Range<usize>> {
    guard.state.engine.as_ref().map_or_else(Vec::new, |engine| engine.filled())
}

/// Writes to each page of the wanted units of a new region.
fn touch(region: &mut Region, unit_bytes: usize, is_wanted: &[bool]) {
    let units = region.as_mut_slice().chunks_mut(unit_bytes).zip(is_wanted);
    for (unit, _) in units.filter(|(_, is_wanted)| **is_wanted) {
        unit.iter_mut().step_by(page_size_bytes()).for_each(|byte| *byte = 0);
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;
    use crate::ShardedConfig;
    use watershed_engine::{ChunkId, ChunkInfo, ProducerId, WriterId};

    /// Bytes of a region that have memory.
    fn resident_bytes(region: &Region) -> usize {
        let smaps = std::fs::read_to_string("/proc/self/smaps").unwrap();
        let start = format!("{:x}-", region.base().addr());
        let mut lines = smaps.lines().skip_while(|line| !line.starts_with(&start));
        let line = lines.find_map(|line| line.strip_prefix("Rss:")).expect("the region is a mapping");
        line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
    }

    fn buffer(num_shards: usize) -> ShardedBuffer {
        let config = ShardedConfig { num_shards: Some(num_shards), ..ShardedConfig::ring(64 << 20) };
        ShardedBuffer::create(config).unwrap()
    }

    /// Writes so many MiB, half of it into the first shard.
    fn fill(buffer: &ShardedBuffer, mb: usize) {
        let mut committer = buffer.committer().unwrap();
        let bytes = [&[0xfe, 0x7f][..], &[7; 0x3ffe]].concat();
        for number in 0..mb << 6 {
            let cpu = if number % 2 == 0 { 0 } else { number / 2 % 8 };
            committer.set_cpu(Some(cpu));
            let info = ChunkInfo {
                producer_id_trusted: ProducerId(1),
                writer_id: WriterId(1 + cpu as u16),
                chunk_id: ChunkId(number as u32),
                num_fragments: 1,
                complete: true,
                ..ChunkInfo::default()
            };
            committer.commit_chunk(&info, &bytes).unwrap();
        }
    }

    /// The copy itself, for which shards are held, faults no page in, and no more is made ready
    /// than is listed and one extent a shard.
    #[test]
    fn a_clone_makes_its_memory_ready_before_it_holds_a_shard() {
        for (num_shards, mb) in [(8, 10), (8, 200), (1, 10), (1, 200)] {
            let buffer = buffer(num_shards);
            fill(&buffer, mb);
            let region = buffer.clone_memory().unwrap().region;
            let guards: Vec<_> = (0..num_shards).map(|shard| buffer.lock(shard)).collect();
            let filled_bytes: usize = guards.iter().flat_map(filled).map(|range| range.len()).sum();
            let ready_bytes = resident_bytes(&region);
            for range in guards.iter().flat_map(filled) {
                // SAFETY: all shards are locked, and nobody else knows the new region.
                unsafe { region.copy_range_touched(&buffer.shared.config.region, range) };
            }
            assert_eq!(resident_bytes(&region), ready_bytes, "{num_shards} shards, {mb} MiB");
            assert!(filled_bytes > (8 << 20), "{filled_bytes}");
            // Where there are huge pages, the last of them is ready as a whole.
            let most = filled_bytes + num_shards * buffer.report.layout.extent_bytes.min(UNIT_BYTES_MAX);
            assert!(
                (filled_bytes..=most + UNIT_BYTES_MAX).contains(&ready_bytes),
                "{ready_bytes} of {filled_bytes}"
            );
        }
    }

    #[test]
    fn a_clone_goes_into_memory_that_was_made_ready() {
        let buffer = buffer(8);
        fill(&buffer, 100);
        let memory = buffer.clone_memory().unwrap();
        let (base, ready_bytes) = (memory.region.base(), resident_bytes(&memory.region));
        // What is committed meanwhile finds its memory ready, too: the ring is full.
        fill(&buffer, 8);
        let clone = buffer.clone_in_memory(buffer.cut(), Some(memory)).unwrap();
        let region = &clone.shared.config.region;
        assert_eq!((region.base(), resident_bytes(region)), (base, ready_bytes));

        let smaller = ShardedBuffer::create(ShardedConfig::ring(1 << 20)).unwrap();
        fill(&smaller, 1);
        let memory = buffer.clone_memory().unwrap();
        let base = memory.region.base();
        let clone = smaller.clone_in_memory(smaller.cut(), Some(memory)).unwrap();
        assert_eq!(clone.size_bytes(), 1 << 20);
        assert_ne!(clone.shared.config.region.base(), base, "it is of another size");
    }
}
