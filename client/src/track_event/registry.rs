//! What of the program is known, and which sessions want it.

use watershed_wire::protos::{DataSourceConfig, TrackEventConfig};

use super::category::Category;
use super::event::Contents;
use super::filter;
use crate::data_source::{DescriptorChanged, WriterSource};
use crate::sync::{AtomicU64, Mutex, MutexGuard, Ordering, lock};

/// Sessions that can want track events of one program at the same time, as with Perfetto's own
/// library.
pub(super) const SESSIONS_MAX: usize = 8;

/// The one of this process.
pub(super) static REGISTRY: Registry = Registry {
    epoch: AtomicU64::new(0),
    state: Mutex::new(State {
        categories: Vec::new(),
        sessions: [const { None }; SESSIONS_MAX],
        next_session: 1,
        watchers: Vec::new(),
    }),
};

/// Categories and sessions of a program.
#[derive(Debug)]
pub(super) struct Registry {
    /// Counts up whenever a session starts, ends or clears what sequences have explained.
    epoch: AtomicU64,
    state: Mutex<State>,
}

struct State {
    categories: Vec<&'static Category>,
    sessions: [Option<Session>; SESSIONS_MAX],
    next_session: u64,
    /// Producers that are told of new categories.
    watchers: Vec<DescriptorChanged>,
}

impl std::fmt::Debug for State {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("State").field("sessions", &self.sessions).finish_non_exhaustive()
    }
}

/// A session that wants track events, as threads need to know it.
#[derive(Clone, Debug)]
pub(super) struct Session {
    /// Unique in this process.
    pub(super) id: u64,
    /// How often it has cleared incremental state.
    pub(super) clears: u64,
    pub(super) writers: WriterSource,
    pub(super) options: Options,
    config: TrackEventConfig,
    /// It has started.
    is_active: bool,
}

/// How a session wants its events written.
#[derive(Clone, Copy, Debug)]
pub(super) struct Options {
    pub(super) contents: Contents,
    /// Times count from the event before, in units of so many nanoseconds; else from boot.
    pub(super) incremental: bool,
    pub(super) unit_ns: u64,
}

impl Options {
    fn of(config: &TrackEventConfig) -> Self {
        Self {
            contents: Contents {
                without_args: config.filter_debug_annotations(),
                without_dynamic_names: config.filter_dynamic_event_names(),
            },
            incremental: !config.disable_incremental_timestamps(),
            unit_ns: config.timestamp_unit_multiplier().max(1),
        }
    }
}

impl Registry {
    /// Changes before what threads know of sessions is wrong.
    #[inline]
    pub(super) fn epoch(&self) -> u64 {
        // Relaxed: the state is behind its lock, and who saw a bit of a category sees the epoch
        // that came with it.
        self.epoch.load(Ordering::Relaxed)
    }

    /// All sessions, and the epoch for which that holds.
    pub(super) fn sessions(&self) -> (u64, [Option<Session>; SESSIONS_MAX]) {
        let state = lock(&self.state);
        (self.epoch(), state.sessions.clone())
    }

    /// Makes a category known, if it is not.
    pub(super) fn add(&self, category: &'static Category) {
        let mut state = lock(&self.state);
        if !category.is_known() {
            state.categories.push(category);
            // In one store: what another thread sees before it is that the category is unknown, and
            // it comes here and waits, rather than that nobody wants it.
            state.choose(category);
            state.watchers.retain(|changed| changed());
        }
    }

    /// A producer is told of categories that become known from now on.
    pub(super) fn watch(&self, changed: DescriptorChanged) {
        lock(&self.state).watchers.push(changed);
    }

    /// All categories that are known.
    pub(super) fn categories(&self) -> Vec<&'static Category> {
        lock(&self.state).categories.clone()
    }

    /// A session that will want events. Gives its id; `None`: there are too many.
    pub(super) fn add_session(&self, config: &DataSourceConfig, writers: WriterSource) -> Option<u64> {
        let mut state = lock(&self.state);
        let place = state.sessions.iter().position(Option::is_none)?;
        let id = state.next_session;
        state.next_session += 1;
        let config = config.track_event_config.clone().unwrap_or_default();
        let options = Options::of(&config);
        state.sessions[place] = Some(Session { id, clears: 0, writers, options, config, is_active: false });
        Some(id)
    }

    /// A session starts to want events.
    pub(super) fn start(&self, id: u64) {
        let mut state = lock(&self.state);
        state.sessions.iter_mut().flatten().filter(|session| session.id == id).for_each(|session| {
            session.is_active = true;
        });
        self.change(state);
    }

    /// A session wants no more events.
    pub(super) fn stop(&self, id: u64) {
        let mut state = lock(&self.state);
        state.sessions.iter_mut().filter(|session| is(session, id)).for_each(|session| *session = None);
        self.change(state);
    }

    /// What sequences of a session have explained is forgotten.
    pub(super) fn clear(&self, id: u64) {
        let mut state = lock(&self.state);
        state.sessions.iter_mut().flatten().filter(|session| session.id == id).for_each(|s| s.clears += 1);
        self.change(state);
    }

    fn change(&self, state: MutexGuard<'_, State>) {
        // First the epoch, then the bits, which publish it: see `Category::sessions`.
        self.epoch.fetch_add(1, Ordering::Relaxed);
        state.categories.iter().for_each(|category| state.choose(category));
    }
}

fn is(session: &Option<Session>, id: u64) -> bool {
    session.as_ref().is_some_and(|session| session.id == id)
}

impl State {
    /// Tells a category who wants it.
    fn choose(&self, category: &Category) {
        let wanting = self.sessions.iter().enumerate().filter(|(_, session)| {
            let wants =
                |session: &Session| session.is_active && filter::is_enabled(&session.config, category);
            session.as_ref().is_some_and(wants)
        });
        category.set_sessions(wanting.fold(0, |sessions, (place, _)| sessions | 1 << place));
    }
}
