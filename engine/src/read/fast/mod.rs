//! The fast cursor: packets of ordinary records, many records at a time.
//!
//! ```text
//!   ring     | A7 ........ | A8 | A9 | A10 ....... | A11 | B3 | ...
//!              ^ position    ^ passed: the index     ^ the fragment cursor
//!                              still lists them
//!              |<----- checked: ordinary, contiguous, of one sequence ---->|
//! ```
//!
//! | module | what it does |
//! |---|---|
//! | `fragments` | hands out fragments of one record that need no decision |
//! | `contiguous` | checks records that follow each other at once, and takes the cursor along them |
//! | `deferred` | tells index, headers and accounts what the cursor has taken |
//! | `advance` | goes from a record to the next one of the ring, and ties these together |
//!
//! All of it does what [`super`] and [`super::walk`] do, with less to look up. Whatever is not
//! ordinary is left to them: then nothing has been done, and the position says where they go on.

pub(super) mod contiguous;
pub(super) mod fragments;

mod advance;
mod deferred;
