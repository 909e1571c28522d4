//! Threads that take part in large reads.

use std::sync::Arc;
use std::thread::available_parallelism;

use rayon::{ThreadPool, ThreadPoolBuilder};
use watershed_service::PoolFactory;

/// One thread writes a trace, and that takes longer than what so many extract.
const THREADS_MAX: usize = 8;

/// A factory for [`watershed_service::ServiceOptions`]. It makes threads at the first large read:
/// one for each processor but that on which the service's own thread writes. It gives none where
/// this process may use only one processor at that moment.
pub fn read_pool() -> PoolFactory {
    let mut pool: Option<Arc<ThreadPool>> = None;
    Box::new(move || {
        let num_others = available_parallelism().map_or(1, usize::from) - 1;
        if num_others > 0 && pool.is_none() {
            let threads = ThreadPoolBuilder::new()
                .num_threads(num_others.min(THREADS_MAX))
                .thread_name(|index| format!("trace-read-{index}"));
            // Where the system has no threads, reads are slower.
            pool = threads.build().ok().map(Arc::new);
        }
        pool.clone().filter(|_| num_others > 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_made_once_and_leaves_one_processor_free() {
        let mut factory = read_pool();
        let Some(pool) = factory() else {
            assert_eq!(available_parallelism().map_or(1, usize::from), 1);
            return;
        };
        assert!(pool.current_num_threads() < available_parallelism().unwrap().get());
        assert!(pool.install(|| std::thread::current().name().unwrap().starts_with("trace-read-")));
        assert!(Arc::ptr_eq(&pool, &factory().expect("still there")));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn where_there_is_one_processor_there_is_no_pool() {
        use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
        let mut factory = read_pool();
        let allowed = sched_getaffinity(None).unwrap();
        let first = (0..CpuSet::MAX_CPU).find(|&cpu| allowed.is_set(cpu)).unwrap();
        let mut one = CpuSet::new();
        one.set(first);
        sched_setaffinity(None, &one).unwrap();
        assert!(factory().is_none());
    }
}
