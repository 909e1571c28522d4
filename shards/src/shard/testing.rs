//! Threads for a pool of workers. The feature `testing`.

use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;

use crate::shard::worker::WorkerPool;

impl WorkerPool {
    /// A pool with so many threads that serve whenever one is asked for. They end after the pool.
    pub fn with_threads(num_workers: usize) -> WorkerPool {
        let pool = WorkerPool::new(num_workers);
        let (ask, asked) = mpsc::channel();
        let asked = Arc::new(Mutex::new(asked));
        pool.on_work(move || ask.send(()).expect("the threads end after the pool"));
        for _ in 0..num_workers {
            let (mut worker, asked) = (pool.worker(), Arc::clone(&asked));
            let wait = move || asked.lock().unwrap_or_else(PoisonError::into_inner).recv();
            thread::spawn(move || {
                while wait().is_ok() {
                    worker.serve();
                }
            });
        }
        pool
    }
}
