//! A rival of the suite `client`: spans of `tracing` through the layer of `tracing-perfetto`, which
//! has no service and no ring: each span is written at its end, here into memory.
//!
//! `watershed-rival-tracing-perfetto TRACE`: after each lap the trace replaces the file TRACE; the
//! second number of an answer is its bytes. The only kind is `span`, with the fields of the
//! suite's.

#![forbid(unsafe_code)]

mod laps;

use laps::{Events, serve};
use std::error::Error;
use std::io::{self, Write};
use std::sync::{Mutex, PoisonError};
use tracing_perfetto::PerfettoLayer;
use tracing_subscriber::layer::SubscriberExt as _;

static TRACE: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Writes behind the trace.
struct Memory;

impl Write for Memory {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        TRACE.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let path = std::env::args().nth(1).ok_or("usage: watershed-rival-tracing-perfetto TRACE")?;
    let layer = PerfettoLayer::new(|| Memory).with_debug_annotations(true);
    tracing::subscriber::set_global_default(tracing_subscriber::registry().with(layer))?;
    let spans: Events = |count| {
        for number in 0..count {
            let text = "a string of twenty b";
            tracing::info_span!(target: "on", "slice", number, text).in_scope(|| ());
        }
    };
    serve(
        |kind| (kind == "span").then_some(spans),
        || {
            let mut trace = TRACE.lock().unwrap_or_else(PoisonError::into_inner);
            std::fs::write(&path, &*trace)?;
            let bytes = trace.len() as u64;
            trace.clear();
            Ok(bytes)
        },
    )
}
