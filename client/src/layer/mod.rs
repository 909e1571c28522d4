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

mod site;
mod values;

use std::cell::RefCell;
use std::marker::PhantomData;

use site::{Site, category_of_log};
use tracing_core::span::{Attributes, Id, Record};
use tracing_core::subscriber::Interest;
use tracing_core::{Event, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};
use tracing_subscriber::registry::LookupSpan;
use values::{Args, LogTarget, Message, Recorded};

use crate::sync::{AtomicU64, Ordering};
use crate::track_event::{Category, EventWriter, begin_slice, end_slice, flow_id, write_instant};

/// See [`layer`].
#[derive(Clone, Copy, Debug, Default)]
pub struct TrackEventLayer {
    not_public: PhantomData<()>,
}

/// The layer that writes spans and events of `tracing` as track events. It records nothing by
/// itself: [`crate::track_event::data_source`] must be registered with a producer, and a session
/// has to ask for it. [`crate::init()`] does all of that.
#[must_use]
pub fn layer() -> TrackEventLayer {
    TrackEventLayer::default()
}

/// What the layer keeps of a span.
struct Span {
    fields: Recorded,
    flow_id: u64,
}

/// Times that any span has recorded fields after its begin: most never do, and then nothing has to
/// be looked up at the end of a slice. Relaxed: a thread counts its own before it looks.
static NUM_RECORDS: AtomicU64 = AtomicU64::new(0);

/// A slice that this thread has begun and not ended.
struct Entered {
    span_id: u64,
    /// `None`: nobody wanted it.
    site: Option<&'static Site>,
    /// Bytes of fields that it has begun with, and [`NUM_RECORDS`] then.
    written_bytes: usize,
    num_records: u64,
}

thread_local! {
    static ENTERED: RefCell<Vec<Entered>> = const { RefCell::new(Vec::new()) };
}

/// Takes what this thread has entered last of the span.
fn take_entered(id: &Id) -> Option<Entered> {
    let take = |entered: &RefCell<Vec<Entered>>| {
        let mut entered = entered.try_borrow_mut().ok()?;
        // The last one, unless guards were dropped in another order.
        let index = entered.iter().rposition(|entered| entered.span_id == id.into_u64())?;
        Some(entered.remove(index))
    };
    ENTERED.try_with(take).ok().flatten()
}

impl<S> Layer<S> for TrackEventLayer
where
    S: Subscriber + for<'a> LookupSpan<'a>,
{
    /// Other layers choose for themselves; what no session wants costs a load in this one.
    fn register_callsite(&self, metadata: &'static Metadata<'static>) -> Interest {
        Site::of(metadata);
        Interest::always()
    }

    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id).filter(|span| Site::of(span.metadata()).is_enabled()) else {
            return;
        };
        let mut fields = Recorded::default();
        attributes.record(&mut fields);
        span.extensions_mut().insert(Span { fields, flow_id: next_flow_id() });
    }

    fn on_record(&self, id: &Id, values: &Record<'_>, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        if let Some(span) = span.extensions_mut().get_mut::<Span>() {
            values.record(&mut span.fields);
            NUM_RECORDS.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn on_enter(&self, id: &Id, context: Context<'_, S>) {
        let Some(span) = context.span(id) else { return };
        let site = Some(Site::of(span.metadata())).filter(|site| site.is_enabled());
        let num_records = NUM_RECORDS.load(Ordering::Relaxed);
        let mut written_bytes = 0;
        match (site, span.extensions().get::<Span>()) {
            (None, _) => {}
            // It is older than the session: its fields are gone.
            (Some(site), None) => begin_slice(site.category(), site.name(), None, None),
            (Some(site), Some(span)) => {
                written_bytes = span.fields.size_bytes();
                let fill = |event: &mut EventWriter<'_>| {
                    span.fields.write(0, site, event);
                    event.flow(span.flow_id);
                };
                begin_slice(site.category(), site.name(), None, Some(&fill));
            }
        }
        let entered = Entered { span_id: id.into_u64(), site, written_bytes, num_records };
        let _ = ENTERED.try_with(|all| all.try_borrow_mut().map(|mut all| all.push(entered)));
    }

    fn on_exit(&self, id: &Id, context: Context<'_, S>) {
        let Some(Entered { site: Some(site), written_bytes, num_records, .. }) = take_entered(id) else {
            return;
        };
        let has_recorded = num_records != NUM_RECORDS.load(Ordering::Relaxed);
        let span = if has_recorded { context.span(id) } else { None };
        let extensions = span.as_ref().map(|span| span.extensions());
        let late = extensions.as_ref().and_then(|extensions| extensions.get::<Span>());
        match late.filter(|span| written_bytes < span.fields.size_bytes()) {
            Some(span) => {
                let fill = |event: &mut EventWriter<'_>| span.fields.write(written_bytes, site, event);
                end_slice(site.category(), None, Some(&fill));
            }
            None => end_slice(site.category(), None, None),
        }
    }

    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let site = Site::of(event.metadata());
        let category = if site.is_log() { log_category(event, site) } else { site.category() };
        if !category.is_enabled() {
            return;
        }
        let fill = |writer: &mut EventWriter<'_>| event.record(&mut Args { site, event: writer });
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

fn next_flow_id() -> u64 {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    flow_id(NEXT.fetch_add(1, Ordering::Relaxed))
}
