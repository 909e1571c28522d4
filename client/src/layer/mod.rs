//! Spans and events of the `tracing` crate as track events.
//!
//! ```no_run
//! use tracing_subscriber::layer::SubscriberExt as _;
//!
//! let subscriber = tracing_subscriber::registry().with(watershed_client::layer());
//! tracing::subscriber::set_global_default(subscriber).unwrap();
//! ```
//!
//! | `tracing` | trace |
//! |---|---|
//! | span, each time that it is entered | slice of the thread that enters it, with its fields |
//! | a span that is entered again, by another thread or poll | the next slice of one flow |
//! | field that is recorded while the span is entered | argument of the slice's end |
//! | event | instant event, called what its message says, else as the event is called |
//! | target | category |
//! | level | tag of the category: `error`, `warn`, `info`, `debug`, `trace` |
//!
//! As with all categories, those with the tag `debug` are off unless a session asks for them
//! (`enabled_tags: "debug"`); events of the level `trace` have that tag, too. Programs that log
//! with the `log` crate install `tracing-log`'s `LogTracer`: then what they log are events with its
//! target.
//!
//! Each target of a level and each place in the program is kept for ever, once it was reached.

mod entered;
mod site;
mod spans;
mod values;

use std::cell::Cell;

use entered::Entered;
use site::{Site, category_of_log};
use spans::{NO_LAYER, Place};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::{LookupSpan, SpanRef};
use values::{Each, LogTarget, Message, OfEvent, OfNewSpan, OfSpan};

use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::track_event::{
    Category, EncodedArgs, EventWriter, begin_slice, begin_stored, end_slice, flow_id, write_instant,
};

/// See [`layer`].
#[derive(Clone, Copy, Debug, Default)]
pub struct TrackEventLayer {
    /// Apart from the layers of other registries, whose spans have the same ids.
    number: u32,
}

/// The layer that writes spans and events of `tracing` as track events. It records nothing by
/// itself: [`crate::track_event::data_source`] must be registered with a producer, and a session
/// has to ask for it. [`crate::init()`] does all of that.
#[must_use]
pub fn layer() -> TrackEventLayer {
    TrackEventLayer { number: NO_LAYER }
}

/// What the registry's extensions have of a span that has no place in the table; and of one that
/// has, what was recorded after it was made.
struct Extension {
    fields: Box<EncodedArgs>,
    flow_id: Option<u64>,
}

impl<S> Layer<S> for TrackEventLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    fn on_layer(&mut self, _: &mut S) {
        static LAST: AtomicU32 = AtomicU32::new(NO_LAYER);
        // Relaxed: the number is all there is to it.
        self.number = LAST.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
    }

    /// Other layers choose for themselves; what no session wants costs a load in this one.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        Site::of(metadata);
        Interest::always()
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let site = Site::of(attributes.metadata());
        if !site.is_enabled() {
            return;
        }
        let taken = spans::take(self.number, id.into_u64());
        let words: &[AtomicU64] = taken.as_ref().map_or(&[], |taken| taken.fields());
        let mut fields = OfNewSpan::new(site, words);
        attributes.record(&mut fields);
        let flow_id = next_flow_id();
        match (taken, fields.finish()) {
            (Some(taken), Ok(words)) => taken.give(id.into_u64(), site, flow_id, words),
            (_, fields) => keep_elsewhere(fields.err().unwrap_or_default(), flow_id, context.span(id)),
        }
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let place = spans::find(self.number, id.into_u64());
        let site = Site::of(span.metadata());
        // Before the extensions are locked: a value's `Debug` may trace.
        let mut fields = Box::<EncodedArgs>::default();
        values.record(&mut Each(OfSpan { site, args: &mut fields }));
        let mut extensions = span.extensions_mut();
        match extensions.get_mut::<Extension>() {
            Some(extension) => extension.fields.append(&fields),
            None if place.is_some() => extensions.insert(Extension { fields, flow_id: None }),
            // Nobody wanted it when it was made.
            None => return,
        }
        if let Some(place) = place {
            place.set_recorded();
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let span_id = id.into_u64();
        let place = spans::find(self.number, span_id);
        let entered = match place.and_then(Place::known) {
            Some((site, place)) => Some(begin_kept(span_id, site, place)),
            None => context.span(id).map(|span| begin_in(&span, place)),
        };
        if let Some(entered) = entered {
            entered::push(entered);
        }
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let Some(Entered { site: Some(site), place, recorded_bytes, .. }) = entered::take(id.into_u64())
        else {
            return;
        };
        if place.is_some_and(|place| !place.is_recorded()) {
            end_slice(site.category(), None, None);
        } else if let Some(span) = context.span(id) {
            end_in(&span, site, recorded_bytes);
        }
    }

    fn on_close(&self, id: Id, _: Context<'_, S>) {
        if let Some(place) = spans::find(self.number, id.into_u64()) {
            place.close();
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let site = Site::of(event.metadata());
        let category = if site.is_log() { log_category(event, site) } else { site.category() };
        if !category.is_enabled() {
            return;
        }
        let fill = |writer: &mut EventWriter<'_>| event.record(&mut Each(OfEvent { site, event: writer }));
        let mut message = Message::default();
        event.record(&mut message);
        match message.0.as_deref() {
            Some(text) => write_instant(category, text, None, Some(&fill)),
            None => write_instant(category, site.name(), None, Some(&fill)),
        }
    }
}

