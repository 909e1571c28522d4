//! Buffers and memory that nobody wants any more. To drop them takes milliseconds, for the system
//! takes the memory back, and waits for a worker that has a shard: where the service never waits,
//! the shell does it on another thread.

use std::fmt;

use crate::service::Service;

/// To be dropped by a thread that may wait. See [`Service::poll_dropped`].
pub struct Dropped(#[expect(dead_code, reason = "it is only dropped")] Box<dyn Send>);

impl fmt::Debug for Dropped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Dropped")
    }
}

impl Service {
    /// Something to be dropped, if the shell
    /// [has threads that may wait](crate::ServiceOptions::never_waits). To be called until `None`
    /// after every other call.
    pub fn poll_dropped(&mut self) -> Option<Dropped> {
        self.dropped.pop_front()
    }

    pub(crate) fn discard(&mut self, unwanted: impl Send + 'static) {
        if self.options.never_waits {
            self.dropped.push_back(Dropped(Box::new(unwanted)));
        }
    }
}
