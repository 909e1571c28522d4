//! What all sessions share: one reader of the kernel's rings, whatever the number of sessions.
//!
//! ```text
//!   session 1 --events--+                  +--> encoder 1 --> writer 1
//!   session 2 --events--+--> union --> ring --> pages
//!                                          +--> encoder 2 --> writer 2
//! ```
//!
//! Events and memory of the ring are the union of what the sessions ask for; each encoder takes
//! what its session asked for. The ring is made for the first session and removed after the last.

use std::collections::BTreeSet;
use std::time::Duration;

use watershed_client::data_source::{PollRequest, Wake};

use super::known::Known;
use super::pass::{self, Pass};
use super::rest::Rest;
use super::ring::{EventName, Ring};
use super::session::{Request, Session};
use super::tracefs::TraceFs;
use super::watch::{Target, Watch};
use crate::clock::boottime_now_ns;
use crate::on_demand::OnDemand;
use crate::{Notices, Roots};

/// How long a pass may take. What is left is read in the next one, at once; the service's commands
/// come in between, above all that a session has ended.
const PASS_MAX_NS: u64 = 100_000_000;
/// How long the last pass of a session may take: a service waits five seconds for its end, if
/// nothing else is said, and there are other sources beside this one.
const LAST_PASS_MAX_NS: u64 = 2_000_000_000;

/// Kernel state and sessions.
#[derive(Debug)]
pub(super) struct Hub {
    roots: Roots,
    pub(super) notices: Notices,
    pub(super) on_demand: OnDemand,
    kernel: Option<Kernel>,
    sessions: Vec<Session>,
    next_id: u64,
    pages: Vec<u8>,
    pass_max_ns: u64,
}

/// What there is while there are sessions. Fields are dropped in this order: the ring cannot be
/// removed while somebody watches its pipes.
#[derive(Debug)]
pub(super) struct Kernel {
    watch: Option<Watch>,
    target: Target,
    own: Option<Ring>,
    top: Option<Ring>,
    buffer_size_kb: u32,
    /// The CPU that is read first, in each ring.
    first: [usize; 2],
    last_pass_ns: u64,
    pub(super) known: Known,
}

/// Which of the kernel's rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Own,
    Top,
}

impl Hub {
    pub(super) fn new(roots: Roots, notices: Notices, on_demand: OnDemand) -> Self {
        Self {
            roots,
            notices,
            on_demand,
            kernel: None,
            sessions: Vec::new(),
            next_id: 1,
            pages: Vec::new(),
            pass_max_ns: PASS_MAX_NS,
        }
    }

    /// Makes a session that records nothing yet. Returns its number.
    pub(super) fn add(&mut self, request: Request<'_>) -> Result<u64, String> {
        if self.kernel.is_none() {
            let tracefs = TraceFs::find(&self.roots).map_err(|error| error.to_string())?;
            self.kernel = Some(Kernel::new(tracefs));
        }
        let id = self.next_id;
        self.next_id += 1;
        let added = self.set_up(id, request);
        if added.is_err() {
            self.remove(id);
        }
        added.map(|()| id)
    }

    fn set_up(&mut self, id: u64, request: Request<'_>) -> Result<(), String> {
        let kernel = self.kernel.as_mut().ok_or("no tracefs")?;
        let mut session = Session::new(id, request, &mut kernel.known, &self.roots, &self.notices)?;
        if !session.events(Which::Own).is_empty() {
            kernel.make_own(&session, &self.roots)?;
        }
        if !session.events(Which::Top).is_empty()
            && let Err(error) = kernel.make_top(&session, &self.roots)
        {
            self.notices.add(super::FTRACE_NAME, format!("ftrace/print is not recorded: {error}"));
            session.refuse_top();
        }
        self.sessions.push(session);
        for event in self.enable_union() {
            self.sessions.last_mut().expect("it was pushed above").refused(&event);
        }
        self.apply_percent();
        Ok(())
    }

    /// Enables what the sessions want together. Returns what the kernel refused.
    fn enable_union(&mut self) -> Vec<EventName> {
        let Some(own) = self.kernel.as_mut().and_then(|kernel| kernel.own.as_mut()) else {
            return Vec::new();
        };
        let all = self.sessions.iter().flat_map(|session| session.events(Which::Own).iter().cloned());
        own.set_events(&all.collect::<BTreeSet<_>>())
    }

