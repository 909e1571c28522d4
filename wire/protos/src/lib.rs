//! The messages of package `perfetto.protos`, as `prost` structs. Use them through
//! `watershed_wire::protos`.
//!
//! They are a crate of their own for the sake of the cold build: what the compiler makes of them is
//! as much as of everything else that the program has, and none of it is on a path that is hot. So
//! `Cargo.toml` has them compiled with less effort, and [`Encode`] and [`Decode`] have them compiled
//! once.
//!
//! A struct drops the fields that the schema does not have, and those whose messages are opaque
//! (`proto/opaque.proto`). Where bytes must survive (configs, descriptors), keep the bytes and read
//! the struct: see `watershed_wire::config`.
#![forbid(unsafe_code)]

mod coding;

pub use prost::DecodeError;

pub use self::coding::{Decode, Encode};

/// The compiled `proto/*.proto`, a serialized `google.protobuf.FileDescriptorSet` without comments.
pub static FILE_DESCRIPTOR_SET: &[u8] = include_bytes!("generated/descriptors.bin");

/// The structs.
#[expect(
    missing_docs,
    clippy::all,
    reason = "generated from proto/; the format's own documentation says what a field means"
)]
#[path = "generated/protos.rs"]
pub mod protos;
