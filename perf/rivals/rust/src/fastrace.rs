//! A rival of the suite `client`: spans of `fastrace`, which has no service and no ring. Its own
//! thread collects them, and a reporter of ours counts them.
//!
//! The second number of an answer is that of the lap's spans that were reported. The only kind is
//! `slice`, with the fields of the suite's. fastrace keeps at most 10,240 spans of one root, so a
//! root ends with each thousand.

#![forbid(unsafe_code)]

mod laps;

use fastrace::collector::{Config, Reporter, SpanContext, SpanRecord};
use fastrace::{Span, local::LocalSpan};
use laps::{Events, serve};
use std::error::Error;
use std::sync::atomic::{AtomicU64, Ordering};

const SPANS_PER_ROOT: u64 = 1000;
const SLICE: &str = "slice";

/// Nothing is published by it: it is read after a flush.
static NUM_REPORTED: AtomicU64 = AtomicU64::new(0);

struct Count;

impl Reporter for Count {
    fn report(&mut self, spans: Vec<SpanRecord>) {
        let slices = spans.iter().filter(|span| span.name == SLICE).count();
        NUM_REPORTED.fetch_add(slices as u64, Ordering::Relaxed);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    fastrace::set_reporter(Count, Config::default());
    let slices: Events = |count| {
        for first in (0..count).step_by(SPANS_PER_ROOT as usize) {
            let root = Span::root("root", SpanContext::random());
            let _parent = root.set_local_parent();
            for i in first..count.min(first + SPANS_PER_ROOT) {
                let _slice = LocalSpan::enter_with_local_parent(SLICE)
                    .with_properties(|| [("number", i.to_string().into()), ("text", TEXT)]);
            }
        }
    };
    serve(
        |kind| (kind == SLICE).then_some(slices),
        || {
            fastrace::flush();
            Ok(NUM_REPORTED.swap(0, Ordering::Relaxed))
        },
    )
}

const TEXT: std::borrow::Cow<'static, str> = std::borrow::Cow::Borrowed("a string of twenty b");
