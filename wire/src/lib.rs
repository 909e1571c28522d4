//! Messages: protobuf schema, configs, packet framing, trace reading; no I/O.
#![forbid(unsafe_code)]
