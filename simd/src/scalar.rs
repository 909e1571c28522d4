//! The portable level: no intrinsics, any processor. Headers are decoded from words of four bytes
//! ([`crate::word::Portable`]).

use crate::entries::entry_points;
use crate::walk::pairs::NoPairs;
use crate::word::Portable;

entry_points! {
    header: Portable, pairs: NoPairs
}