    fn apply_percent(&self) {
        let percent = self.sessions.iter().map(|session| session.settings.drain_percent).min();
        if let (Some(kernel), Some(percent)) = (&self.kernel, percent)
            && let Some(own) = &kernel.own
        {
            // Kernels before 5.x have no such file; periods have to do there.
            let _ = own.set_buffer_percent(percent);
        }
    }

    /// Begins to record for a session: from now on, not what others have still to read.
    pub(super) fn start(&mut self, id: u64, poll: PollRequest) -> Wake {
        if self.sessions.iter().any(|session| session.is_started) {
            self.pass(u64::MAX);
        }
        let Some(kernel) = &mut self.kernel else { return Wake::Never };
        let Some(session) = self.sessions.iter_mut().find(|session| session.id == id) else {
            return Wake::Never;
        };
        session.poll = Some(poll);
        session.is_started = true;
        if let Err(error) = kernel.record() {
            self.notices.add(super::FTRACE_NAME, format!("tracing_on: {error}"));
        }
        session.started_with(kernel.ring(Which::Own).or(kernel.ring(Which::Top)));
        self.choose_target();
        self.wake()
    }

    /// A period is over, or a CPU's memory is full enough.
    pub(super) fn poll(&mut self) -> Wake {
        let now_ns = boottime_now_ns();
        let period_ns = u64::from(self.period_ms()) * 1_000_000;
        let is_flushing = self.sessions.iter().any(|session| session.rest.is_some());
        let waits_for_others = self.sessions.len() > 1 && !is_flushing;
        match &self.kernel {
            // Another session's poll has just done it.
            Some(kernel) if waits_for_others && now_ns < kernel.last_pass_ns + period_ns / 8 => self.wake(),
            Some(_) => match self.pass(self.pass_max_ns) {
                true => Wake::After(Duration::ZERO),
                false => self.wake(),
            },
            None => Wake::Never,
        }
    }

    /// Begins to read what there is, for all, and to write the statistics of one. True if that has
    /// been done; else polls go on with it, and `end_flush` says whether they have.
    pub(super) fn flush(&mut self, id: u64) -> bool {
        let rest = self.kernel.as_ref().map(Kernel::rest);
        if let Some(session) = self.sessions.iter_mut().find(|session| session.id == id) {
            session.rest = rest;
        }
        self.pass(self.pass_max_ns);
        self.end_flush(id)
    }

    /// Ends a flush if everything has been read that was there at its begin. True if it has ended.
    pub(super) fn end_flush(&mut self, id: u64) -> bool {
        let Some(session) = self.sessions.iter_mut().find(|session| session.id == id) else { return true };
        if session.rest.as_ref().is_some_and(|rest| !rest.is_empty()) {
            return false;
        }
        session.rest = None;
        write_stats(session, self.kernel.as_ref());
        session.flush();
        true
    }

    /// Ends a session: what it recorded until now is written, as far as there is time. Its
    /// statistics tell what was left in the kernel's memory; on a starved machine no flush has told
    /// them before.
    pub(super) fn stop(&mut self, id: u64) {
        if let ([_], Some(Kernel { own: Some(own), .. })) = (&self.sessions[..], &self.kernel) {
            // A machine that records quicker than it reads would never be done. If it goes on, the
            // pass ends all the same.
            let _ = own.set_on(false);
        }
        self.pass(LAST_PASS_MAX_NS);
        if let Some(session) = self.sessions.iter_mut().find(|session| session.id == id) {
            write_stats(session, self.kernel.as_ref());
            session.flush();
        }
        self.remove(id);
    }

    /// Drops a session, and the kernel's state with the last.
    pub(super) fn remove(&mut self, id: u64) {
        self.sessions.retain(|session| session.id != id);
        if self.sessions.is_empty() {
            self.kernel = None;
            return;
        }
        self.enable_union();
        self.apply_percent();
        self.choose_target();
    }

    /// Everything about threads is to be told anew.
    pub(super) fn forget(&mut self, id: u64) {
        if let Some(session) = self.sessions.iter_mut().find(|session| session.id == id) {
            session.forget();
        }
    }

    fn choose_target(&self) {
        if let Some(kernel) = &self.kernel {
            let target = self.sessions.iter().find_map(|session| session.poll.clone());
            *kernel.target.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = target;
        }
    }

    fn period_ms(&self) -> u32 {
        let started = self.sessions.iter().filter(|session| session.is_started);
        started.map(|session| session.settings.drain_period_ms).min().unwrap_or(u32::MAX)
    }

