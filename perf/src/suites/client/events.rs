//! The loops that are timed, and the threads that run them. The rival has the same loops under the
//! same names.

use crate::measure::{Lap, Options, cpu_time};
use std::cell::Cell;
use std::fmt::Debug;
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id};
use tracing_subscriber::layer::{Context, Layer, SubscriberExt as _};
use tracing_subscriber::registry;
use watershed_client::track_event::{Category, SliceGuard};
use watershed_client::{clock, instant, slice};

pub(super) static ON: Category = Category::new("on");
static OFF: Category = Category::new("off");

/// The category that sessions record.
pub(super) const RECORDED: &str = "on";

/// What a loop does each time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Kind {
    /// An instant event with a static name.
    Instant,
    /// The begin of a slice with an integer and a string, and its end.
    Slice,
    /// An instant event of a category that the session does not want.
    Disabled,
    /// Nothing.
    Empty,
    /// A span of `tracing` with the same fields, which is entered and left, through the layer.
    Span,
    /// The same with a layer that does nothing.
    EmptySpan,
    /// The same with a layer that writes a slice where a span is entered and left, and keeps
    /// nothing of it: the least that a layer can do.
    BareSpan,
    /// Reads the system's clock, of which the time of events is made. Most of them read the
    /// processor's counter instead, for which the client has no public function.
    Clock,
}

/// How often, on each thread.
#[derive(Clone, Copy, Debug)]
pub(super) struct Counts {
    /// Untimed, before.
    pub(super) warm: u64,
    /// Timed.
    pub(super) each: u64,
}

impl Counts {
    /// So many times fewer.
    pub(super) fn fewer(self, times: u64) -> Self {
        Self { warm: self.warm / times, each: self.each / times }
    }

    /// Events that the trace of such a lap should have, slices as one.
    pub(super) fn written(self, kind: Kind, threads: u64) -> u64 {
        let is_recorded = kind == Kind::Instant || kind.has_ends();
        if is_recorded { threads * (self.warm + self.each) } else { 0 }
    }
}

impl Kind {
    /// What the rival is told.
    pub(super) fn name(self) -> &'static str {
        match self {
            Kind::Instant => "instant",
            Kind::Slice => "slice",
            Kind::Disabled => "disabled",
            Kind::Empty => "empty",
            Kind::Span => "span",
            Kind::EmptySpan => "empty_span",
            Kind::BareSpan => "bare_span",
            Kind::Clock => "clock",
        }
    }

    /// A lap of some milliseconds, so that many of them are over before the system lets another
    /// program run. The ring holds it all, and those that warm up fill the shared memory once.
    pub(super) fn counts(self, threads: u64, options: &Options) -> Counts {
        let (warm, all) = match self {
            Kind::Instant => (100_000, 300_000),
            Kind::Slice | Kind::Span | Kind::EmptySpan | Kind::BareSpan => (30_000, 120_000),
            Kind::Disabled | Kind::Empty => (100_000, 5_000_000),
            Kind::Clock => (10_000, 300_000),
        };
        Counts { warm: options.size(warm, 100) / threads, each: options.size(all, 1000) / threads }
    }

    /// Whether its events are begins, each with an end.
    pub(super) fn has_ends(self) -> bool {
        matches!(self, Kind::Slice | Kind::Span | Kind::BareSpan)
    }

    /// Events that the trace of such a lap should have, slices as one.
    pub(super) fn written(self, threads: u64, options: &Options) -> u64 {
        self.counts(threads, options).written(self, threads)
    }

    /// Does it so often.
    pub(super) fn run(self, count: u64) {
        match self {
            Kind::Instant => instants(count),
            Kind::Slice => (0..count).for_each(|i| drop(slice!(ON, "slice", number = i, text = TEXT))),
            Kind::Disabled => (0..count).for_each(|i| {
                instant!(OFF, "instant", number = i);
                black_box(i);
            }),
            Kind::Empty => (0..count).for_each(|i| {
                black_box(i);
            }),
            Kind::Span => spans(count, registry().with(watershed_client::layer())),
            Kind::EmptySpan => spans(count, registry().with(Nothing)),
            Kind::BareSpan => spans(count, registry().with(Bare)),
            Kind::Clock => (0..count).for_each(|_| {
                black_box(clock::boottime_ns());
            }),
        }
    }
}

/// So many instant events.
#[inline]
pub(super) fn instants(count: u64) {
    (0..count).for_each(|_| instant!(ON, "instant"));
}

/// A layer that does nothing.
struct Nothing;

impl<S: tracing::Subscriber> Layer<S> for Nothing {}

/// A layer for spans that do not nest, whose text is always the same.
struct Bare;

const TEXT: &str = "a string of twenty b";

thread_local! {
    static NUMBER: Cell<u64> = const { Cell::new(0) };
    static ENTERED: Cell<Option<SliceGuard>> = const { Cell::new(None) };
}

impl<S: tracing::Subscriber> Layer<S> for Bare {
    fn on_new_span(&self, attributes: &Attributes<'_>, _: &Id, _: Context<'_, S>) {
        attributes.record(&mut Number);
    }

    fn on_enter(&self, _: &Id, _: Context<'_, S>) {
        ENTERED.set(Some(slice!(ON, "slice", number = NUMBER.get(), text = TEXT)));
    }

    fn on_exit(&self, _: &Id, _: Context<'_, S>) {
        drop(ENTERED.take());
    }
}

struct Number;

impl Visit for Number {
    fn record_u64(&mut self, _: &Field, number: u64) {
        NUMBER.set(number);
    }

    fn record_debug(&mut self, _: &Field, _: &dyn Debug) {}
}

fn spans(count: u64, subscriber: impl tracing::Subscriber + Send + Sync) {
    tracing::subscriber::with_default(subscriber, || {
        for i in 0..count {
            let text = TEXT;
            tracing::info_span!(target: "on", "slice", number = i, text).in_scope(|| ());
        }
    });
}

/// The lap of all threads.
#[derive(Clone, Copy, Debug)]
pub(super) struct Race {
    /// Its time is the mean of the threads' own, so that one which the system stops for a moment
    /// does not count for all; its units are those of all threads.
    pub(super) lap: Lap,
    /// CPU time of one of the units, in nanoseconds.
    pub(super) cpu_ns: f64,
}

/// Runs the loop on so many threads, which have ended when this returns.
pub(super) fn race(kind: Kind, threads: u64, counts: Counts) -> Race {
    let ready = AtomicU64::new(0);
    let run = || {
        kind.run(counts.warm);
        // Nothing is published by it: the threads only wait for each other.
        ready.fetch_add(1, Ordering::Relaxed);
        while ready.load(Ordering::Relaxed) < threads {
            std::thread::yield_now();
        }
        let (cpu, start) = (cpu_time(), Instant::now());
        kind.run(counts.each);
        (start.elapsed(), cpu_time() - cpu)
    };
    let times: Vec<(Duration, Duration)> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(run)).collect();
        threads.into_iter().map(|thread| thread.join().expect("a loop that ends")).collect()
    });
    let wall: Duration = times.iter().map(|time| time.0).sum();
    let cpu: Duration = times.iter().map(|time| time.1).sum();
    let units = threads * counts.each;
    let elapsed = wall / threads as u32;
    Race { lap: Lap { elapsed, units }, cpu_ns: cpu.as_nanos() as f64 / units as f64 }
}
