//! Messages: protobuf schema, configs, packet framing, trace reading; no I/O.
#![forbid(unsafe_code)]

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
