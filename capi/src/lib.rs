//! The C library: a trace buffer for C and C++ embedders.
