//! Nothing but tests: our schema, and a trace that `watershed record` wrote, by a schema that
//! others generated from the format's own files.
//!
//! They run with `cargo test -p watershed-schema-check --features other-schema` (`ci/schema`).
#![forbid(unsafe_code)]
