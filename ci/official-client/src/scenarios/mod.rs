//! The scenarios. Each ends by itself, or panics.

pub(crate) mod both_clients;
pub(crate) mod burst;
pub(crate) mod file;
pub(crate) mod killed;
pub(crate) mod reconnect;
pub(crate) mod threads;
pub(crate) mod triggers;
pub(crate) mod two_sessions;
