//! Trace filters: what of each packet may get into a trace. Source of the formats: spec, service
//! 6.8.
//!
//! ```text
//!   TraceFilter.bytecode, _v2 --> Program --+       a packet's fields
//!   .bytecode_overlay_v54 ------^           |              |
//!                                           +--> TraceFilter::packet --> those that are allowed,
//!   .string_filter_chain, _v54 --> Strings -+                            strings with parts redacted
//! ```
//!
//! A filter is there so that something does not get into a trace: whatever is wrong with a program
//! refuses the session, and a packet that cannot be looked through becomes an empty one.

mod copier;
mod error;
mod program;
mod strings;
#[cfg(test)]
mod tests;
mod timing;
#[cfg(test)]
mod twin;

use std::sync::atomic::{AtomicU64, Ordering};

use watershed_wire::protos;

use copier::Copier;
pub use error::FilterError;
use program::{FieldRule, Program};
use strings::Strings;
pub(crate) use timing::FilterClock;
use timing::FilterTime;

/// Messages in messages that are looked into; readers of protobuf stop there too.
const DEPTH_MAX: usize = 100;

/// A filter of a session.
#[derive(Clone, Debug)]
pub(crate) struct TraceFilter {
    program: Program,
    strings: Strings,
    /// What the service appends to packets stays as it is.
    keeps_stamps: bool,
}

/// Fields of packets that the service appends, all of them numbers.
const STAMPED: [u32; 5] = [3, 10, 42, 79, 98];

/// A packet that is no message all the way down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Unreadable;

/// How much of a packet may be told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    /// All of it, as it is.
    Whole,
    /// What the filter has appended.
    Part,
}

impl TraceFilter {
    /// The filter that a config describes.
    pub(crate) fn load(config: &protos::trace_config::TraceFilter) -> Result<TraceFilter, FilterError> {
        let bytecode = match config.bytecode_v2() {
            [] => config.bytecode(),
            bytecode => bytecode,
        };
        let program = Program::load(bytecode, config.bytecode_overlay_v54())?;
        let of_packets = program.message(program.root());
        let keeps_stamps = STAMPED.iter().all(|number| of_packets.rule(*number) == Some(FieldRule::Simple));
        Ok(TraceFilter { program, strings: Strings::load(config)?, keeps_stamps })
    }

    /// Appends what may be told of a packet, if that is not all of it: its slices, and what the
    /// service appends to it ([`STAMPED`]). What it appends is never longer. Appends nothing and
    /// returns an error if it cannot be read.
    fn packet(&self, slices: &[&[u8]], appended: &[u8], out: &mut Vec<u8>) -> Result<Kept, Unreadable> {
        let begin = out.len();
        let whole;
        let packet = match slices {
            [slice] => slice,
            slices => {
                whole = slices.concat();
                &whole[..]
            }
        };
        let copy = |part, out: &mut Vec<u8>| {
            Copier::copy(&self.program, &self.strings, part, self.program.root(), out)
        };
        let kept = copy(packet, out);
        if kept == Ok(Kept::Whole) {
            if self.keeps_stamps || appended.is_empty() {
                return kept;
            }
            out.extend_from_slice(packet);
        }
        let kept_of_appended = match self.keeps_stamps {
            true => Ok(Kept::Whole),
            false => kept.and_then(|_| copy(appended, out)),
        };
        if kept_of_appended == Ok(Kept::Whole) {
            out.extend_from_slice(appended);
        }
        let result = kept.and(kept_of_appended).map(|_| Kept::Part);
        if result.is_err() {
            out.truncate(begin);
        }
        result
    }
}

/// A varint that fills its place, as filtered messages have their size: it is known only behind
/// them, and at most as long as that of the message that came in.
pub(crate) fn put_padded_varint(place: &mut [u8], mut value: usize) {
    let last = place.len() - 1;
    for byte in &mut place[..last] {
        *byte = value as u8 | 0x80;
        value >>= 7;
    }
    place[last] = value as u8;
}

