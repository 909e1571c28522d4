//! The shared-memory ABI between producers and the tracing service.
