//! Messages: protobuf schema, configs, packet framing, trace reading; no I/O.
//!
//! | module | what it answers |
//! |---|---|
//! | [`protos`] | the messages as structs |
//! | [`schema`] | the messages as descriptors: names, numbers, types at run time |
//! | [`config`] | what is to be recorded: text or binary, kept byte for byte |
//! | [`framing`] | how packets follow each other in a file, and frames on a socket |
//! | [`ipc`] | calls and replies in such frames, for both ends of a connection |
//! | [`reader`] | a trace file as a stream of packets, with the offset of any damage |
//! | [`packet`] | what a packet is, when and whose, without decoding what it holds |
//! | [`raw`] | the fields of any message as they lie in its bytes |
#![forbid(unsafe_code)]

pub mod config;
pub mod framing;
pub mod ipc;
pub mod packet;
pub mod raw;
pub mod reader;
pub mod schema;

/// The messages of package `perfetto.protos`, as `prost` structs.
///
/// A struct drops the fields that the schema does not have, and those whose messages are opaque
/// (`proto/opaque.proto`). Where bytes must survive (configs, descriptors), keep the bytes and read
/// the struct: see [`config`].
#[expect(
    missing_docs,
    clippy::all,
    reason = "generated from proto/; the format's own documentation says what a field means"
)]
#[path = "generated/protos.rs"]
pub mod protos;
