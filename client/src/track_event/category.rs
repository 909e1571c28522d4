//! Categories: what sessions ask for by name or tag.

use super::names::CATEGORY_NAMES;
use super::registry::REGISTRY;
use crate::sync::{AtomicU32, Ordering};

/// Set until the registry knows the category: its first event makes it known.
const UNKNOWN: u32 = 1 << 31;

/// What events belong to, and what sessions choose by. One for each part of a program that somebody
/// may want to see alone.
///
/// A session has a category if the first of these that names it is a list of what is enabled, or
/// if none names it: `enabled_categories`, `enabled_tags`, `disabled_categories`, `disabled_tags`,
/// first literally and then by patterns with a `*` at the end. Without `disabled_tags` these are
/// `slow` and `debug`.
#[derive(Debug)]
pub struct Category {
    name: &'static str,
    description: &'static str,
    tags: &'static [&'static str],
    /// A bit for each session that has it, and [`UNKNOWN`].
    sessions: AtomicU32,
    /// Among interned names, once it is known.
    number: AtomicU32,
}

impl Category {
    /// A category of that name. Names are compared byte by byte; two of the same name are chosen
    /// together.
    #[must_use]
    pub const fn new(name: &'static str) -> Self {
        let (sessions, number) = (AtomicU32::new(UNKNOWN), AtomicU32::new(0));
        Self { name, description: "", tags: &[], sessions, number }
    }

    /// With tags, by which sessions can choose many categories at once. Those with `slow` or
    /// `debug` are off unless a session asks for them.
    #[must_use]
    pub const fn with_tags(self, tags: &'static [&'static str]) -> Self {
        Self { tags, ..self }
    }

    /// With a sentence for those who choose.
    #[must_use]
    pub const fn with_description(self, description: &'static str) -> Self {
        Self { description, ..self }
    }

    /// The name.
    #[must_use]
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The tags.
    #[must_use]
    pub fn tags(&self) -> &'static [&'static str] {
        self.tags
    }

    /// The sentence for those who choose.
    #[must_use]
    pub fn description(&self) -> &'static str {
        self.description
    }

    /// Whether a session may want its events; the macros ask before they evaluate anything else.
    /// True once for a category that no event has used yet.
    #[inline]
    #[must_use]
    pub fn is_enabled(&self) -> bool {
        // Relaxed: a session that comes or goes at this moment is seen by the next event.
        self.sessions.load(Ordering::Relaxed) != 0
    }

    /// The sessions that have it, a bit each.
    #[inline]
    pub(super) fn sessions(&'static self) -> u32 {
        // Acquire, with the release in `set_sessions`: who sees a bit sees the epoch that came with
        // it.
        match self.sessions.load(Ordering::Acquire) {
            UNKNOWN => self.register(),
            sessions => sessions,
        }
    }

    /// Makes it known, so that sessions can choose it before its first event.
    #[cold]
    pub(super) fn register(&'static self) -> u32 {
        REGISTRY.add(self);
        self.sessions.load(Ordering::Relaxed)
    }

    /// Only under the registry's lock.
    pub(super) fn set_sessions(&self, sessions: u32) {
        // Release: see `sessions`.
        self.sessions.store(sessions, Ordering::Release);
    }

    /// Whether the registry has it. Only under the registry's lock.
    pub(super) fn is_known(&self) -> bool {
        self.sessions.load(Ordering::Relaxed) != UNKNOWN
    }

    /// The number of the name.
    #[inline]
    pub(super) fn number(&self) -> u32 {
        CATEGORY_NAMES.number(self.name, &self.number)
    }
}
