//! Flushes that some instance has not finished yet.

/// Which of the service's requests wait for whom, in the order in which they came.
#[derive(Default)]
pub(super) struct Flushes(Vec<Flush>);

struct Flush {
    request_id: u64,
    instance_ids: Vec<u64>,
}

impl Flushes {
    pub(super) fn begin(&mut self, request_id: u64, instance_ids: &[u64]) {
        self.0.push(Flush { request_id, instance_ids: instance_ids.to_vec() });
    }

    /// Takes those that can be answered. A service takes an answer for one of all requests before
    /// it too, so none is answered before the ones that came earlier.
    pub(super) fn take_done(&mut self, is_flushing: impl Fn(u64) -> bool) -> Vec<u64> {
        let is_open = |flush: &Flush| flush.instance_ids.iter().any(|&id| is_flushing(id));
        let done = self.0.iter().position(is_open).unwrap_or(self.0.len());
        self.0.drain(..done).map(|flush| flush.request_id).collect()
    }

    pub(super) fn clear(&mut self) {
        self.0.clear();
    }
}
