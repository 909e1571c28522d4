//! One header from one word, in two ways.

pub(crate) const HIGH: u64 = 0x8080_8080_8080_8080;
pub(crate) const LOW: u64 = !HIGH;

/// How the groups of seven bits are pushed together.
pub(crate) trait Groups {
    /// The bits of `word` below the lowest stop, of which `below` has the places and more.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn together(word: u64, below: u64) -> u64;

    /// Runs `work` where the compiler may use the instructions.
    ///
    /// # Safety
    /// The processor has the instructions.
    unsafe fn enabled<R>(work: impl FnOnce() -> R) -> R;
}

/// `pext`.
#[cfg(target_arch = "x86_64")]
pub(crate) struct Pext;

#[cfg(target_arch = "x86_64")]
impl Pext {
    /// Whether the processor has it, and fast: as the kernels' own level says.
    pub(crate) fn is_here() -> bool {
        watershed_simd::Level::Avx2.is_available()
    }
}

#[cfg(target_arch = "x86_64")]
impl Groups for Pext {
    #[inline(always)]
    unsafe fn together(word: u64, below: u64) -> u64 {
        // SAFETY: the caller's promise.
        unsafe { std::arch::x86_64::_pext_u64(word, below & LOW) }
    }

    #[inline(always)]
    unsafe fn enabled<R>(work: impl FnOnce() -> R) -> R {
        #[target_feature(enable = "bmi1,bmi2,lzcnt,popcnt,avx2")]
        fn at_level<R>(work: impl FnOnce() -> R) -> R {
            work()
        }
        // SAFETY: the caller's promise.
        unsafe { at_level(work) }
    }
}

/// Shifts and masks.
pub(crate) struct Shifts;

impl Groups for Shifts {
    #[inline(always)]
    unsafe fn together(word: u64, below: u64) -> u64 {
        let groups = word & below & LOW;
        let pairs = (groups & 0x007f_007f_007f_007f) | ((groups >> 1) & 0x3f80_3f80_3f80_3f80);
        let fours = (pairs & 0x0000_3fff_0000_3fff) | ((pairs >> 2) & 0x0fff_c000_0fff_c000);
        (fours & 0x0fff_ffff) | ((fours >> 4) & 0x00ff_ffff_f000_0000)
    }

    #[inline(always)]
    unsafe fn enabled<R>(work: impl FnOnce() -> R) -> R {
        work()
    }
}

/// The value and the length of the varint at the start of `word`; `None` if it does not end there.
///
/// # Safety
/// The processor has the instructions of `G`.
#[inline(always)]
pub(crate) unsafe fn varint<G: Groups>(word: u64) -> Option<(u64, usize)> {
    let stops = !word & HIGH;
    // SAFETY: the caller's promise.
    let value = unsafe { G::together(word, stops.wrapping_sub(1)) };
    (stops != 0).then_some((value, (stops.trailing_zeros() as usize >> 3) + 1))
}

/// Eight bytes, lowest first.
///
/// # Safety
/// They are readable.
#[inline(always)]
pub(crate) unsafe fn load(at: *const u8) -> u64 {
    // SAFETY: the caller's promise; no alignment is needed.
    u64::from_le(unsafe { at.cast::<u64>().read_unaligned() })
}
