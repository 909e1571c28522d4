//! Which shard a new sequence goes to.

use crate::shard::Shared;
use crate::shard::topology::current_cpu;
use crate::sync::Ordering;

/// A shard with so many live sequences takes one more, whatever the mean. Four threads that write
/// on one CPU are not unusual, and they do not run at the same time; a sequence that goes to
/// another CPU's shard contends with that CPU's threads at every commit, as long as it lives.
const MIN_LIVE_LIMIT: usize = 4;

/// The home of a new sequence, as long as that shard has not many more sequences than others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Homes {
    /// The shard of the CPU that commits its first chunk.
    #[default]
    CommittingCpu,
    /// The next shard after the last new sequence's. For one thread that commits for all, whose CPU
    /// says nothing; and the same commits give the same homes again.
    RoundRobin,
}

impl Shared {
    /// The shard for a sequence that has none: that of the CPU `cpu_id`, or of the calling
    /// thread's, or the next one. If that has more than twice the mean number of live sequences,
    /// and more than [`MIN_LIVE_LIMIT`], the next one that has not.
    pub(crate) fn choose_home(&self, cpu_id: Option<usize>) -> u16 {
        let num = self.slots.len();
        let wanted = match self.config.homes {
            Homes::CommittingCpu => self.config.topology.shard_of(cpu_id.unwrap_or_else(current_cpu), num),
            Homes::RoundRobin => self.next_home.fetch_add(1, Ordering::Relaxed) as usize % num,
        };
        let live = |shard: usize| self.slots.get(shard).hints.live.load(Ordering::Relaxed) as usize;
        let limit = (2 * self.live.load(Ordering::Relaxed) as usize / num).max(MIN_LIVE_LIMIT);
        let all = (0..num).map(|step| (wanted + step) % num);
        // With poisoned shards, whose number of sequences is the largest, all may be above twice
        // the mean.
        let shard =
            all.clone().find(|&shard| live(shard) <= limit).or_else(|| all.min_by_key(|&shard| live(shard)));
        shard.unwrap_or(wanted) as u16
    }
}
