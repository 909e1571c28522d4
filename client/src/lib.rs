//! What traced programs link: arbiter, TraceWriter, data sources, in-process backend.
#![forbid(unsafe_code)]
