//! The CPUs of the process, and the shard that each of them commits to.

use std::num::NonZeroUsize;

/// A buffer has at most so many shards.
pub const MAX_SHARDS: usize = 1024;

/// One CPU that the process may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cpu {
    /// The system's number for it; there may be gaps.
    pub id: usize,
    /// Its memory node. Reported, not used yet.
    pub node: usize,
}

/// The CPUs that the process may use. Tests give them as data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    cpus: Vec<Cpu>,
    /// How many CPUs may be busy at once: a control group's quota may allow fewer than the process
    /// may run on.
    num_parallel: NonZeroUsize,
}

impl Topology {
    /// A topology from data. `num_parallel` is how many of the CPUs may be busy at once, clamped to
    /// 1 and the number of CPUs. Without CPUs, there is one with number 0.
    pub fn new(mut cpus: Vec<Cpu>, num_parallel: usize) -> Self {
        cpus.sort_unstable_by_key(|cpu| cpu.id);
        cpus.dedup_by_key(|cpu| cpu.id);
        if cpus.is_empty() {
            cpus.push(Cpu { id: 0, node: 0 });
        }
        let num_parallel = NonZeroUsize::new(num_parallel.min(cpus.len())).unwrap_or(NonZeroUsize::MIN);
        Self { cpus, num_parallel }
    }

    /// The CPUs of this process, by its affinity; as many busy at once as the control group's quota
    /// allows.
    pub fn of_this_process() -> Self {
        let ids = core_affinity::get_core_ids().unwrap_or_default();
        let cpus: Vec<Cpu> =
            ids.into_iter().map(|core| Cpu { id: core.id, node: node_of(core.id) }).collect();
        let num_parallel = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
        Self::new(cpus, num_parallel)
    }

    /// The CPUs, in the order of their numbers.
    pub fn cpus(&self) -> &[Cpu] {
        &self.cpus
    }

    /// The number of shards by default: one for each CPU that may be busy, at most [`MAX_SHARDS`].
    pub fn default_num_shards(&self) -> usize {
        self.num_parallel.get().min(MAX_SHARDS)
    }

    /// The shard, of `num_shards` (> 0), of new sequences that are committed on this CPU. Also for
    /// CPUs that the process may not use: its affinity may have changed since.
    pub fn shard_of(&self, cpu_id: usize, num_shards: usize) -> usize {
        let rank = match self.cpus.binary_search_by_key(&cpu_id, |cpu| cpu.id) {
            Ok(rank) => rank,
            Err(_) => cpu_id,
        };
        rank % num_shards
    }

    /// The CPU that a shard's worker is pinned to.
    pub fn cpu_of_worker(&self, shard: usize) -> Cpu {
        self.cpus[shard % self.cpus.len()]
    }
}

#[cfg(target_os = "linux")]
fn node_of(cpu_id: usize) -> usize {
    let folder = format!("/sys/devices/system/cpu/cpu{cpu_id}");
    let Ok(entries) = std::fs::read_dir(folder) else { return 0 };
    entries
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("node")?.parse().ok())
        .next()
        .unwrap_or(0)
}

#[cfg(not(target_os = "linux"))]
fn node_of(_cpu_id: usize) -> usize {
    0
}

/// The CPU of the calling thread: a hint, since the thread may be moved at once. 0 where the system
/// does not tell.
#[inline]
pub fn current_cpu() -> usize {
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

    fn many_nodes() -> Topology {
        let cpus = (0..256).map(|id| Cpu { id, node: id / 32 }).collect();
        Topology::new(cpus, 256)
    }

    #[test]
    fn a_large_machine_gets_a_shard_for_each_cpu() {
        let topology = many_nodes();
        assert_eq!(topology.default_num_shards(), 256);
        let mut loads = [0; 256];
        for cpu in topology.cpus() {
            loads[topology.shard_of(cpu.id, 256)] += 1;
        }
        assert!(loads.iter().all(|&load| load == 1));
    }

    #[test]
    fn fewer_shards_than_cpus_are_shared_evenly() {
        let topology = many_nodes();
        let mut loads = [0; 24];
        for cpu in topology.cpus() {
            loads[topology.shard_of(cpu.id, 24)] += 1;
        }
        assert_eq!((loads.iter().min(), loads.iter().max()), (Some(&10), Some(&11)));
    }

    #[test]
    fn a_control_group_may_have_three_cpus_of_a_large_machine() {
        // One is listed twice.
        let cpus = [77, 3, 200, 77].map(|id| Cpu { id, node: id / 32 });
        let topology = Topology::new(cpus.to_vec(), 256);
        assert_eq!((topology.cpus().len(), topology.default_num_shards()), (3, 3));
        assert_eq!([3, 77, 200].map(|cpu| topology.shard_of(cpu, 3)), [0, 1, 2]);
        assert_eq!(topology.cpu_of_worker(1).id, 77);
        assert!(topology.shard_of(999, 3) < 3, "a CPU outside the set still has a shard");
    }

    #[test]
    fn a_quota_of_cpu_time_limits_the_shards() {
        let cpus = (0..64).map(|id| Cpu { id, node: 0 }).collect();
        assert_eq!(Topology::new(cpus, 2).default_num_shards(), 2);
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