fn log_category(event: &Event<'_>, site: &'static Site) -> &'static Category {
    let mut target = LogTarget::default();
    event.record(&mut target);
    match target.0 {
        Some(target) => category_of_log(&target, *event.metadata().level()),
        None => site.category(),
    }
}

/// Keeps a span that has no place.
#[cold]
fn keep_elsewhere<'a, R: LookupSpan<'a>>(
    fields: Box<EncodedArgs>,
    flow_id: u64,
    span: Option<SpanRef<'a, R>>,
) {
    if let Some(span) = span {
        span.extensions_mut().insert(Extension { fields, flow_id: Some(flow_id) });
    }
}

/// Begins the slice of a span all of whose fields are in its place.
#[inline]
fn begin_kept(span_id: u64, site: &'static Site, place: &'static Place) -> Entered {
    let is_enabled = site.is_enabled();
    if is_enabled {
        begin_stored(site.slices(), place.flow_id(), place.fields());
    }
    Entered { span_id, site: is_enabled.then_some(site), place: Some(place), recorded_bytes: 0 }
}

/// Begins the slice of a span with what is in its place and in its extensions: of one that is older
/// than the session, that is nothing.
#[inline(never)]
fn begin_in<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>, place: Option<&'static Place>) -> Entered {
    let (span_id, site, extensions) = (span.id().into_u64(), Site::of(span.metadata()), span.extensions());
    let extension = extensions.get::<Extension>();
    let recorded_bytes = extension.map_or(0, |extension| extension.fields.size_bytes());
    if !site.is_enabled() {
        return Entered { span_id, site: None, place, recorded_bytes };
    }
    let fill = |event: &mut EventWriter<'_>| {
        if let Some(place) = place {
            event.stored_args(site.slices(), place.fields());
            event.flow(place.flow_id());
        }
        if let Some(Extension { fields, flow_id }) = extension {
            event.encoded_args(site.slices(), fields.size_bytes(), fields.words());
            flow_id.map(|flow_id| event.flow(flow_id));
        }
    };
    begin_slice(site.category(), site.name(), None, Some(&fill));
    Entered { span_id, site: Some(site), place, recorded_bytes }
}

/// Ends the slice of a span with the fields that its extensions have got since it was entered.
#[inline(never)]
fn end_in<'a, R: LookupSpan<'a>>(span: &SpanRef<'a, R>, site: &'static Site, recorded_bytes: usize) {
    let extensions = span.extensions();
    let extension = extensions.get::<Extension>();
    match extension.filter(|extension| extension.fields.size_bytes() > recorded_bytes) {
        None => end_slice(site.category(), None, None),
        Some(Extension { fields, .. }) => {
            let len = fields.size_bytes() - recorded_bytes;
            let fill = |event: &mut EventWriter<'_>| {
                event.encoded_args(site.slices(), len, fields.words_from(recorded_bytes));
            };
            end_slice(site.category(), None, Some(&fill));
        }
    }
}

thread_local! {
    /// The next flow, and how many are left of the thread's.
    static NEXT_FLOW: Cell<(u64, u32)> = const { Cell::new((0, 0)) };
}

/// A number that no other span has: the next one of those that the thread has taken.
#[inline]
fn next_flow_id() -> u64 {
    let (next, left) = match NEXT_FLOW.get() {
        (_, 0) => take_flow_ids(),
        next => next,
    };
    NEXT_FLOW.set((next.wrapping_add(1), left - 1));
    next
}

#[cold]
fn take_flow_ids() -> (u64, u32) {
    static TAKEN: AtomicU64 = AtomicU64::new(0);
    // Relaxed: the number is all there is to it. Programs that give numbers to flows of their own
    // count from below.
    (flow_id(!TAKEN.fetch_add(1, Ordering::Relaxed)), 1 << 16)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;
    use crate::in_process::{InProcess, InProcessOptions, Sink};

    /// Data sources of a config: `track_event`.
    const CONFIG: &[u8] = b"\x0a\x02\x08\x40\x12\x0f\x0a\x0d\x0a\x0btrack_event";

    #[test]
    fn a_span_has_a_place_until_it_is_closed() {
        let backend = InProcess::new(InProcessOptions::default()).unwrap();
        backend.register(crate::track_event::data_source());
        let session = backend.start_session(CONFIG, Sink::Buffers).unwrap();
        assert!(session.wait_all_started(Duration::from_secs(300)));
        let subscriber = tracing_subscriber::registry().with(layer());
        let number = subscriber.downcast_ref::<TrackEventLayer>().unwrap().number;
        assert!(number != NO_LAYER && layer().number == NO_LAYER);
        tracing::subscriber::with_default(subscriber, || {
            let span = tracing::info_span!("short", number = 1);
            let span_id = span.id().unwrap().into_u64();
            assert!(spans::find(number, span_id).is_some());
            drop(span);
            assert!(spans::find(number, span_id).is_none());
        });
    }
}
