//! From a place in the program to the sequences of its thread.

use std::cell::RefCell;
use std::marker::PhantomData;

use super::category::Category;
#[cfg(feature = "tracing")]
use super::encoded::SliceSite;
use super::event::{Composer, Event, Fill, Kind, Name};
use super::names::EventName;
use super::registry::{REGISTRY, SESSIONS_MAX};
use super::sequence::Sequence;
#[cfg(feature = "tracing")]
use super::stored::StoredArgs;
use super::tracks::{Counter, CounterValue, Described, Track};
use crate::clock::ThreadClock;

thread_local! {
    static THREAD: RefCell<Thread> = const { RefCell::new(Thread::new()) };
}

/// The sequences of one thread, in the places of their sessions.
struct Thread {
    epoch: u64,
    clock: ThreadClock,
    sequences: [Option<Box<Sequence>>; SESSIONS_MAX],
}

impl Thread {
    const fn new() -> Self {
        Self { epoch: 0, clock: ThreadClock::new(), sequences: [const { None }; SESSIONS_MAX] }
    }

    /// Sessions have started, ended or cleared. Those that ended get what is left of theirs.
    #[cold]
    fn update(&mut self) {
        let (epoch, sessions) = REGISTRY.sessions();
        self.epoch = epoch;
        for (sequence, session) in self.sequences.iter_mut().zip(&sessions) {
            let id = session.as_ref().map(|session| session.id);
            if sequence.as_ref().is_some_and(|sequence| Some(sequence.session_id) != id) {
                *sequence = None;
            }
            if let (Some(sequence), Some(session)) = (sequence, session) {
                sequence.update(session);
            }
        }
    }
}

/// The first event of this thread for a session.
#[cold]
fn start(place: usize) -> Option<Box<Sequence>> {
    let (_, sessions) = REGISTRY.sessions();
    sessions[place].as_ref().map(|session| Box::new(Sequence::new(session)))
}

/// Writes an event of the thread, whose name is one of the program, to all sessions that want its
/// category: most events are like that.
fn write_named(kind: Kind, category: &'static Category, name: &EventName, fill: Fill<'_>) {
    write_composed(category, kind, None, |composer| composer.compose_named(kind, category, name, fill));
}

/// Writes any event.
fn write(category: &'static Category, event: &Event<'_>, fill: Fill<'_>) {
    write_composed(category, event.kind, event.track, |composer| composer.compose(category, event, fill));
}

/// Likewise, an event that `compose` makes for each of them.
///
/// Nothing is written on a thread whose locals are gone, nor inside of `compose`: a value whose
/// formatting traces is formatted without it.
#[inline(always)]
fn write_composed(
    category: &'static Category,
    kind: Kind,
    track: Option<&dyn Described>,
    compose: impl Fn(&mut Composer),
) {
    let mut sessions = category.sessions();
    if sessions == 0 {
        return;
    }
    let _ = THREAD.try_with(|thread| {
        let Ok(mut thread) = thread.try_borrow_mut() else { return };
        if thread.epoch != REGISTRY.epoch() {
            thread.update();
        }
        let Thread { clock, sequences, .. } = &mut *thread;
        let mut read = None;
        let mut now = || *read.get_or_insert_with(|| clock.now_ns());
        while sessions != 0 {
            let place = sessions.trailing_zeros() as usize;
            sessions &= sessions - 1;
            if sequences[place].is_none() {
                sequences[place] = start(place);
            }
            // It has ended since.
            let Some(sequence) = &mut sequences[place] else { continue };
            sequence.write(kind, track, &mut now, &compose);
        }
    });
}

/// What an event can be called: by a static of the program, or by a text of this event only, which
/// is written in full each time.
pub trait IntoName<'a> {
    #[doc(hidden)]
    fn into_name(self) -> EventNameRef<'a>;
}

#[doc(hidden)]
#[derive(Clone, Copy, Debug)]
pub struct EventNameRef<'a>(Name<'a>);

impl<'a> IntoName<'a> for &'a EventName {
    #[inline]
    fn into_name(self) -> EventNameRef<'a> {
        EventNameRef(Name::Static(self))
    }
}

impl<'a> IntoName<'a> for &'a str {
    #[inline]
    fn into_name(self) -> EventNameRef<'a> {
        EventNameRef(Name::Dynamic(self))
    }
}

/// Writes an instant event on the calling thread's track, or on `track`. See [`crate::instant!`].
#[inline]
pub fn write_instant<'a>(
    category: &'static Category,
    name: impl IntoName<'a>,
    track: Option<&Track>,
    fill: Fill<'_>,
) {
    match (name.into_name().0, track) {
        (Name::Static(name), None) => write_named(Kind::Instant, category, name, fill),
        (name, track) => write(category, &Event::named(Kind::Instant, name, track), fill),
    }
}

/// Begins a slice on the calling thread's track, or on `track`. Slices of a track must nest. See
/// [`crate::slice!`] and [`crate::begin!`].
#[inline]
pub fn begin_slice<'a>(
    category: &'static Category,
    name: impl IntoName<'a>,
    track: Option<&Track>,
    fill: Fill<'_>,
) {
    match (name.into_name().0, track) {
        (Name::Static(name), None) => write_named(Kind::SliceBegin, category, name, fill),
        (name, track) => write(category, &Event::named(Kind::SliceBegin, name, track), fill),
    }
}

/// Ends the slice that began last on the calling thread's track, or on `track`. `category` must be
/// the one that it began with.
#[inline]
pub fn end_slice(category: &'static Category, track: Option<&Track>, fill: Fill<'_>) {
    if track.is_none() && fill.is_none() {
        end_on_thread(category);
    } else {
        write(category, &Event::named(Kind::SliceEnd, Name::None, track), fill);
    }
}

/// Most ends: all of these events are the same but for their time.
fn end_on_thread(category: &'static Category) {
    write_composed(category, Kind::SliceEnd, None, Composer::compose_end);
}

/// Begins a slice of the calling thread whose arguments are kept.
#[cfg(feature = "tracing")]
#[inline]
pub(crate) fn begin_stored(site: &SliceSite, flow_id: u64, args: StoredArgs<'_>) {
    write_composed(site.category(), Kind::SliceBegin, None, |composer| {
        composer.compose_begin(site, flow_id, args);
    });
}

/// Writes a value of a counter. See [`crate::counter!`].
#[inline]
pub fn count_value(category: &'static Category, counter: &'static Counter, value: CounterValue) {
    let event = Event { kind: Kind::Counter, name: Name::None, track: Some(counter), value: Some(value) };
    write(category, &event, None);
}

/// A slice of the calling thread, which ends when this is dropped.
#[derive(Debug)]
#[must_use = "the slice ends when this is dropped"]
pub struct SliceGuard {
    /// `None`: nobody wanted it when it began.
    category: Option<&'static Category>,
    /// It ends on its own thread.
    not_send: PhantomData<*const ()>,
}

impl SliceGuard {
    #[doc(hidden)]
    #[inline]
    pub fn new(category: Option<&'static Category>) -> Self {
        Self { category, not_send: PhantomData }
    }
}

impl Drop for SliceGuard {
    #[inline]
    fn drop(&mut self) {
        if let Some(category) = self.category {
            end_slice(category, None, None);
        }
    }
}