/// What a filter did, as the statistics of a trace tell it. Threads that read several shards count
/// together: relaxed, for it publishes nothing and is read when they have stopped.
#[derive(Debug, Default)]
struct FilterCounters {
    input_packets: AtomicU64,
    input_bytes: AtomicU64,
    /// What did not come out. Of most packets that is nothing, and then nothing is added, nor to
    /// the errors.
    discarded_bytes: AtomicU64,
    errors: AtomicU64,
}

/// A filter at work, with what it counts.
#[derive(Debug)]
pub(crate) struct Filtering {
    filter: Option<TraceFilter>,
    counters: FilterCounters,
    time: FilterTime,
    /// What did not get into the trace, by buffer: relaxed as the counters.
    discarded_bytes_by_buffer: Vec<AtomicU64>,
}

impl Filtering {
    /// `None`: everything may be told.
    pub(crate) fn new(
        filter: Option<TraceFilter>,
        num_buffers: usize,
        clock: Option<FilterClock>,
    ) -> Filtering {
        let num_buffers = if filter.is_some() { num_buffers } else { 0 };
        let discarded_bytes_by_buffer = (0..num_buffers).map(|_| AtomicU64::new(0)).collect();
        let time = FilterTime::new(clock);
        Filtering { filter, counters: FilterCounters::default(), time, discarded_bytes_by_buffer }
    }

    /// The same filter for another session, which has filtered nothing.
    pub(crate) fn afresh(&self) -> Filtering {
        Filtering::new(self.filter.clone(), self.discarded_bytes_by_buffer.len(), self.time.clock)
    }

    pub(crate) fn is_on(&self) -> bool {
        self.filter.is_some()
    }

    /// Appends what may be told of a packet, if that is not all of it: nothing if it cannot be
    /// read. All of it without a filter.
    #[inline]
    pub(crate) fn packet(&self, slices: &[&[u8]], appended: &[u8], out: &mut Vec<u8>) -> Kept {
        let Some(filter) = &self.filter else { return Kept::Whole };
        let count = |counter: &AtomicU64, by: usize| counter.fetch_add(by as u64, Ordering::Relaxed);
        let timed = self.time.begin(count(&self.counters.input_packets, 1));
        let begin = out.len();
        let kept = filter.packet(slices, appended, out);
        self.time.end(timed);
        let input_bytes = slices.iter().map(|slice| slice.len()).sum::<usize>() + appended.len();
        count(&self.counters.input_bytes, input_bytes);
        if kept != Ok(Kept::Whole) {
            count(&self.counters.discarded_bytes, input_bytes - (out.len() - begin));
            count(&self.counters.errors, usize::from(kept.is_err()));
        }
        kept.unwrap_or(Kept::Part)
    }

    /// Bytes that went in and did not come out so far.
    pub(crate) fn discarded_bytes(&self) -> u64 {
        self.counters.discarded_bytes.load(Ordering::Relaxed)
    }

    /// So much of that was of one buffer.
    pub(crate) fn note_discarded(&self, buffer_index: usize, bytes: u64) {
        if let Some(discarded) = self.discarded_bytes_by_buffer.get(buffer_index) {
            discarded.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// `None` without a filter.
    pub(crate) fn stats(&self) -> Option<protos::trace_stats::FilterStats> {
        let value = |counter: &AtomicU64| Some(counter.load(Ordering::Relaxed));
        self.is_on().then(|| protos::trace_stats::FilterStats {
            input_packets: value(&self.counters.input_packets),
            input_bytes: value(&self.counters.input_bytes),
            output_bytes: value(&self.counters.input_bytes)
                .map(|bytes| bytes.saturating_sub(self.discarded_bytes())),
            errors: value(&self.counters.errors),
            time_taken_ns: self.time.of_all_ns(self.counters.input_packets.load(Ordering::Relaxed)),
            bytes_discarded_per_buffer: self.discarded_bytes_by_buffer.iter().filter_map(value).collect(),
        })
    }
}
