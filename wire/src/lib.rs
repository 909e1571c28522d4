//! Messages: protobuf schema, configs, packet framing, trace reading; no I/O.
//!
//! | module | what it answers |
//! |---|---|
//! | [`protos`] | the messages as structs |
//! | [`Encode`], [`Decode`] | the structs to bytes and back |
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

pub use watershed_protos::{Decode, DecodeError, Encode, protos};
