//! Describing processes at once, because somebody met them: data sources that name threads ask
//! `linux.process_stats` of the same session.

use std::sync::{Arc, Mutex, PoisonError, Weak};

/// Who can describe threads.
pub(crate) trait Describer: Send {
    /// Describes the processes of these threads, unless that has been done: of `renamed` again.
    fn describe(&mut self, renamed: &[i32], fresh: &[i32]);
}

type Shared = Mutex<dyn Describer>;
/// A describer and the tracing session that it belongs to.
type Registered = (u64, Weak<Shared>);

/// The instances of `linux.process_stats` by session. Clones are the same list.
#[derive(Clone, Default)]
pub struct OnDemand(Arc<Mutex<Vec<Registered>>>);

impl std::fmt::Debug for OnDemand {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("OnDemand").finish_non_exhaustive()
    }
}

impl OnDemand {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn register(&self, tracing_session: u64, describer: Weak<Shared>) {
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        list.retain(|(_, describer)| describer.strong_count() > 0);
        list.push((tracing_session, describer));
    }

    pub(crate) fn describe(&self, tracing_session: u64, renamed: &[i32], fresh: &[i32]) {
        let list = self.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let of_session = list.iter().filter(|(session, _)| *session == tracing_session);
        for describer in of_session.filter_map(|(_, describer)| describer.upgrade()) {
            describer.lock().unwrap_or_else(PoisonError::into_inner).describe(renamed, fresh);
        }
    }
}
