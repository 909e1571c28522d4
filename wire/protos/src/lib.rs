//! The messages of package `perfetto.protos`, as `prost` structs. Use them through
//! `watershed_wire::protos`.
//!
//! They are a crate of their own for the sake of the cold build: they are much code, and none of it
//! is on a hot path. So `Cargo.toml` has them compiled for size, and [`Encode`] and [`Decode`] have
//! them compiled once.
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
