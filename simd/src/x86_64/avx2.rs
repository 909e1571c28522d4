//! AVX2 with BMI1 and BMI2. `andn`, `tzcnt` and `pext` decode any header of up to seven bytes;
//! vectors copy. AVX2 permutes too few bytes at a time for [`crate::walk::pairs`].

use super::Bmi2;
use crate::copy::copy_in_vectors;
use crate::entries::entry_points;
use crate::walk::pairs::NoPairs;

entry_points! {
    #[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx2")]
    header: Bmi2, pairs: NoPairs
}

copy_in_vectors! {
    "bmi1,bmi2,lzcnt,popcnt,avx2",
    32, "vmovdqu", "vmovdqa", "ymm",
    [
        out("ymm0") _, out("ymm1") _, out("ymm2") _, out("ymm3") _,
        out("ymm4") _, out("ymm5") _, out("ymm6") _, out("ymm7") _,
        out("ymm8") _, out("ymm9") _, out("ymm10") _, out("ymm11") _,
        out("ymm12") _, out("ymm13") _, out("ymm14") _, out("ymm15") _,
    ]
}
