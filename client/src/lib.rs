//! What traced programs link: arbiter, TraceWriter, data sources, in-process backend, connection
//! to a daemon; and what consumers of a tracing service link.
#![deny(unsafe_code)]

pub mod arbiter;
pub mod clock;
pub mod consumer;
pub mod data_source;
pub mod endpoint;
pub mod in_process;
mod init;
#[cfg(feature = "tracing")]
mod layer;
pub mod producer;
pub mod remote;
mod sync;
pub mod track_event;
pub mod triggers;
pub mod writer;

pub use arbiter::{Arbiter, ArbiterOptions, ArbiterStats, ExhaustedPolicy, Waker};
pub use data_source::{
    Context, DataSource, DataSourceFactory, DescriptorChanged, PollRequest, Stop, Wake, WriterSource,
};
pub use endpoint::{Done, Endpoint};
pub use init::{InitError, Tracing, init};
#[cfg(feature = "tracing")]
pub use layer::{TrackEventLayer, layer};
// What configs and packets are made of, so that a program needs no second dependency.
pub use watershed_wire::{Decode, DecodeError, Encode, protos, reader};
pub use writer::{MessageWriter, TraceWriter};
