//! What a data source has to say to the person who asked for it: a field that this machine cannot
//! serve, a period that was raised to its floor. A notice never stops a recording.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

/// Notices kept for one owner at most; later ones are counted, not kept.
pub const NOTICES_MAX: usize = 64;

/// One line for the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notice {
    /// The data source that says it, for example `linux.sys_stats`.
    pub source: &'static str,
    /// What it says, without a full stop at the end.
    pub text: String,
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.source, self.text)
    }
}

/// A shared list of notices: the probes add on their thread, whoever recorded takes them out.
#[derive(Clone, Debug, Default)]
pub struct Notices(Arc<Mutex<Vec<Notice>>>);

impl Notices {
    /// An empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds one, unless the list is full or already holds the same.
    pub fn add(&self, source: &'static str, text: impl Into<String>) {
        let notice = Notice { source, text: text.into() };
        let mut list = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if list.len() < NOTICES_MAX && !list.contains(&notice) {
            list.push(notice);
        }
    }

    /// Takes out what has been said so far, in order.
    pub fn take(&self) -> Vec<Notice> {
        std::mem::take(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
