//! The CPUs of the process, and the shard that each of them commits to.

use std::num::NonZero;

/// A buffer has at most so many shards.
pub const MAX_SHARDS: usize = 1024;

/// The CPUs that the process may use. Tests give them as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// The system's numbers for them, in order; there may be gaps.
    cpu_ids: Vec<usize>,
    /// How many CPUs may be busy at once: a control group's quota may allow fewer than the process
    /// may run on.
    num_parallel: usize,
}

impl Topology {
    /// A topology from data: the system's numbers of the CPUs. `num_parallel` is how many of them
    /// may be busy at once, clamped to 1 and the number of CPUs. Without CPUs, there is one with
    /// number 0.
    pub fn new(mut cpu_ids: Vec<usize>, num_parallel: usize) -> Self {
        cpu_ids.sort_unstable();
        cpu_ids.dedup();
        if cpu_ids.is_empty() {
            cpu_ids.push(0);
        }
        let num_parallel = num_parallel.clamp(1, cpu_ids.len());
        Self { cpu_ids, num_parallel }
    }

    /// The CPUs of this process, by its affinity; as many busy at once as the control group's quota
    /// allows.
    pub fn of_this_process() -> Self {
        let ids = core_affinity::get_core_ids().unwrap_or_default();
        let num_parallel = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self::new(ids.into_iter().map(|core| core.id).collect(), num_parallel)
    }

    /// The number of shards by default: one for each CPU that may be busy, at most [`MAX_SHARDS`].
    pub(crate) fn default_num_shards(&self) -> usize {
        self.num_parallel.min(MAX_SHARDS)
    }

    /// The shard, of `num_shards` (> 0), of new sequences that are committed on this CPU. Also for
    /// CPUs that the process may not use: its affinity may have changed since.
    pub(crate) fn shard_of(&self, cpu_id: usize, num_shards: usize) -> usize {
        self.cpu_ids.binary_search(&cpu_id).unwrap_or(cpu_id) % num_shards
    }

    /// The number of the CPU that a worker is pinned to, where workers are: each the next one of
    /// those that this process may use.
    pub fn cpu_of_worker(&self, worker: usize) -> usize {
        self.cpu_ids[worker % self.cpu_ids.len()]
    }
}

/// The CPU of the calling thread: a hint, since the thread may be moved at once. 0 where the system
/// does not tell.
#[inline]
pub(crate) fn current_cpu() -> usize {
    #[cfg(any(target_os = "linux", target_os = "android"))]
    {
        rustix::thread::sched_getcpu()
    }
    #[cfg(not(any(target_os = "linux", target_os = "android")))]
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn large() -> Topology {
        Topology::new((0..256).collect(), 256)
    }

    #[test]
    fn a_large_machine_gets_a_shard_for_each_cpu() {
        let topology = large();
        assert_eq!(topology.default_num_shards(), 256);
        let mut loads = [0; 256];
        for &cpu_id in &topology.cpu_ids {
            loads[topology.shard_of(cpu_id, 256)] += 1;
        }
        assert!(loads.iter().all(|&load| load == 1));
    }

    #[test]
    fn fewer_shards_than_cpus_are_shared_evenly() {
        let topology = large();
        let mut loads = [0; 24];
        for &cpu_id in &topology.cpu_ids {
            loads[topology.shard_of(cpu_id, 24)] += 1;
        }
        assert_eq!((loads.iter().min(), loads.iter().max()), (Some(&10), Some(&11)));
    }

    #[test]
    fn a_control_group_may_have_three_cpus_of_a_large_machine() {
        // One is listed twice.
        let topology = Topology::new(vec![77, 3, 200, 77], 256);
        assert_eq!((topology.cpu_ids.len(), topology.default_num_shards()), (3, 3));
        assert_eq!([3, 77, 200].map(|cpu| topology.shard_of(cpu, 3)), [0, 1, 2]);
        assert_eq!(topology.cpu_of_worker(1), 77);
        assert!(topology.shard_of(999, 3) < 3, "a CPU outside the set still has a shard");
    }

    #[test]
    fn a_quota_of_cpu_time_limits_the_shards() {
        assert_eq!(Topology::new((0..64).collect(), 2).default_num_shards(), 2);
        assert_eq!(Topology::new(Vec::new(), 0).default_num_shards(), 1);
    }

    #[test]
    fn this_process_has_a_cpu_and_runs_on_one() {
        let topology = Topology::of_this_process();
        assert!(topology.default_num_shards() >= 1);
        assert!(
            topology.shard_of(current_cpu(), topology.default_num_shards()) < topology.default_num_shards()
        );
    }
}
