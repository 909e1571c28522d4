//! Threads that make the memory of clones ready, while the loop goes on.
//!
//! Each clone has one of its own: it waits neither for a slow file nor for another clone, whose
//! memory the system may take long to find.

use std::sync::Arc;
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread;

use watershed_service::limits::CLONES_MAX;
use watershed_service::{ClockReadings, CloneMemory, CloneWork, Service};

use crate::wake::Wake;

/// The threads at work.
#[derive(Debug)]
pub(crate) struct CloneThreads {
    done: Sender<CloneMemory>,
    results: Receiver<CloneMemory>,
    wake: Arc<Wake>,
    /// At most [`CLONES_MAX`], also of consumers that have gone meanwhile: so much memory may be
    /// made ready that nobody wants any more.
    num_at_work: usize,
}

impl CloneThreads {
    /// None yet. After each piece of work `wake` is called.
    pub(crate) fn new(wake: Arc<Wake>) -> CloneThreads {
        let (done, results) = mpsc::channel();
        CloneThreads { done, results, wake, num_at_work: 0 }
    }

    /// Tells the service of memory that is ready, and begins with what it wants next.
    pub(crate) fn work(&mut self, service: &mut Service, now: &ClockReadings) {
        while let Ok(memory) = self.results.try_recv() {
            self.num_at_work -= 1;
            service.handle_clone_memory(memory, now);
        }
        while self.num_at_work < CLONES_MAX
            && let Some(work) = service.poll_clone()
        {
            match self.start(work.clone()) {
                Ok(()) => self.num_at_work += 1,
                // The system has no thread.
                Err(_) => service.handle_clone_memory(work.run(), now),
            }
        }
    }

    fn start(&self, work: CloneWork) -> std::io::Result<()> {
        let (done, wake) = (self.done.clone(), Arc::clone(&self.wake));
        let run = move || {
            // The loop has gone only if nobody wants clones any more.
            let _ = done.send(work.run());
            wake.wake();
        };
        thread::Builder::new().name("trace-clone".to_owned()).spawn(run).map(drop)
    }
}
