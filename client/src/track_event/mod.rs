//! Track events: slices, instants, counters and flows of a program, as the data source
//! `track_event`.
//!
//! ```
//! use watershed_client::track_event::{Category, Counter};
//! use watershed_client::{counter, instant, slice};
//!
//! static NET: Category = Category::new("net");
//! static QUEUE: Counter = Counter::new("queue length");
//!
//! fn handle(request: u64, waiting: usize) {
//!     let _slice = slice!(NET, "handle request", request);
//!     counter!(NET, QUEUE, waiting);
//!     instant!(NET, "decoded", bytes = 12, peer = "localhost");
//! }
//! # handle(1, 2);
//! ```
//!
//! A session records them that asks for `track_event`, of a backend or a daemon where the program
//! has registered [`data_source`]. While no session wants a category, an event of it is one relaxed
//! load and a branch.
//!
//! ```text
//!   Category         one bit for each session that wants it
//!      |  not zero
//!      v
//!   thread           of each session a sequence of this thread's own:
//!      |                 TraceWriter, what was interned so far, time of the last event
//!      v
//!   packet           event, time since the last one, and what is named for the first time
//! ```
//!
//! Each sequence begins with descriptors of process and thread, its clock and its defaults. It
//! begins anew after a loss, and when the session clears incremental state; so every event that
//! survives can be read. A slice whose begin was lost gets no end, and an end that was lost is
//! written with the next event: slices of a thread nest in every trace.
//!
//! Format: `TrackEvent`, `InternedData`, `TracePacketDefaults` and `ClockSnapshot` of Perfetto's
//! schema. Not honoured of `TrackEventConfig`: `enable_thread_time_sampling` and
//! `thread_time_subsampling_ns`.

mod annotation;
mod args;
mod category;
#[cfg(feature = "tracing")]
mod encoded;
mod event;
mod filter;
mod heads;
mod macros;
mod message;
mod names;
mod prefix;
mod process;
mod registry;
mod sequence;
mod source;
#[cfg(feature = "tracing")]
mod stored;
mod thread;
mod tracks;

pub use args::{ArgValue, ArgWriter, DebugValue, DisplayValue, debug, display};
pub use category::Category;
#[cfg(feature = "tracing")]
pub(crate) use encoded::{EncodedArgs, SliceSite};
pub use event::EventWriter;
pub use names::{ArgName, EventName};
pub use process::flow_id;
pub use source::{NAME, data_source, register_categories};
#[cfg(feature = "tracing")]
pub(crate) use stored::{ArgStore, StoredArgs};
#[cfg(feature = "tracing")]
pub(crate) use thread::begin_stored;
pub use thread::{EventNameRef, IntoName, SliceGuard, begin_slice, count_value, end_slice, write_instant};
pub use tracks::{Counter, CounterValue, Track, Unit};
