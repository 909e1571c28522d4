//! What must hold, by the simulation's own books: nothing here asks the service what it has
//! counted.

pub(crate) mod commands;
pub(crate) mod filter;
pub(crate) mod ledger;
pub(crate) mod reader;
pub(crate) mod triggers;
