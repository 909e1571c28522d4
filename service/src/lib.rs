//! The tracing service as a state machine: no sockets, no clock, no threads.
#![forbid(unsafe_code)]
