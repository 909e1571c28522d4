//! NEON: the portable kernels, compiled for this level. No version with vectors won: NEON has no
//! `pext`, and `tbl` permutes too few bytes at a time for [`crate::walk::pairs`].

use crate::entries::entry_points;
use crate::walk::pairs::NoPairs;
use crate::word::Portable;

entry_points! {
    #[target_feature(enable = "neon")]
    header: Portable, pairs: NoPairs
}