    fn wake(&self) -> Wake {
        match self.period_ms() {
            u32::MAX => Wake::Never,
            ms => Wake::EveryNext(Duration::from_millis(u64::from(ms))),
        }
    }

    /// Reads what there is, for all sessions, for so long at most. True if some CPU may have more.
    fn pass(&mut self, max_ns: u64) -> bool {
        let Some(kernel) = &mut self.kernel else { return false };
        let end_ns = boottime_now_ns().saturating_add(max_ns);
        let Kernel { own, top, first, buffer_size_kb, .. } = kernel;
        let mut has_more = false;
        for ((which, ring), first) in [(Which::Own, &*own), (Which::Top, &*top)].into_iter().zip(first) {
            let Some(ring) = ring else { continue };
            let Self { pages, sessions, notices, .. } = self;
            let pass = Pass::new((which, ring), *buffer_size_kb, pages, sessions, notices, end_ns);
            has_more |= pass.run(first);
        }
        for session in self.sessions.iter_mut().filter(|session| session.is_started) {
            session.end_of_pass(&self.on_demand);
        }
        kernel.last_pass_ns = boottime_now_ns();
        if let Some(watch) = kernel.watch.as_ref().filter(|_| !has_more) {
            watch.drained();
        }
        has_more
    }
}

fn write_stats(session: &mut Session, kernel: Option<&Kernel>) {
    if let Some(kernel) = kernel {
        let ring = kernel.ring(Which::Own).or(kernel.ring(Which::Top));
        session.write_stats(ring, kernel.known.symbols.as_deref());
    }
}

impl Kernel {
    fn new(tracefs: TraceFs) -> Self {
        Self {
            watch: None,
            target: Target::default(),
            own: None,
            top: None,
            buffer_size_kb: 0,
            first: [0; 2],
            last_pass_ns: 0,
            known: Known::new(tracefs),
        }
    }

    fn ring(&self, which: Which) -> Option<&Ring> {
        match which {
            Which::Own => self.own.as_ref(),
            Which::Top => self.top.as_ref(),
        }
    }

    /// What a flush that begins now has to read.
    fn rest(&self) -> Rest {
        let mut rest = Rest::default();
        for which in [Which::Own, Which::Top] {
            if let Some(ring) = self.ring(which) {
                // One more: the page that the kernel writes to comes on top of a CPU's memory.
                rest.add(which, ring.pipes.len(), pass::pages_max(ring, self.buffer_size_kb) + 1);
            }
        }
        rest
    }

    /// Makes the ring, or enlarges it: a smaller one of an earlier session would not do.
    fn make_own(&mut self, session: &Session, roots: &Roots) -> Result<(), String> {
        let settings = &session.settings;
        let is_new = self.own.is_none();
        if is_new {
            self.own = Some(Ring::create(&self.known.tracefs, roots, settings.mono_raw)?);
        }
        let own = self.own.as_ref().expect("it was made above");
        if settings.buffer_size_kb > self.buffer_size_kb || is_new {
            own.set_buffer_size_kb(settings.buffer_size_kb).map_err(|error| {
                format!("buffer_size_kb {}: the kernel refused it ({error})", settings.buffer_size_kb)
            })?;
            self.buffer_size_kb = settings.buffer_size_kb;
        }
        for (name, on) in &settings.options {
            own.set_option(name, *on).map_err(|error| format!("tracefs_options: {name}: {error}"))?;
        }
        if let Some(mask) = &settings.cpumask {
            own.set_cpumask(mask).map_err(|error| format!("tracing_cpumask: {error}"))?;
        }
        Ok(())
    }

    fn make_top(&mut self, session: &Session, roots: &Roots) -> Result<(), String> {
        if self.top.is_none() {
            self.top = Some(Ring::take_top(&self.known.tracefs, roots, session.settings.mono_raw)?);
            self.buffer_size_kb = self.buffer_size_kb.max(session.settings.buffer_size_kb);
        }
        Ok(())
    }

    /// Lets the rings record, which a ring that was made for a later session does not yet.
    fn record(&mut self) -> std::io::Result<()> {
        if let Some(own) = &self.own {
            own.set_on(true)?;
            if self.watch.is_none() {
                self.watch = Watch::start(own, self.target.clone());
            }
        }
        if let Some(top) = &self.top {
            top.set_on(true)?;
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "flush_tests.rs"]
mod flush_tests;
