//! Messages: protobuf schema, configs, packet framing, trace reading; no I/O.
//!
//! | module | what it answers |
//! |---|---|
//! | [`protos`] | the messages as structs |
//! | [`schema`] | the messages as descriptors: names, numbers, types at run time |
//! | [`config`] | what is to be recorded: text or binary, kept byte for byte, stamped for each data source |
//! | [`framing`] | how packets follow each other in a file, and frames on a socket |
//! | [`reader`] | a trace file as a stream of packets, with the place of any damage |
//! | [`packet`] | what a packet is, when and whose, without decoding what it holds |
//! | [`raw`] | the fields of any message as they lie in its bytes |
#![forbid(unsafe_code)]

pub mod config;
pub mod framing;
pub mod packet;
pub mod raw;
pub mod reader;
pub mod schema;

#[expect(
    missing_docs,
    clippy::all,
    reason = "generated from proto/; the format's own documentation says what a field means"
)]
pub mod protos {
    //! The messages of package `perfetto.protos`, as `prost` structs.
    //!
    //! A struct drops the fields that the schema does not have. Where bytes must survive (configs, descriptors), keep the bytes
    //! and read the struct: see [`crate::config`].
    include!(concat!(env!("OUT_DIR"), "/perfetto.protos.rs"));
}
