//! Data sources of a Linux machine.
#![forbid(unsafe_code)]
